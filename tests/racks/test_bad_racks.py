"""Racks that contradict themselves: a named blocker, nothing written, powered or cut.

Each is a rack of the simulator that an update, a cold reboot and a person's power command meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rack_rig import Rig, ask_for_power, reboot

from provisioner.integrations.racks.update_steps import Do
from provisioner.integrations.sim.racks.rack import ROOT, Tree
from provisioner.integrations.sim.racks.shelf import Shelf
from provisioner.integrations.sim.racks.tray import Tray
from provisioner.ports import Call, Unreachable

Break = Callable[[Rig], None]


def show(tray: Tray | Shelf, change: Callable[[Tree], None]) -> None:
    """Let a unit's tree be changed whenever it is built."""
    build = tray.shown._build

    def built() -> Tree:
        tree = build()
        change(tree)
        return tree

    tray.shown._build = built


def contradict_by_cartridge(rig: Rig) -> None:
    def change(tree: Tree) -> None:
        tree[f"{ROOT}/Chassis/CBC_0"]["Oem"]["Nvidia"]["ChassisPhysicalSlotNumber"] = 17

    show(rig.tray("t1"), change)


def contradict_by_one_gpu(rig: Rig) -> None:
    def change(tree: Tree) -> None:
        gpu = tree[f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_2"]
        topology: dict[str, Any] = dict(gpu["Oem"]["Nvidia"]["MNNVLinkTopology"])
        topology["ChassisSerialNumber"] = "1820009"
        gpu["Oem"] = {"Nvidia": {"MNNVLinkTopology": topology}}

    show(rig.tray("t1"), change)


def swap(rig: Rig) -> None:
    one, other = rig.tray("t0"), rig.tray("t1")
    slots = (one.slot, one.index)
    one.slot, one.index = other.slot, other.index
    other.slot, other.index = slots


def move(rig: Rig) -> None:
    rig.tray("t1").slot = 27


def double(rig: Rig) -> None:
    """As a tray of a second rack does that states the serial of this one."""
    rig.tray("t1").slot = rig.tray("t0").slot


def be_foreign(rig: Rig) -> None:
    rig.tray("t1").chassis = "1820002"


def answer_half(rig: Rig) -> None:
    rig.shelf("p0").faults.half = True


BAD: list[tuple[Break, str, str]] = [
    (contradict_by_cartridge, "t1", "CBC_0 state slot 17, and the plan has 11"),
    (contradict_by_one_gpu, "t1", "GPU_2 state chassis serial 1820009, and the plan has"),
    (swap, "t0", "state slot 11, and the plan has 10"),
    (move, "t1", "state slot 27, and the plan has 11"),
    (double, "t1", "state slot 10, and the plan has 11"),
    (be_foreign, "t1", "chassis serial 1820002"),
    (answer_half, "p0", "1 of its 2 power supplies do not say whether they are on"),
]  # fmt: skip
IDS = [each[0].__name__ for each in BAD]


def bad_rig(tmp_path: Path, spoil: Break) -> tuple[Rig, list[str]]:
    rig = Rig(tmp_path, trays=2, switches=1, shelves=2)
    spoil(rig)
    written: list[str] = []

    def note(url: str, call: Call) -> None:
        if call.method != "GET":
            written.append(f"{call.method} {url}{call.path}")

    rig.wires.before = note
    return rig, written


@pytest.mark.parametrize(("spoil", "unit", "says"), BAD, ids=IDS)
def test_an_update_of_a_rack_that_contradicts_itself_holds_it_by_name_and_writes_nothing(
    tmp_path: Path, spoil: Break, unit: str, says: str
) -> None:
    rig, written = bad_rig(tmp_path, spoil)

    held = rig.run()

    assert isinstance(held, list), held
    assert [one for one in held if "not proved to be where the plan has it" in one], held
    assert [one for one in rig.said if one.startswith(unit) and says in one], rig.said
    assert written == []


@pytest.mark.parametrize(("spoil", "unit", "says"), BAD, ids=IDS)
def test_a_cold_reboot_of_it_cuts_nothing(
    tmp_path: Path, spoil: Break, unit: str, says: str
) -> None:
    rig, written = bad_rig(tmp_path, spoil)

    ended = reboot(rig)

    assert ended.do is Do.FAIL, ended
    assert says in ended.why or "state the same slot" in ended.why
    assert written == []
    assert [rig.tray(f"t{n}").power for n in range(2)] == ["On", "On"]
    assert rig.rack.find("shelf") == []


def test_a_tray_that_contradicts_itself_once_writes_have_begun_is_not_cut(tmp_path: Path) -> None:
    rig, written = bad_rig(tmp_path, lambda _: None)
    note = rig.wires.before
    assert note is not None

    def swap_late(url: str, call: Call) -> None:
        note(url, call)
        if len(written) == 1:
            move(rig)

    rig.wires.before = swap_late
    ended = reboot(rig)

    assert "t1: " in ended.why
    assert "state slot 27, and the plan has 11" in ended.why
    assert len(written) >= 1
    assert rig.rack.find("shelf") == []


def test_a_shelf_of_which_no_supply_says_anything_is_not_cut(tmp_path: Path) -> None:
    def silence(rig: Rig) -> None:
        def change(tree: Tree) -> None:
            for path in [p for p in tree if "/PowerSupplies/" in p]:
                del tree[path]

        show(rig.shelf("p1"), change)

    rig, written = bad_rig(tmp_path, silence)
    ended = reboot(rig)

    assert "p1 does not say whether it is on" in ended.why
    assert written == []


def test_a_shelfs_lost_answer_behind_hosts_that_are_off_does_not_leave_them_so(
    tmp_path: Path,
) -> None:
    rig, written = bad_rig(tmp_path, lambda _: None)
    note = rig.wires.before
    lost: list[str] = []

    def lose(url: str, call: Call) -> None:
        note(url, call)
        if len(written) >= 3 and len(lost) < 6 and "PowerSubsystem" in call.path:
            lost.append(call.path)
            raise Unreachable("no answer", maybe_executed=False)

    rig.wires.before = lose
    ended = reboot(rig)

    assert len(lost) == 6
    assert ended.do is Do.DONE, ended
    assert [rig.tray(f"t{n}").power for n in range(2)] == ["On", "On"]


def test_a_trays_lost_answers_do_not_end_a_cold_reboot_with_hosts_off(tmp_path: Path) -> None:
    """Once the shelves are on, and before its own power."""
    rig, _ = bad_rig(tmp_path, lambda _: None)
    note = rig.wires.before
    assert note is not None
    lost: list[float] = []
    t1 = rig.update().addresses["t1"].url

    def lose(url: str, call: Call) -> None:
        note(url, call)
        back = bool(rig.rack.find("fed")) and rig.tray("t0").power == "On"
        since = lost[0] if lost else rig.rack.now
        if back and url == t1 and rig.rack.now - since < 300.0:
            lost.append(rig.rack.now)
            raise Unreachable("no answer", maybe_executed=False)

    rig.wires.before = lose
    ended = reboot(rig)

    assert lost
    assert ended.do is Do.DONE, ended
    assert [rig.tray(f"t{n}").power for n in range(2)] == ["On", "On"]


TRAYS = [each for each in BAD if each[0] is not answer_half]


@pytest.mark.parametrize(("spoil", "unit", "says"), TRAYS, ids=[e[0].__name__ for e in TRAYS])
def test_its_tray_gets_no_power(tmp_path: Path, spoil: Break, unit: str, says: str) -> None:
    rig, written = bad_rig(tmp_path, spoil)
    name = unit if unit.startswith("t") else "t1"
    rig.tray(name).power = "Off"

    told = asyncio.run(ask_for_power(rig, name))

    assert [one for one in told if says in one.detail], told
    assert written == []
    assert rig.tray(name).power == "Off"
