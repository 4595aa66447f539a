"""Ports of a node whose tenant has shared storage: in it after the network, out of it before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from release_rig import LEAF, RED, Bench, play
from test_release_order import LAST, TWO, customer, silence, spoil
from test_release_recheck import answer
from vms_rig import open_simulated

from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.model.node import Node
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.storage import Export, FileStorage
from provisioner.model.tenant import Phase
from provisioner.planning.tenancy.storage import list_client_addresses
from provisioner.settings.fabric import StorageSystem

SYSTEM = StorageSystem(provider="vast", address="https://vms.test", username="admin")
SCRATCH = FileStorage(exports=(Export(name="scratch", path="/scratch"),))
STORAGE = (GateCheck.STORAGE_OPEN, GateCheck.STORAGE_SHUT)


async def with_storage(bench: Bench) -> SimulatedVms:
    """The node's tenant has a space."""
    rig = bench.rig
    vms = rig.site.vms = SimulatedVms()
    settings = rig.effects.settings.model_copy(update={"storage": SYSTEM})
    adapter, _ = open_simulated(vms, rig.clock)
    spaces = rig.tenancy.spaces = TenantSpaces(adapter, rig.store, rig.clock, settings)
    [red] = [t for t in await rig.store.tenants.list() if t.name == RED.name]
    ready = red.model_copy(update={"phase": Phase.READY, "file_storage": SCRATCH})
    await rig.store.tenants.save(ready, new=False, nodes=(), request="r", now=rig.clock.now())
    assert await spaces.bring(await spaces.delta(await rig.store.tenants.list())) == ()
    return vms


def readers(vms: SimulatedVms, node: Node) -> set[bool]:
    """Whether its addresses read anything."""
    addresses = list_client_addresses(node)
    assert isinstance(addresses, tuple)
    return {bool(vms.list_readable(a)) for a in addresses}


def of_storage(rows: tuple[GateRow, ...]) -> list[tuple[GateCheck, RowVerdict]]:
    return [(r.check, r.verdict) for r in rows if r.check in STORAGE]


async def move(bench: Bench, vrf: str) -> Any:
    return await bench.rig.tenancy.move(bench.node().ports, vrf, node=bench.node())


# --- moves


def test_a_node_is_in_its_tenants_space_while_it_is_in_its_network() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        seen = []
        for vrf in ("RED", "MAINT"):
            outcome = await move(bench, vrf)
            seen.append((outcome.blockers, outcome.persisted, readers(vms, bench.node())))
        return seen

    assert play(scenario, TWO) == [((), True, {True}), ((), True, {False})]


def test_a_space_is_not_opened_to_a_node_that_did_not_come_into_the_network() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        bench.switches[LAST].faults.add("apply_fails")
        return await move(bench, "RED"), readers(vms, bench.node())

    outcome, reads = play(scenario, TWO)

    assert [b.subject for b in outcome.blockers] == [LAST]
    assert (outcome.persisted, reads) == (False, {False})


def test_a_move_of_ports_of_no_node_leaves_storage_as_it_is() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        await move(bench, "RED")
        outcome = await bench.rig.tenancy.move(bench.node().ports, "MAINT")
        return outcome.blockers, readers(vms, bench.node())

    assert play(scenario, TWO) == ((), {True})


def test_ports_are_fenced_although_the_storage_does_not_answer_and_both_are_said() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        await move(bench, "RED")
        vms.silent = True
        left = await move(bench, "MAINT")
        vrfs = bench.vrfs()
        silence(bench)
        neither = await move(bench, "MAINT")
        vms.silent = False
        return left, vrfs, neither, await move(bench, "MAINT")

    left, vrfs, neither, leaf_alone = play(scenario, TWO)

    [storage] = left.blockers
    assert storage.reason is Reason.UNREACHABLE
    assert (left.persisted, vrfs) == (False, ["MAINT", "MAINT"])
    assert {b.subject for b in neither.blockers} == {LEAF, storage.subject}
    assert {b.subject for b in leaf_alone.blockers} == {LEAF}
    assert not leaf_alone.persisted


def test_a_storage_that_does_not_answer_keeps_a_node_from_its_tenant_and_with_it() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        vms.silent = True
        kept = await move(bench, "RED")
        vms.silent = False
        await move(bench, "RED")
        vms.silent = True
        held = await bench.releases.reclaim(customer(bench))
        return kept, held, bench.vrfs()

    kept, held, vrfs = play(scenario, TWO)

    assert [b.reason for b in kept.blockers] == [Reason.UNREACHABLE]
    assert (kept.persisted, len(kept.placements)) == (False, 2)
    assert [b.reason for b in held.blockers] == [Reason.UNREACHABLE]
    assert vrfs == ["RED", "RED"]  # whole: in its network and in its storage


def test_to_close_ends_what_is_asked_of_the_storage() -> None:
    async def scenario(bench: Bench) -> Any:
        vms = await with_storage(bench)
        await move(bench, "RED")
        leaving = asyncio.ensure_future(bench.rig.tenancy.leave(bench.node()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await bench.rig.tenancy.close()
        await asyncio.wait([leaving], timeout=0)
        leaving.cancel()
        await bench.rig.clock.sleep(60.0)
        return readers(vms, bench.node())

    assert play(scenario, TWO) == {True}


# --- rows of the gate


def test_a_release_judges_storage_by_its_rules_and_by_the_hosts_own_mount() -> None:
    async def scenario(bench: Bench) -> Any:
        await with_storage(bench)
        outside = await bench.rig.tenancy.judge_beside(bench.node())
        return outside, await bench.release()

    outside, outcome = play(scenario, TWO)

    rules = [(check, RowVerdict.PASS) for check in STORAGE]
    assert of_storage(outside) == [(check, RowVerdict.FAIL) for check in STORAGE]
    assert outcome.blockers == ()
    assert of_storage(outcome.rows) == [*rules, rules[0]]


@pytest.mark.parametrize("probes", ["on", "off"])
def test_a_host_mounts_nothing_before_all_that_is_cheaper_is_good(probes: str) -> None:
    async def scenario(bench: Bench) -> Any:
        await with_storage(bench)
        answer(bench, "roce_runtime", lambda text: text.replace("dscp", "pcp"))
        return await bench.release()

    settings = {"release_probes": "off"} if probes == "off" else {}
    outcome = play(scenario, TWO, **settings)

    assert bool(outcome.blockers) == (probes == "on")
    assert of_storage(outcome.rows) == [(check, RowVerdict.PASS) for check in STORAGE]


def test_storage_is_not_asked_about_what_is_bad_at_a_leaf() -> None:
    async def scenario(bench: Bench) -> Any:
        await with_storage(bench)
        bench.when_moved(lambda: spoil(bench))
        return await bench.release()

    outcome = play(scenario, TWO)

    assert outcome.blockers
    assert of_storage(outcome.rows) == []
