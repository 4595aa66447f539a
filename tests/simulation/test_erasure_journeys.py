"""A node comes back from its tenant: it is erased, gets its system, or stays out with a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from branches import branch, certified_host, change_settings, copy_files
from returned import HOST, HOUR_S, holds, node_of, take_from_tenant, until_settled
from rig import World

from provisioner.execution.actions.work import host_key
from provisioner.integrations.sim.redfish.accounts import Account
from provisioner.model.erasure import ErasurePolicy, ErasureReport, Holder, Method, Result
from provisioner.model.node import Boots, Node, NodeKind, Placement, State
from provisioner.model.outcome import Reason
from provisioner.planning.erasure.erasure import list_unsanitized
from provisioner.planning.lifecycle.operator_requests import retry_node

Told = TypeVar("Told")


def returned(
    directory: Path,
    story: Callable[[World], Awaitable[Told]],
    spoil: Callable[[World], object] = lambda _world: None,
    **settings: object,
) -> tuple[Told, list[str]]:
    """A returned node, spoiled, under a daemon: what the story tells, and what must never be."""

    async def main(world: World) -> tuple[Told, list[str]]:
        await take_from_tenant(world)
        copy_files(world, directory)
        change_settings(world, **settings)
        spoil(world)
        await world.start()
        told = await story(world)
        wrong = await world.violations()
        await world.crash()
        return told, wrong

    return branch(certified_host, main)


def faulty(*names: str) -> Callable[[World], object]:
    return lambda world: world.site.machines[HOST].faults.update(names)


async def report_of(world: World, node: Node) -> ErasureReport:
    text = await world.store.evidence.get_output(node.erasure)
    assert text is not None
    return ErasureReport.model_validate_json(text)


def test_every_disk_is_erased_before_the_new_system_is_written_to_one_of_them(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> tuple[Node, ErasureReport, list[tuple[str, str]]]:
        given = Node(id=HOST, kind=NodeKind.HOST)
        former = await host_key(world.vault, given)
        node = await until_settled(world)
        assert await host_key(world.vault, given) != former, "the former tenant may have read it"
        log = world.site.machines[HOST].log
        events = [(e.kind, e.subject) for e in log if e.kind in ("erase", "image_start", "image")]
        return node, await report_of(world, node), events

    (node, report, events), wrong = returned(tmp_path, story)

    kinds = [kind for kind, _ in events]
    assert kinds == ["erase"] * 4 + ["image_start", "image"]
    assert len({slot for kind, slot in events if kind == "erase"}) == 4
    assert (node.served, node.boots, node.placement) == (
        "",
        Boots.SYSTEM,
        Placement.MAINTENANCE,
    )
    assert {r.method for r in report.select_records(Holder.DISK)} == {Method.SANITIZE_CRYPTO}
    assert {r.result for r in report.select_records(Holder.HOST_MEMORY)} == {Result.DONE}
    assert len(report.select_records(Holder.GPU_MEMORY)) == 8
    assert {r.result for r in report.select_records(Holder.BLUEFIELD_STORAGE)} == {Result.NOT_DONE}
    assert wrong == []


def test_what_a_disk_held_cannot_be_read_from_it_afterwards(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[dict[str, str], list[bytes]]:
        await until_settled(world)
        return holds(world), [d.content for d in world.site.machines[HOST].disks.values()]

    (left, contents), _ = returned(tmp_path, story)

    assert sorted(left.values()) == ["erased", "erased", "erased", "image"]
    assert not any(b"tenant" in content for content in contents)


def twin(world: World) -> None:
    devices = world.site.machines[HOST].devices
    devices["NVMe_1"].serial = devices["NVMe_2"].serial


BLOCKED = {
    "a disk that offers nothing": (faulty("erase_unsupported"), Reason.NOT_SANITIZED, "disk/"),
    "a disk that fails every method": (faulty("erase_fails"), Reason.NOT_SANITIZED, "disk/"),
    "a disk that only the BMC sees": (faulty("disk_unseen"), Reason.NOT_SANITIZED, "disks"),
    "an agent that never calls": (faulty("agent_silent"), Reason.ATTEMPTS_EXHAUSTED, "maintenance"),
    "an agent with foreign addresses": (
        faulty("agent_wrong_mac"),
        Reason.ATTEMPTS_EXHAUSTED,
        "maintenance",
    ),
    "an agent with a foreign token": (
        faulty("agent_wrong_token"),
        Reason.ATTEMPTS_EXHAUSTED,
        "maintenance",
    ),
    "two disks with one serial": (twin, Reason.DUPLICATE, ""),
    "disks that change between two looks": (faulty("disks_change"), Reason.NOT_SANITIZED, "disk"),
    "answers that are nonsense": (faulty("steps_garbled"), Reason.MALFORMED, "agent"),
}
LONG = ("an agent with foreign addresses", "an agent with a foreign token")  # as one never calls


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.long if c in LONG else ()) for c in BLOCKED]
)
def test_a_node_that_cannot_be_proved_clean_is_quarantined_and_stays_fenced(
    tmp_path: Path, case: str
) -> None:
    spoil, reason, subject = BLOCKED[case]

    async def story(world: World) -> Node:
        return await until_settled(world, 48 * HOUR_S)

    node, wrong = returned(tmp_path, story, spoil)

    assert node.state is State.QUARANTINED, node.note
    assert node.blockers[0].reason is reason
    assert subject in node.blockers[0].subject
    assert node.served == "blue"
    assert node.placement is Placement.MAINTENANCE
    assert wrong == []


def test_a_fallback_method_is_used_and_the_failure_before_it_is_recorded(tmp_path: Path) -> None:
    async def story(world: World) -> ErasureReport:
        return await report_of(world, await until_settled(world))

    report, _ = returned(tmp_path, story, faulty("sanitize_fails"))

    first = report.select_records(Holder.DISK)[0]
    assert (first.method, first.result) == (Method.FORMAT_CRYPTO, Result.DONE)
    assert "nvme_sanitize_crypto" in first.detail
    assert list_unsanitized(report, ErasurePolicy()) == ()


def test_a_node_that_was_repaired_is_erased_after_a_person_retries_it(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, Node]:
        blocked = await until_settled(world)
        world.site.machines[HOST].faults.discard("erase_fails")
        again = retry_node(await node_of(world), world.clock.now())
        assert isinstance(again, Node)
        await world.store.nodes.save(again)
        return blocked, await until_settled(world)

    (blocked, clean), wrong = returned(tmp_path, story, faulty("erase_fails"))

    assert blocked.state is State.QUARANTINED
    assert (clean.served, clean.boots) == ("", Boots.SYSTEM)
    assert wrong == []


def unpin_image(world: World) -> None:
    """The overlay pins no maintenance image any more."""
    overlay = yaml.safe_load(world.files.overlay.read_text())
    for release in overlay["releases"].values():
        release.get("images", {}).pop("maintenance", None)
    overlay.get("images", {}).pop("maintenance", None)
    world.files.overlay.write_text(yaml.safe_dump(overlay))


def test_a_host_out_of_a_tenant_is_off_also_where_no_image_can_be_booted(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, str, str]:
        machine = world.site.machines[HOST]
        before = machine.host.power
        node = await until_settled(world)
        await world.clock.sleep(2 * HOUR_S)
        return node, before, machine.host.power

    (node, before, after), wrong = returned(tmp_path, story, spoil=unpin_image)

    assert node.state is State.QUARANTINED
    assert node.served
    assert {b.reason for b in node.blockers} == {Reason.NOT_OFFERED}
    assert (before, after) == ("On", "Off")
    assert wrong == []


def plant_account(world: World) -> None:
    """A user whom the tenant added through its host, without any password of ours."""
    accounts = world.services[world.site.urls[f"{HOST}/host"]].accounts.accounts
    accounts["7"] = Account("7", "svc-update", "Planted-Word.1")


@pytest.mark.parametrize("required", ["disk", "disk bmc"])
def test_an_account_that_a_tenant_added_to_a_bmc_is_named_and_blocks_where_required(
    tmp_path: Path, required: str
) -> None:
    async def story(world: World) -> tuple[Node, str, Node]:
        node = await until_settled(world)
        report = await report_of(world, node)
        (record,) = [r for r in report.select_records(Holder.BMC) if r.device == "host accounts"]
        assert record.result is Result.NOT_DONE
        if node.state is State.QUARANTINED:
            url = world.site.urls[f"{HOST}/host"]
            del world.services[url].accounts.accounts["7"]
            again = retry_node(await node_of(world), world.clock.now())
            assert isinstance(again, Node)
            await world.store.nodes.save(again)
        return node, record.detail, await until_settled(world)

    (node, detail, clean), wrong = returned(tmp_path, story, plant_account, erase_required=required)

    assert "svc-update (Administrator)" in detail
    blocks = "bmc" in required
    assert (node.state is State.QUARANTINED) is blocks, node.note
    assert [b.subject for b in node.blockers] == [f"{HOST}/bmc/host accounts"] * blocks
    assert (clean.served, clean.boots) == ("", Boots.SYSTEM)
    assert wrong == []


CHANGED = "IntelVTforDirectedI_O_VT_d__1E32"  # of the simulated hosts of Supermicro


def change_bios(world: World) -> None:
    """A setting that the tenant changed in band, and that no set pins."""
    world.site.machines[HOST].host.bios.running[CHANGED] = "planted"


def change_bios_that_forgets_its_boot(world: World) -> None:
    change_bios(world)
    world.site.machines[HOST].host.bios.reset_forgets_boot = True


def change_bios_that_drops_resets(world: World) -> None:
    change_bios(world)
    world.site.machines[HOST].host.bios.reset_dropped = True


BIOS_WAYS = {
    "it comes back": (change_bios, State.CONVERGING, 2),
    "the reset ends the override of the boot too": (
        change_bios_that_forgets_its_boot,
        State.CONVERGING,
        3,
    ),
    "the BIOS drops it": (change_bios_that_drops_resets, State.QUARANTINED, 2),
}


@pytest.mark.parametrize("case", BIOS_WAYS)
def test_the_bios_gets_its_defaults_when_nothing_is_on_the_drives_and_the_image_runs_again(
    tmp_path: Path, case: str
) -> None:
    spoil, state, boots = BIOS_WAYS[case]

    async def story(world: World) -> tuple[Node, ErasureReport, list[str], object]:
        node = await until_settled(world, 48 * HOUR_S)
        rows = await world.store.operations.list_entries(HOST)
        actions = [
            r.action for r in rows if r.action.startswith(("erase", "BIOS", "maintenance b"))
        ]
        value = world.site.machines[HOST].host.bios.running[CHANGED]
        return node, await report_of(world, node), actions, value

    (node, report, actions, value), wrong = returned(
        tmp_path, story, spoil, erase_required="disk bios", attempts_max=3
    )

    (record,) = report.select_records(Holder.BIOS)
    assert node.state is state, node.note
    done = state is State.CONVERGING
    assert (record.result is Result.DONE) is done
    assert (CHANGED in record.detail) is done
    assert (value == "planted") is not done
    assert actions.index("BIOS to defaults") > max(
        n for n, action in enumerate(actions) if action.startswith("erase")
    )
    assert actions.count("BIOS to defaults") == 1
    assert actions.count("maintenance boot") == boots
    assert wrong == []
