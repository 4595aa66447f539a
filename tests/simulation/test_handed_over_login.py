"""The daemon's login is gone from a host that a tenant gets, and comes with the next system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rig import World
from test_returns import HOST, HOUR_S, lived, state, want

from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.node import Boots, Node, Placement, State
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.tenant import ReleaseProof, TenantKey, TenantUserData, name_user_data
from provisioner.planning.lifecycle.operator_requests import reclaim_node
from provisioner.ports.wire import Secret

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
SCRIPT = "#!/bin/sh\necho a-secret-of-blue\n"


def read_row(proof: ReleaseProof | None) -> tuple[str, RowVerdict] | None:
    rows = [r for r in proof.gate if r.check is GateCheck.LOGIN_REMOVED] if proof else []
    return (rows[-1].seen, rows[-1].verdict) if rows else None


@pytest.mark.slow
def test_a_tenant_gets_a_host_without_the_login_and_it_comes_back_with_another_system(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> dict[str, Any]:
        host = world.site.machines[HOST].host
        served = await world.store.nodes.get(HOST)
        assert served is not None
        seen = {
            "boots": served.boots,
            "gone": host.login_removed,
            "row": read_row(await world.store.evidence.get_proof(HOST)),
        }
        await world.clock.sleep(2 * HOUR_S)
        after = await world.store.nodes.get(HOST)
        assert after is not None
        seen |= {"state": after.state, "note": after.note, "blockers": after.blockers}
        await want(world, 0)
        back = reclaim_node(after, world.clock.now())
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        certified = await state(world, State.CERTIFIED, 48 * HOUR_S)
        return seen | {"again": certified.boots, "returned": host.login_removed}

    seen, wrong = lived(tmp_path, story, handover_login="remove")

    assert seen["boots"] is Boots.HANDED_OVER
    assert seen["gone"]
    assert seen["row"] is not None
    assert seen["row"][1] is RowVerdict.PASS
    assert (seen["state"], seen["blockers"]) == (State.RELEASED, ()), seen["note"]
    assert seen["again"] is Boots.SYSTEM
    assert not seen["returned"]
    assert wrong == []


def test_a_host_that_keeps_a_key_of_the_daemon_is_fenced_and_written_anew(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[list[str], Node]:
        fault_presets.inject_fault(world.site, "login_stays", HOST)
        await want(world, 1)
        for _ in range(3000):
            await world.clock.sleep(20.0)
            journal = await world.store.journal.list(limit=100_000)
            refused = [r for r in journal if r["kind"] == "release_refused"]
            node = await world.store.nodes.get(HOST)
            if refused and node is not None and node.state is not State.CERTIFIED:
                break
        assert node is not None
        return [str(row) for r in refused for row in r["detail"]["rows"]], node

    (rows, node), wrong = lived(tmp_path, story, wanted=0, handover_login="remove")

    assert any("login_removed" in row and "authorized_keys" in row for row in rows), rows
    assert node.state in (State.CONVERGING, State.VALIDATING, State.QUARANTINED)
    assert node.placement is Placement.MAINTENANCE
    assert wrong == []


@pytest.mark.slow
def test_a_tenant_is_told_how_old_its_libraries_may_be_and_a_failed_write_keeps_the_node(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> tuple[list[str], ReleaseProof, list[Any], str]:
        fault_presets.inject_fault(world.site, "minimums_cut_off", HOST)
        await want(world, 1)
        refused: list[Any] = []
        while not refused:
            await world.clock.sleep(20.0)
            journal = await world.store.journal.list(limit=100_000)
            refused = [r for r in journal if r["kind"] == "release_refused"]
        world.site.machines[HOST].faults.discard("minimums_cut_off")
        await state(world, State.RELEASED, 48 * HOUR_S)
        journal = await world.store.journal.list(limit=100_000)
        notices = [r["detail"]["libraries"] for r in journal if r["kind"] == "released"]
        proof = await world.store.evidence.get_proof(HOST)
        assert proof is not None
        minimums = world.site.machines[HOST].host.minimums
        return [str(row) for r in refused for row in r["detail"]["rows"]], proof, notices, minimums

    seen, wrong = lived(tmp_path, story, wanted=0, host_metadata="link_local")
    rows, proof, notices, minimums = seen

    assert any("libraries" in row for row in rows), rows
    assert [one.library for one in proof.libraries] == ["nccl", "doca", "cuda"]
    assert any(one.minimum != "unknown" for one in proof.libraries)
    assert minimums.startswith(f"{proof.libraries[0].minimum}\n")
    assert notices[-1] == [str(one) for one in proof.libraries]
    row = next(r for r in proof.gate if r.check is GateCheck.LIBRARIES)
    assert row.verdict is RowVerdict.PASS
    assert wrong == []


def test_a_tenants_keys_and_user_data_are_in_its_node_before_the_daemons_login_leaves(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> tuple[list[str], list[tuple[str, RowVerdict]], bool]:
        blue = next(t for t in await world.store.tenants.list() if t.name == "blue")
        key = TenantKey(name="laptop", public_key=KEY, added_by="red", added_at=world.clock.now())
        data = TenantUserData(
            version="v1", kind="script", size_bytes=9, set_by="red", set_at=world.clock.now()
        )
        await world.vault.put(name_user_data("blue", "v1"), "blue", Secret(SCRIPT))
        with_key = blue.model_copy(update={"ssh_keys": (key,), "user_data": data})
        await world.store.tenants.save(
            with_key, new=False, nodes=(), request="keys", now=world.clock.now()
        )
        await want(world, 1)  # as a list of hardware that is applied again: the keys stay
        await state(world, State.RELEASED)
        proof = await world.store.evidence.get_proof(HOST)
        assert proof is not None
        rows = [(r.check.value, r.verdict) for r in proof.gate]
        host = world.site.machines[HOST].host
        journal = await world.store.journal.list(limit=100_000)
        assert SCRIPT not in str(journal) + proof.model_dump_json()
        return [host.tenant_keys, host.user_data], rows[-3:], host.login_removed

    (texts, rows, removed), wrong = lived(tmp_path, story, wanted=0, handover_login="remove")

    assert texts == [f"{KEY}\n", SCRIPT]
    assert rows == [
        ("tenant_login", RowVerdict.PASS),
        ("tenant_user_data", RowVerdict.PASS),
        ("login_removed", RowVerdict.PASS),
    ]
    assert removed
    assert wrong == []
