"""Water in racks: no power to what is wet, warned of or unread, and an end by a person alone.

The trays speak Redfish in the shape of public trees; each reset is counted where it arrives.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rack_trees import ROOT, Tree, tray
from typer.testing import CliRunner, Result
from water_walk import TRAYS, Walk

from provisioner.integrations.racks import rack_commands, water_commands, water_file
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.water import (
    UnitWater,
    WaterState,
    clear_latch,
    find_power_refusals,
    find_wet,
    fold_look,
    judge_water_in,
)
from provisioner.integrations.racks.water_commands import Racked, switch_wet_off
from provisioner.integrations.racks.water_file import open_water
from provisioner.model.input_error import InputError
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress, Call, Reply, Unreachable

UNITS = [
    {"name": "t1", "kind": "compute-tray", "u": 12, "slot": 12, "tray_index": 1},
    {"name": "t2", "kind": "compute-tray", "u": 13, "slot": 13, "tray_index": 2},
    {"name": "p1", "kind": "power-shelf", "u": 6},
]
for number, each in enumerate(UNITS):
    each["bmc"] = f"https://10.0.0.{number + 1}"
PLAN = RackPlan.model_validate(
    {"racks": [{"name": "r01", "chassis_serial": "1820001", "domain": "d1", "units": UNITS}]}
)
RACK = PLAN.racks[0]
T1, T2, SHELF = RACK.units


def seen(*moistures: Moisture) -> tuple[LeakDetector, ...]:
    return tuple(
        LeakDetector(slot=f"d{n}", moisture=m, detail=m.value, source="x")
        for n, m in enumerate(moistures)
    )


DRY, WET, LOST = Moisture.DRY, Moisture.WET, Moisture.UNREADABLE


def test_detectors_of_one_name_count_each_and_more_than_can_be_remembered_are_not_dry() -> None:
    one, other = seen(WET, DRY)
    twins = (one, other.model_copy(update={"slot": one.slot}))

    assert fold_look(UnitWater(), twins, 0.0).latched
    assert fold_look(UnitWater(), twins[::-1], 0.0).latched
    assert fold_look(UnitWater(), seen(*[DRY] * 257), 0.0).state is WaterState.UNKNOWN
    assert fold_look(UnitWater(), seen(*[DRY] * 256, WET), 0.0).latched


def fold(*looks: tuple[LeakDetector, ...] | None) -> UnitWater:
    known = UnitWater()
    for at, look in enumerate(looks):
        known = fold_look(known, look, float(at))
    return known


@pytest.mark.parametrize(
    ("looks", "state"),
    [
        ((), WaterState.UNKNOWN),
        ((None,), WaterState.UNKNOWN),
        (((),), WaterState.UNKNOWN),
        ((seen(DRY, DRY),), WaterState.DRY),
        ((seen(DRY, LOST),), WaterState.UNKNOWN),
        ((seen(DRY, DRY), seen(DRY)), WaterState.UNKNOWN),  # one is not shown any more
        ((seen(DRY), None), WaterState.UNKNOWN),
        ((seen(DRY, WET),), WaterState.WET),
        ((seen(LOST, WET),), WaterState.WET),  # a partial look raises
        ((seen(WET), seen(DRY), seen(DRY), seen(DRY)), WaterState.WET),  # nobody cleared it
        ((seen(WET), None), WaterState.WET),  # silence clears nothing
        ((seen(WET), ()), WaterState.WET),
    ],
)
def test_a_unit_is_dry_only_by_every_detector_that_it_ever_showed(
    looks: Any, state: WaterState
) -> None:
    assert fold(*looks).state is state


def test_a_person_ends_it_after_two_whole_dry_looks_in_a_row() -> None:
    for looks in ([seen(WET)], [seen(WET), seen(DRY)], [seen(WET), seen(DRY), None, seen(DRY)]):
        assert isinstance(clear_latch("t1", fold(*looks), "amy", "new hose"), Blocker)
    dried = fold(seen(WET), seen(DRY), seen(DRY))
    for who, why in (("", "x"), ("amy", " ")):
        assert isinstance(clear_latch("t1", dried, who, why), Blocker)
    cleared = clear_latch("t1", dried, "amy", "new hose")
    assert isinstance(cleared, UnitWater)
    assert (cleared.state, cleared.cleared_by) == (WaterState.DRY, "amy: new hose")
    assert fold_look(cleared, seen(WET), 9.0).latched
    assert isinstance(clear_latch("t1", fold(seen(DRY)), "amy", "x"), Blocker)


def refused(known: dict[str, UnitWater], unit: Any, building: WaterState | None = None) -> str:
    told = find_power_refusals(RACK, unit, "On", known, building)
    return " | ".join(f"{b.subject}: {b.detail}" for b in told)


def test_what_is_below_a_wet_unit_and_the_shelf_that_feeds_it_get_no_power() -> None:
    dry, wet = fold(seen(DRY)), fold(seen(WET))
    assert refused({"t1": dry, "t2": dry}, T1) == ""
    assert refused({"t1": dry, "t2": wet}, T1) == "t1: warn: t2 above it is wet"
    assert refused({"t1": wet, "t2": dry}, T2) == ""
    assert "t1: unknown" in refused({"t2": dry}, T1)
    assert refused({"t1": dry, "t2": dry}, SHELF) == ""
    assert "t2: wet" in refused({"t1": dry, "t2": wet}, SHELF)
    assert "t2: unknown" in refused({"t1": dry}, SHELF)
    for building in (WaterState.WET, WaterState.UNKNOWN, WaterState.WARN):
        assert "own sensor" in refused({"t1": dry, "t2": dry}, T1, building)
    assert refused({"t1": dry, "t2": dry}, T1, WaterState.DRY) == ""
    assert find_power_refusals(RACK, T1, "ForceOff", {}) == ()
    assert find_wet(RACK, {"t1": dry, "t2": wet}) == (T2,)
    assert judge_water_in(RACK, {"t2": wet})["t1"][0] is WaterState.UNKNOWN


def test_power_is_given_exactly_where_nothing_is_wet_or_unknown_in_random_steps() -> None:
    """`make soak NAME=racks` walks for as long as one likes."""
    walk = Walk(44)
    walk.run(20_000)
    assert all(walk.counts[f"given to {name}"] > 100 for name in (*TRAYS, "p0"))
    assert walk.counts["leaks"] > 50


class Trays:
    """Two trays behind BMCs; `wet` and `silent` by address, resets where they arrive."""

    slot = 11  # of the tray at .1 minus one: slots and indexes follow the addresses
    first = 0

    def __init__(self, states: dict[str, str]) -> None:
        self.states = states
        self.silent: set[str] = set()
        self.resets: list[tuple[str, str]] = []
        self.before: Callable[[str], None] = lambda _: None
        self.power = dict.fromkeys(states, "Off")

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if bmc.url in self.silent:
            raise Unreachable("no answer", maybe_executed=False)
        target = f"{ROOT}/Systems/System_0/Actions/ComputerSystem.Reset"
        if call.method == "POST" and call.path == target:
            assert isinstance(call.body, dict)
            kind = str(call.body["ResetType"])
            self.before(kind)
            self.resets.append((bmc.url, kind))
            self.power[bmc.url] = "On" if kind == "On" else "Off"
            return Reply(204, {}, b"")
        number = int(bmc.url.rpartition(".")[2])
        tree: Tree = tray(self.slot + number, number - self.first, wet=self.states[bmc.url])
        self.amend(tree)
        system = tree[f"{ROOT}/Systems/System_0"]
        system["PowerState"] = self.power[bmc.url]
        allowed = ["On", "ForceOff", "GracefulShutdown"]
        action = {"target": target, "ResetType@Redfish.AllowableValues": allowed}
        system["Actions"] = {"#ComputerSystem.Reset": action}
        body = tree.get(call.path.partition("?")[0].rstrip("/"))
        return Reply(404, {}, b"") if body is None else Reply(200, {}, json.dumps(body).encode())

    def amend(self, tree: Tree) -> None:
        """Change what a tray shows."""

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return None

    async def forget(self, bmc: BmcAddress) -> None: ...

    async def close(self) -> None: ...


ONE, TWO = (f"https://10.0.0.{n}" for n in (1, 2))


async def no_pause(_: float) -> None: ...


def trays(t1: str = "OK", t2: str = "OK") -> Trays:
    return Trays({ONE: t1, TWO: t2})


async def give(
    made: Trays, file: Path, unit: Any = T1, building: Path | None = None
) -> tuple[Blocker, ...]:
    addresses = {"t1": BmcAddress(url=ONE), "t2": BmcAddress(url=TWO)}
    with open_water(file) as store:
        racked = Racked(RACK, made, addresses, store, building, pause=no_pause)
        if refusals := await racked.find_refusals(unit, "On"):
            return refusals
        failed = await racked.act(unit, "On")
        return () if failed is None else (failed,)


def test_a_dry_tray_gets_power_and_it_is_read_back(tmp_path: Path) -> None:
    made = trays()
    assert asyncio.run(give(made, tmp_path / "w.json")) == ()
    assert made.resets == [(ONE, "On")]


def test_a_wet_tray_gets_none_after_it_dried_in_another_process_until_a_person_says_so(
    tmp_path: Path,
) -> None:
    file = tmp_path / "w.json"
    made = trays("Critical")
    assert "wet" in asyncio.run(give(made, file))[0].detail
    made.states[ONE] = "OK"
    for _ in range(2):  # each a new process: the file is the latch
        assert "wet" in asyncio.run(give(made, file))[0].detail
    assert made.resets == []
    with open_water(file) as store:
        cleared = clear_latch("t1", store.units["t1"], "amy", "new hose")
        assert isinstance(cleared, UnitWater)
        store.units["t1"] = cleared
        store.save()
    assert asyncio.run(give(made, file)) == ()
    assert made.resets == [(ONE, "On")]


def test_a_silent_tray_gets_none_and_its_dry_past_is_no_proof(tmp_path: Path) -> None:
    made = trays()
    assert asyncio.run(give(made, tmp_path / "w.json")) == ()
    made.silent.add(ONE)
    told = asyncio.run(give(made, tmp_path / "w.json"))
    assert "unknown: it could not be read" in told[0].detail
    assert len(made.resets) == 1


def test_coolant_that_comes_between_the_looks_and_the_request_stops_it(tmp_path: Path) -> None:
    made = trays()

    async def run() -> tuple[Blocker, ...]:
        addresses = {"t1": BmcAddress(url=ONE), "t2": BmcAddress(url=TWO)}
        with open_water(tmp_path / "w.json") as store:
            racked = Racked(RACK, made, addresses, store, pause=no_pause)
            assert await racked.find_refusals(T1, "On") == ()
            made.states[TWO] = "Critical"
            failed = await racked.act(T1, "On")
            return () if failed is None else (failed,)

    assert "t2 above it is wet" in asyncio.run(run())[0].detail
    assert made.resets == []


def test_the_buildings_sensors_hold_a_rack_until_a_person_says_that_it_is_dry(
    tmp_path: Path,
) -> None:
    file = tmp_path / "w.json"
    building = tmp_path / "building.json"
    made = trays()

    def say(moisture: str) -> None:
        points = {"RackLeakDetect/a": {"moisture": moisture}}
        building.write_text(json.dumps({"at": time.time(), "racks": {"r01": points}}))

    def told() -> str:
        return " ".join(b.detail for b in asyncio.run(give(made, file, T1, building)))

    assert "sensor is unknown" in told()  # nobody writes the file
    for moisture, state in (("unreadable", "unknown"), ("wet", "wet"), ("dry", "wet")):
        say(moisture)
        assert f"sensor is {state}" in told()
    plan = tmp_path / "racks.json"
    plan.write_text(PLAN.model_dump_json())
    words = ["dry", str(plan), "building:r01", "--water", str(file), "--who", "amy", "--why", "x"]
    assert CliRunner().invoke(rack_commands.app, words).exit_code == 0
    assert made.resets == []
    say("dry")
    assert told() == ""
    assert made.resets == [(ONE, "On")]


def test_what_the_building_once_said_is_asked_again_also_by_a_command_that_names_no_file(
    tmp_path: Path,
) -> None:
    file, building = tmp_path / "w.json", tmp_path / "building.json"
    made = trays()

    def told(named: Path | None) -> str:
        return " ".join(b.detail for b in asyncio.run(give(made, file, T1, named)))

    def say(moisture: str) -> None:
        points = {"RackLeakDetect/\U0001f4a7": {"moisture": moisture}}
        building.write_text(json.dumps({"at": time.time(), "racks": {"r01": points}}))

    assert told(None) == ""  # a site without such sensors
    say("dry")
    assert told(building) == ""
    assert "sensor is unknown" in told(None)
    say("wet")
    assert "sensor is wet" in told(building)
    assert "sensor is wet" in told(None)
    assert len(made.resets) == 2


def test_a_slow_look_does_not_make_the_buildings_newest_word_one_of_the_future(
    tmp_path: Path,
) -> None:
    building = tmp_path / "building.json"

    class Slow(Trays):
        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            points = {"RackLeakDetect/a": {"moisture": "dry"}}  # its file is written meanwhile
            building.write_text(json.dumps({"at": time.time(), "racks": {"r01": points}}))
            return await super().request(bmc, call)

    made = Slow({ONE: "OK", TWO: "OK"})
    assert asyncio.run(give(made, tmp_path / "w.json", T1, building)) == ()


def test_what_is_wet_is_stored_before_it_is_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    made = trays(t2="LeakDetected")
    made.power[TWO] = "On"
    stored: list[Any] = []
    made.before = lambda _: stored.append(json.loads(file.read_text())["units"]["t2"])

    async def run() -> list[Blocker]:
        addresses = {"t1": BmcAddress(url=ONE), "t2": BmcAddress(url=TWO)}
        with open_water(file) as store:
            racked = Racked(RACK, made, addresses, store, pause=no_pause)
            return await switch_wet_off(racked, await racked.look())

    assert asyncio.run(run()) == []
    assert made.resets == [(TWO, "ForceOff")]
    assert [one["latched"] for one in stored] == [True]


def test_a_second_command_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    with (
        open_water(file) as store,
        pytest.raises(InputError, match="another command"),
        open_water(file),
    ):
        pass
    store.save()
    file.write_text("{")
    with pytest.raises(InputError), open_water(file):
        pass


def test_a_persons_word_waits_for_the_file_and_is_told_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "racks.json"
    plan.write_text(PLAN.model_dump_json())
    file = tmp_path / "w.json"
    words = ["dry", str(plan), "t1", "--water", str(file), "--who", "amy", "--why", "new hose"]
    monkeypatch.setattr(water_file, "WAIT_S", 0.01)
    monkeypatch.setattr(water_file, "WAITS_MAX", 20)
    with open_water(file) as store:
        store.units["t1"] = UnitWater(state=WaterState.WET, latched=True, dry_looks=2)
        store.save()
        held = CliRunner().invoke(rack_commands.app, words)
    assert held.exit_code
    assert f"another command holds it: process {os.getpid()} (" in f"{held.output}{held.exception}"
    free = CliRunner().invoke(rack_commands.app, words)
    assert free.exit_code == 0, free.output
    with open_water(file) as store:
        assert not store.units["t1"].latched


def test_nobody_holds_the_file_of_the_latch_while_a_person_thinks_and_what_came_then_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "racks.json"
    plan.write_text(PLAN.model_dump_json())
    made = trays()
    file = tmp_path / "w.json"
    invoke(monkeypatch, made, "water", str(plan), "r01", "--water", str(file))

    def leak(*_: object, **__: object) -> None:
        with open_water(file) as store:  # as the daemon does
            store.units["t1"] = UnitWater(state=WaterState.WET, latched=True, because="wet")
            store.save()

    monkeypatch.setattr(water_commands, "ask_person", leak)
    told = invoke(monkeypatch, made, "power", str(plan), "t1", "on", "--water", str(file))
    assert "refused: t1: wet" in told.output
    assert (told.exit_code, made.resets) == (1, [])


def test_a_wet_unit_without_an_address_is_told_to_be_on(tmp_path: Path) -> None:
    made = trays(t2="LeakDetected")

    async def run() -> list[Blocker]:
        with open_water(tmp_path / "w.json") as store:
            both = {"t1": BmcAddress(url=ONE), "t2": BmcAddress(url=TWO)}
            known = await Racked(RACK, made, both, store, pause=no_pause).look()
            alone = Racked(RACK, made, {"t1": BmcAddress(url=ONE)}, store, pause=no_pause)
            return await switch_wet_off(alone, known)

    assert [(b.subject, b.detail) for b in asyncio.run(run())] == [
        ("t2", "no address or login of its BMC is given")
    ]
    assert made.resets == []


def test_a_wet_building_is_shown_beside_dry_trays_and_power_needs_the_file_that_is_the_latch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, building = tmp_path / "racks.json", tmp_path / "building.json"
    plan.write_text(PLAN.model_dump_json())
    made = trays()
    water = ["--water", str(tmp_path / "w.json")]
    lost = invoke(monkeypatch, made, "power", str(plan), "t1", "on", *water, "--yes")
    assert "no such file" in str(lost.exception)
    points = {"RackLeakDetect/a": {"moisture": "wet"}}
    building.write_text(json.dumps({"at": time.time(), "racks": {"r01": points}}))

    named = ["--building", str(building)]
    looked = invoke(monkeypatch, made, "water", str(plan), "r01", *water, *named, "--json")
    assert looked.exit_code == 1, looked.output
    said = {name: one["state"] for name, one in json.loads(looked.stdout)["units"].items()}
    assert said == {"t1": "dry", "t2": "dry", "building:r01": "wet"}
    again = invoke(monkeypatch, made, "water", str(plan), "r01", *water)
    assert again.exit_code == 1
    assert "building:r01" in again.stdout
    assert made.resets == []


def invoke(monkeypatch: pytest.MonkeyPatch, made: Trays, *words: str) -> Result:
    monkeypatch.setattr(water_commands, "RedfishTransport", lambda **_: made)
    monkeypatch.setattr(water_commands, "BETWEEN_S", 0.0)
    monkeypatch.setenv("PROVISIONER_BMC_PASSWORD", "x")
    return CliRunner().invoke(rack_commands.app, [*words, "--user", "admin", "--insecure"])


def test_the_commands_look_hold_and_act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "racks.json"
    plan.write_text(PLAN.model_dump_json())
    made = trays(t2="Critical")
    water = ["--water", str(tmp_path / "w.json")]

    looked = invoke(monkeypatch, made, "water", str(plan), "r01", *water, "--json")
    assert looked.exit_code == 1, looked.output
    said = json.loads(looked.stdout)["units"]
    assert {name: one["state"] for name, one in said.items()} == {"t1": "warn", "t2": "wet"}
    refusal = invoke(monkeypatch, made, "power", str(plan), "t1", "on", *water, "--yes")
    assert (refusal.exit_code, made.resets) == (1, [])
    assert "t2 above it is wet" in refusal.stderr
    off = invoke(monkeypatch, made, "power", str(plan), "t1", "off", *water, "--dry-run")
    assert (off.exit_code, made.resets) == (0, [])
    assert "host:t1" in off.stdout
    early = ["dry", str(plan), "t2", *water, "--who", "amy", "--why", "new hose"]
    assert CliRunner().invoke(rack_commands.app, early).exit_code == 1
    made.states[TWO] = "OK"
    for _ in range(2):
        invoke(monkeypatch, made, "water", str(plan), "r01", *water)
    assert CliRunner().invoke(rack_commands.app, early).exit_code == 0
    unasked = invoke(monkeypatch, made, "power", str(plan), "t1", "on", *water)
    assert isinstance(unasked.exception, InputError)
    given = invoke(monkeypatch, made, "power", str(plan), "t1", "on", *water, "--yes")
    assert given.exit_code == 0, given.output
    assert made.resets == [(ONE, "On")]
    shelf = invoke(monkeypatch, made, "power", str(plan), "p1", "on", *water, "--yes")
    assert isinstance(shelf.exception, InputError)
