"""Partitions of which the manager's list or its controller says something else than the manager."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proved_domain import LOGIN, keep, make_switches, see, serials
from test_handed_over_partitions import (
    SLOTS,
    UUID,
    Rig,
    Wire,
    make_manager,
    make_node,
    owners,
    url_of,
    write_plan,
)
from typer.testing import CliRunner

from provisioner.integrations.racks.partitions.handed_over import TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.racks.partitions.owed_acts import FILE, UNLISTED_S
from provisioner.integrations.racks.rack_commands import app
from provisioner.model.node import Node, State
from provisioner.ports import SwitchAddress


class Lasting:
    """A daemon's partitions over one manager, on a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.manager = make_manager()
        self.wire = Wire(self.manager)
        self.plan = write_plan(folder)
        self.begin()

    def begin(self) -> None:
        """Begin as a new process does."""
        client = NmxClient(
            self.wire, SwitchAddress("https://m"), self.pass_time, lambda: self.manager.now
        )
        self.partitions = TrayPartitions(
            self.plan, client, self.pass_time, make_switches(), LOGIN, lambda: self.manager.now
        )

    async def pass_time(self, seconds: float) -> None:
        self.manager.now += seconds

    def do(self, verb: str, node: Node) -> list[str]:
        asked = getattr(self.partitions, verb)
        return [
            f"{b.subject}: {b.detail}" for b in asyncio.run(asked(node, [node], see(node.id[2:])))
        ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_that_is_listed_an_hour_late_is_waited_for_and_not_made_twice(
    tmp_path: Path, *, restarts: bool
) -> None:
    """infra-controller#572: completed, and over an hour until NMX Manager's list had it."""
    rig = Lasting(tmp_path)
    rig.manager.faults.late_s = 4000.0
    node = make_node("t0", "acme")
    for _ in range(6):
        (refused,) = rig.do("admit", node)
        assert refused.startswith("create acme.d01: 4 GPUs: the manager ")
        if restarts:
            rig.begin()
        (kept,) = rig.do("expel", make_node("t0", "acme", State.DRAINING))
        assert "does not list it yet; nothing is sent for it" in kept  # in none by the list alone
        assert rig.do("expel", make_node("t1", "acme", State.DRAINING)) == []
        rig.manager.now += 600.0
    rig.manager.now += 600.0
    assert rig.do("admit", node) == []
    assert rig.manager.log == ["PUT Default 12", "POST acme.d01 4", "PUT Default 8"]
    assert owners(rig.manager, "t0") == {"acme.d01"}
    assert '"acts": []' in (tmp_path / FILE).read_text()  # the list ended them


def test_a_tray_of_another_rack_in_the_same_slot_is_not_held_by_what_is_owed_of_one(
    tmp_path: Path,
) -> None:
    """One domain over two racks: slots are those of a chassis."""
    rig = Lasting(tmp_path)
    place = "u: 1, slot: 11, tray_index: 0"  # t0's, in the other chassis
    with rig.plan.open("a") as plan:
        plan.write("  - name: r02\n    chassis_serial: C2\n    domain: d01\n    units:\n")
        plan.write(f'      - {{name: t9, kind: compute-tray, {place}, bmc: "{url_of("t9")}"}}\n')
    keep(tmp_path, {tray: serials(tray) for tray in (*SLOTS, "t9")})
    rig.manager.add_tray(UUID, "C2", 11)
    for gpu in rig.manager.gpus[-4:]:
        gpu["LocationInfo"]["ChassisID"] = 2
    rig.manager.partitions.clear()
    rig.manager.faults.late_s = 4000.0
    assert "does not list it so" in rig.do("admit", make_node("t0", "acme"))[0]
    rig.begin()
    leaving = make_node("t9", "acme", State.DRAINING)
    assert rig.do("expel", leaving) == []
    assert "does not list it yet" in rig.do("expel", make_node("t0", "acme", State.DRAINING))[0]
    for gpu in rig.manager.gpus[:-4]:  # nobody tells whose chassis it is
        gpu["LocationInfo"]["ChassisSerialNumber"] = ""
    assert "does not list it yet" in rig.do("expel", leaving)[0]


class Cut(Exception):
    """The process is gone."""


@pytest.mark.parametrize("after", [1, 2])  # answers that it lived to see
def test_a_daemon_that_dies_beside_a_late_partition_neither_makes_it_twice_nor_frees_its_tray(
    tmp_path: Path, after: int
) -> None:
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.late_s = 4000.0
    left = [after]
    send = rig.wire.request

    async def die(address: SwitchAddress, call: Any) -> Any:
        if left[0] == 0:
            raise Cut
        if call.method == "POST" or left[0] < after:
            left[0] -= 1
        return await send(address, call)

    rig.wire.request = die  # type: ignore[method-assign]
    node, leaving = make_node("t0", "acme"), make_node("t0", "acme", State.DRAINING)
    with pytest.raises(Cut):
        rig.do("admit", node)
    rig.wire.request = send  # type: ignore[method-assign]
    rig.begin()
    assert "does not list it yet" in rig.do("expel", leaving)[0]
    assert "does not list it yet" in rig.do("admit", node)[0]
    rig.manager.now += 4000.0
    assert rig.do("admit", node) == []
    assert rig.manager.log == ["POST acme.d01 4"]
    assert rig.do("expel", leaving) == []
    assert owners(rig.manager, "t0") == {""}


def test_a_tray_whose_last_request_nobody_saw_the_answer_of_is_not_free_by_an_empty_list(
    tmp_path: Path,
) -> None:
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.late_s = 4000.0
    send = rig.wire.request

    async def die(address: SwitchAddress, call: Any) -> Any:
        told = await send(address, call)
        if call.method == "POST":
            raise Cut
        return told

    rig.wire.request = die  # type: ignore[method-assign]
    leaving = make_node("t0", "acme", State.DRAINING)
    with pytest.raises(Cut):
        rig.do("admit", make_node("t0", "acme"))
    rig.wire.request = send  # type: ignore[method-assign]
    rig.begin()
    assert "may have it and does not list it yet" in rig.do("expel", leaving)[0]
    rig.manager.now += 4000.0
    assert rig.do("expel", leaving) == []
    assert owners(rig.manager, "t0") == {""}


def test_a_tray_of_a_partition_that_is_never_listed_leaves_by_a_persons_word_alone(
    tmp_path: Path,
) -> None:
    """Neither time nor empty lists nor the manager's refusal of a second request prove it out."""
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.late_s = 10 * UNLISTED_S
    leaving = make_node("t0", "acme", State.DRAINING)
    rig.do("admit", make_node("t0", "acme"))
    for _ in range(3):
        rig.manager.now += 2 * UNLISTED_S
        rig.begin()
        assert "409" in rig.do("admit", make_node("t0", "acme"))[0]
        assert "does not list it yet" in rig.do("expel", leaving)[0]
    assert rig.do("expel", make_node("t1", "acme", State.DRAINING)) == []
    (held,) = asyncio.run(rig.partitions.expel(leaving, [leaving], see("t0")))
    command = held.unblock.partition("`provisioner rack ")[2].partition("`")[0]
    words = [*command.replace("YOU", "amy").replace("REASON", "read").split(), "--yes"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert rig.do("expel", leaving) == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_tray_of_a_change_that_was_taken_without_an_operation_is_not_free_by_time(
    tmp_path: Path, *, dies: bool
) -> None:
    """A manager that took it and named no operation: time and empty lists do not prove it out."""
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.late_s = 10 * UNLISTED_S
    send = rig.wire.request
    taken = False

    async def name_none(address: SwitchAddress, call: Any) -> Any:
        nonlocal taken
        if taken and dies:
            raise Cut
        told = await send(address, call)
        taken = taken or call.method == "POST"
        return replace(told, body=b"{}") if call.method == "POST" else told

    rig.wire.request = name_none  # type: ignore[method-assign]
    with pytest.raises(Cut) if dies else nullcontext():
        rig.do("admit", make_node("t0", "acme"))
    rig.wire.request = send  # type: ignore[method-assign]
    rig.manager.now += 2 * UNLISTED_S
    rig.begin()
    (held,) = rig.do("expel", make_node("t0", "acme", State.DRAINING))
    assert "does not list it yet" in held
    assert owners(rig.manager, "t0") == {"acme.d01"}


def test_what_is_owed_is_held_by_a_person_and_the_daemon_alike(tmp_path: Path) -> None:
    """`rack partitions --apply` of another user leaves a lock that the daemon can hold as well."""
    rig = Lasting(tmp_path)
    assert rig.do("admit", make_node("t0", "acme")) == []
    lock = tmp_path / f".{FILE}.lock"
    assert lock.stat().st_mode & 0o444 == 0o444
    lock.chmod(0o444)  # root passes by it; whoever does not opens it to read
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == []


@pytest.mark.parametrize("spoilt", ["{", "no access"])
def test_nothing_is_sent_and_nobody_leaves_while_what_is_owed_cannot_be_read(
    tmp_path: Path, spoilt: str
) -> None:
    rig = Lasting(tmp_path)
    if spoilt == "{":
        (tmp_path / FILE).write_text(spoilt)
    else:
        (tmp_path / FILE).mkdir()
    for verb, state in (("admit", State.RELEASED), ("expel", State.DRAINING)):
        (refused,) = rig.do(verb, make_node("t0", "acme", state))
        assert "is not kept, and nothing is sent" in refused
    assert rig.manager.log == []


def test_a_partition_that_is_never_listed_is_asked_for_again_after_two_hours(
    tmp_path: Path,
) -> None:
    rig = Lasting(tmp_path)
    rig.manager.partitions.clear()
    rig.manager.faults.lies = True
    node = make_node("t0", "acme")
    rig.do("admit", node)
    rig.manager.faults.lies = False
    assert "does not list it yet" in rig.do("admit", node)[0]
    rig.manager.now += UNLISTED_S
    assert rig.do("admit", node) == []
    assert rig.manager.log == ["POST acme.d01 4"] * 2


def test_a_limit_of_18_multicast_groups_that_the_controller_refuses_is_named(
    tmp_path: Path,
) -> None:
    """infra-controller#2681: it is 0 or a multiple of 4. The manager's REST has no field for it, so
    that none is sent here: what the manager asked its controller for is told in its own words.
    """
    rig = Rig(tmp_path)
    sent: list[Any] = []
    request = rig.manager.request

    def note(method: str, path: str, body: Any) -> Any:
        sent.append(body) if method == "POST" else None
        return request(method, path, body)

    rig.manager.request = note  # type: ignore[method-assign]
    rig.manager.groups = 18
    node = make_node("t0", "acme")
    (refused,) = rig.do("admit", node)
    assert refused == (
        "create acme.d01: 4 GPUs: failed: the controller refused a limit of 18 groups"
    )
    assert owners(rig.manager, "t0") == {""}
    assert [set(body) for body in sent] == [{"Name", "Members"}]
    rig.manager.groups = 16
    assert rig.do("admit", node) == []
    assert owners(rig.manager, "t0") == {"acme.d01"}
