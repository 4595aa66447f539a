"""What `rack power` asks beside water: whose place a unit has, and whether a flash runs on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rack_trees import ROOT, Tree, collect, ref, switch, tray
from test_water import ONE, TWO, Trays, invoke, no_pause
from test_water import PLAN as WATERED
from typer.testing import CliRunner

from provisioner.adapters.redfish.recorded import RecordedTransport
from provisioner.integrations.racks import rack_commands, water_commands
from provisioner.integrations.racks.identity import read_switch_place
from provisioner.integrations.racks.membership import (
    UnitReading,
    find_misplaced,
    find_unplaced,
    judge_rack,
)
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.reading import read_unit
from provisioner.integrations.racks.water import UnitWater, WaterState, fold_look
from provisioner.integrations.racks.water_commands import Racked
from provisioner.integrations.racks.water_file import open_water
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress

TRAYS = [
    {"name": f"t{n}", "kind": "compute-tray", "u": 11 + n, "slot": 11 + n, "tray_index": n}
    for n in range(6)
]
SWITCHES = [
    {"name": f"s{n}", "kind": "nvlink-switch", "u": 30 + n, "slot": 30 + n, "tray_index": n}
    for n in range(4)
]
for number, each in enumerate([*TRAYS, *SWITCHES]):
    each["bmc"] = f"https://10.0.0.{number + 1}"
PLAN = RackPlan.model_validate(
    {
        "racks": [
            {"name": "r01", "chassis_serial": "1820001", "domain": "d1", "units": TRAYS + SWITCHES},
            {
                "name": "r02",
                "chassis_serial": "1820002",
                "domain": "d2",
                "units": [{"name": "p9", "kind": "power-shelf", "u": 1}],
            },
        ]
    }
)
RACK = PLAN.racks[0]


Readings = dict[str, UnitReading]


def read(tree: Tree) -> UnitReading:
    transport = RecordedTransport(tree)
    return asyncio.run(read_unit(transport, BmcAddress(url="https://b.invalid")))


def read_rack() -> dict[str, UnitReading]:
    readings = {f"t{n}": read(tray(11 + n, n)) for n in range(6)}
    for n in range(4):
        tree = switch()
        tree[f"{ROOT}/Chassis/MGX_NVSwitch_0"]["SerialNumber"] = f"MT{n}"
        said = {"chassis-sn": "1820001", "slot-number": str(30 + n), "tray-index": str(n)}
        place = read_switch_place(said)
        assert place is not None
        one = read(tree)
        readings[f"s{n}"] = UnitReading(**{**vars(one), "places": (place,), "gaps": ()})
    return readings


def misplaced(readings: dict[str, UnitReading], name: str) -> str:
    unit = next(u for u in RACK.units if u.name == name)
    return " | ".join(b.detail for b in find_misplaced(PLAN, "r01", readings, unit))


def test_any_two_units_that_were_swapped_are_found_and_the_trays_get_no_power() -> None:
    sound = read_rack()
    assert [name for name in sound if misplaced(sound, name)] == []
    for group in (TRAYS, SWITCHES):
        for one, other in combinations([str(u["name"]) for u in group], 2):
            swapped = {**sound, one: sound[other], other: sound[one]}
            verdict = judge_rack(PLAN, "r01", swapped)
            named = {f.subject for u in verdict.units for f in u.findings}
            assert {one, other} <= named
            if group is TRAYS:
                assert misplaced(swapped, one)
                assert misplaced(swapped, other)
                assert [n for n in swapped if misplaced(swapped, n)] == [one, other]


def read_off(names: Sequence[str] = ("t0", "t1", "t2", "t3", "t4", "t5")) -> Readings:
    """Return the rack with switches that are off: their BMCs state a serial, and nothing else."""
    read = read_rack()
    off = {f"s{n}": replace(read[f"s{n}"], places=()) for n in range(4)}
    return {**{name: read[name] for name in names}, **off}


def unplaced(readings: Readings, name: str, serials: Mapping[str, str]) -> str:
    units = [u.model_copy(update={"serial": serials.get(u.name, "")}) for u in RACK.units]
    rack = RACK.model_copy(update={"units": tuple(units)})
    plan = RackPlan(racks=(rack, *PLAN.racks[1:]))
    unit = next(u for u in rack.units if u.name == name)
    found = find_misplaced(plan, "r01", readings, unit)
    found += find_unplaced(plan, "r01", readings, unit)
    return " | ".join(b.detail for b in found)


SERIALS = {f"s{n}": f"MT{n}" for n in range(4)}


def test_any_two_switches_that_are_off_and_were_swapped_get_no_power() -> None:
    sound = read_off()
    assert [name for name in sound if unplaced(sound, name, SERIALS)] == []
    for one, other in combinations(SERIALS, 2):
        swapped = {**sound, one: sound[other], other: sound[one]}
        assert [n for n in swapped if unplaced(swapped, n, SERIALS)] == [one, other]
        doubled = {**sound, other: sound[one]}
        assert [n for n in doubled if unplaced(doubled, n, SERIALS)] == [one, other]


def test_a_switch_that_is_off_and_has_no_planned_serial_gets_no_power_and_is_told_why() -> None:
    sound = read_off()
    said = {name: unplaced(sound, name, {}) for name in sound}
    assert {name for name, one in said.items() if one} == set(SERIALS)
    assert "the plan has no serial of it" in said["s0"]
    assert unplaced(read_rack(), "s0", {}) == ""  # its NVOS states the place


def test_a_switch_that_is_off_gets_no_power_in_a_rack_that_was_recabled() -> None:
    """Its trays tell; where none does, nobody knows which rack this is."""
    recabled = {**read_off(), "t3": read(tray(14, 3, "1820002"))}
    assert "1820002 (r02's)" in unplaced(recabled, "s1", SERIALS)
    assert "no tray of its rack states one" in unplaced(read_off(()), "s1", SERIALS)


def test_one_serial_stands_in_a_plan_once() -> None:
    units = [{**each, "serial": "MT1"} for each in SWITCHES[:2]]
    rack = {"name": "r01", "chassis_serial": "1", "domain": "d1", "units": units}
    with pytest.raises(ValueError, match="serial"):
        RackPlan.model_validate({"racks": [rack]})


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (tray(12, 1, "1820002"), "chassis serial 1820002 (r02's)"),
        (tray(11, 0), "the same slot 11"),
        (tray(14, 1), "state slot 14, and the plan has 12"),
        (switch(), "this is a nvlink-switch"),
        ({ROOT: {}}, "HTTP status 404"),
    ],
)
def test_a_foreign_recabled_or_doubled_tray_gets_no_power(second: Tree, says: str) -> None:
    readings = {**read_rack(), "t1": read(second)}
    assert says in misplaced(readings, "t1")
    assert misplaced(readings, "t4") == ""


def test_a_tray_whose_gpus_are_silent_is_admitted_by_its_cartridge_and_by_nothing_else() -> None:
    silent = tray(12, 1)
    for gpu in range(4):
        silent[f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_{gpu}"].pop("Oem")
    assert misplaced({**read_rack(), "t1": read(silent)}, "t1") == ""
    silent[f"{ROOT}/Chassis/CBC_0"].pop("Oem")
    assert "nothing states where it sits" in misplaced({**read_rack(), "t1": read(silent)}, "t1")


def test_of_two_trays_with_two_cartridges_nobody_knows_which_is_the_racks() -> None:
    other = tray(12, 1)
    other[f"{ROOT}/Chassis/CBC_0"]["SerialNumber"] = "C99"
    readings = {"t0": read(tray(11, 0)), "t1": read(other)}
    assert "cartridges differ" in misplaced(readings, "t0")
    assert "cartridges differ" in misplaced(readings, "t1")
    readings["t2"] = read(tray(13, 2))
    assert misplaced(readings, "t0") == ""


class Flashing(Trays):
    """Trays with a task service and a root of trust that copies."""

    slot, first = 10, 1

    def __init__(self, task: str = "", copy: str = "Completed") -> None:
        super().__init__({ONE: "OK", TWO: "OK"})
        self.task = task
        self.copy = copy

    def amend(self, tree: Tree) -> None:
        tree[ROOT] |= {"Tasks": ref("TaskService"), "UpdateService": ref("UpdateService")}
        tree[f"{ROOT}/TaskService"] = {"Tasks": ref("TaskService/Tasks")}
        collect(tree, "TaskService/Tasks", ["7"] if self.task else [])
        tree[f"{ROOT}/TaskService/Tasks/7"] = {"Id": "7", "TaskState": self.task}
        tree[f"{ROOT}/UpdateService"] = {
            "FirmwareInventory": ref("UpdateService/FirmwareInventory")
        }
        collect(tree, "UpdateService/FirmwareInventory", ["FW_ERoT_BMC_0"])
        tree[f"{ROOT}/UpdateService/FirmwareInventory/FW_ERoT_BMC_0"] = {
            "Id": "FW_ERoT_BMC_0",
            "Version": "01.04.0031.0000_n04",
        }
        collect(tree, "Chassis", ["Chassis_0", "CBC_0", "HGX_GPU_0", "ERoT_BMC_0"])
        tree[f"{ROOT}/Chassis/ERoT_BMC_0"] = {
            "Id": "ERoT_BMC_0",
            "Oem": {"Nvidia": {"BackgroundCopyStatus": self.copy}},
        }


T0 = RACK.units[0]


async def ask(made: Trays, file: Path, reset: str, water: UnitWater | None) -> tuple[Blocker, ...]:
    with open_water(file) as store:
        if water is not None:
            store.units["t0"] = water
        addresses = {"t0": BmcAddress(url=ONE)}
        racked = Racked(RACK, made, addresses, store, pause=no_pause, plan=PLAN)
        return await racked.find_refusals(T0, reset)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Flashing(), ""),
        (Flashing(task="Completed"), ""),
        (Flashing(task="Running"), "a task runs on it"),
        (Flashing(task="Banana"), "a task runs on it"),
        (Flashing(copy="InProgress"), "a copy of its firmware runs"),
        (Flashing(copy="Banana"), "a copy of its firmware runs"),
    ],
)
@pytest.mark.parametrize("reset", ["On", "ForceOff", "GracefulShutdown"])
def test_nothing_is_switched_under_a_flash_but_what_leaks(
    tmp_path: Path, made: Flashing, says: str, reset: str
) -> None:
    told = asyncio.run(ask(made, tmp_path / "w.json", reset, None))
    ran = [b for b in told if reset != "On" or "firmware" in b.detail or "task" in b.detail]
    assert says in " ".join(b.detail for b in ran)
    assert bool(ran) is bool(says)
    wet = fold_look(UnitWater(), leaks(Moisture.WET), 0.0)
    assert bool(asyncio.run(ask(made, tmp_path / "w.json", reset, wet))) is (reset == "On")


def test_what_runs_is_not_known_of_a_silent_tray_and_it_stays_on(tmp_path: Path) -> None:
    made = Flashing()
    made.silent.add(ONE)
    told = asyncio.run(ask(made, tmp_path / "w.json", "ForceOff", None))
    assert "could not be read" in told[0].detail


def leaks(*moistures: Moisture) -> tuple[LeakDetector, ...]:
    return tuple(
        LeakDetector(slot=f"d{n}", moisture=m, detail=m.value, source="x")
        for n, m in enumerate(moistures)
    )


def test_a_lost_detector_makes_a_tray_unknown_and_a_lost_bmc_leaves_the_count_of_leaks(
    tmp_path: Path,
) -> None:
    """The rack's count is what decides on isolation: silence must not lower it."""
    both = {ONE: "Critical", TWO: "LeakDetected"}
    lost: list[tuple[Callable[[Trays], None], int]] = [
        (lambda made: None, 2),
        (lambda made: made.silent.add(ONE), 2),  # the wet one's BMC dies
        (lambda made: made.silent.update({ONE, TWO}), 2),
        (lambda made: made.states.update({ONE: "Unavailable"}), 2),
        (lambda made: made.states.update({ONE: "OK", TWO: "OK"}), 2),  # nobody cleared them
    ]
    made = Trays(dict(both))
    file = tmp_path / "w.json"
    for change, count in lost:
        made.silent.clear()
        made.states = dict(both)
        change(made)
        with open_water(file) as store:
            addresses = {"t0": BmcAddress(url=ONE), "t1": BmcAddress(url=TWO)}
            racked = Racked(RACK, made, addresses, store, pause=no_pause)
            judged = racked.judge(asyncio.run(racked.look()))
        assert sum(state is WaterState.WET for state, _ in judged.values()) == count
    dry = fold_look(UnitWater(), leaks(Moisture.DRY, Moisture.DRY), 0.0)
    for look in (leaks(Moisture.DRY), leaks(Moisture.DRY, Moisture.UNREADABLE), (), None):
        assert fold_look(dry, look, 1.0).state is WaterState.UNKNOWN


def test_the_command_counts_leaking_units_and_asks_for_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Trays({f"https://10.0.0.{n}": "OK" for n in range(1, 11)})
    made.states |= {ONE: "Critical", TWO: "Critical"}
    monkeypatch.setattr(water_commands, "RedfishTransport", lambda ca_file: made)
    plan = tmp_path / "racks.json"
    plan.write_text(PLAN.model_dump_json())
    words: list[Any] = ["water", str(plan), "r01", "--water", str(tmp_path / "w.json")]
    monkeypatch.setenv("PROVISIONER_BMC_PASSWORD", "x")

    shown = CliRunner().invoke(rack_commands.app, words)
    assert "Ask the building for electrical and liquid isolation: `rack isolate`" in shown.output
    told = CliRunner().invoke(rack_commands.app, [*words, "--json"])
    assert json.loads(told.stdout)["leaking"] == 2


class Moved(Trays):
    """Trays of which each has another slot than the plan's, or none."""

    def __init__(self, *, silent: bool, wet: bool) -> None:
        super().__init__({ONE: "Critical" if wet else "OK", TWO: "OK"})
        self.power = dict.fromkeys(self.states, "On")
        self.nowhere = silent
        self.slot = 12

    def amend(self, tree: Tree) -> None:
        for one in tree.values() if self.nowhere else ():
            one.pop("Oem", None)


@pytest.mark.parametrize("act", ["off", "shutdown"])
@pytest.mark.parametrize(
    ("silent", "wet", "goes"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
)
def test_another_machine_at_a_units_address_is_not_switched_off(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    act: str,
    silent: bool,
    wet: bool,
    goes: bool,
) -> None:
    """What is wet goes off also where nothing states its place, and not where it is another one."""
    plan = tmp_path / "racks.json"
    plan.write_text(WATERED.model_dump_json())
    made = Moved(silent=silent, wet=wet)
    water = ["--water", str(tmp_path / "w.json")]
    invoke(monkeypatch, made, "water", str(plan), "r01", *water)
    told = invoke(monkeypatch, made, "power", str(plan), "t1", act, *water, "--yes")
    assert bool(made.resets) is goes, told.output
    if not goes:
        assert told.exit_code == 1
        says = "nothing states where it sits" if silent else "state slot 13, and the plan has 12"
        assert "refused: t1: " in told.stderr
        assert says in told.stderr
