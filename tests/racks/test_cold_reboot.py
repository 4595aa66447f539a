"""A rack's cold reboot: hosts off, shelves off, silence, shelves on, and power to what is dry."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rack_rig import Rig, ask_for_power, reboot

from provisioner.integrations.building_water.building_commands import write_file
from provisioner.integrations.building_water.signals import Building
from provisioner.integrations.racks.campaign import UnitState
from provisioner.integrations.racks.cold_reboot import RackView, decide_reboot
from provisioner.integrations.racks.cold_reboot_run import ColdReboot
from provisioner.integrations.racks.update_log import BEGAN, NOTED, ActLog, Line, open_log
from provisioner.integrations.racks.update_steps import Do, Next
from provisioner.integrations.racks.water import UnitWater, WaterState, clear_latch
from provisioner.integrations.racks.water_file import open_water
from provisioner.integrations.sim.racks.rack import Event


def make(tmp_path: Path, trays: int = 2) -> Rig:
    return Rig(tmp_path, trays=trays, switches=1, shelves=2)


def test_a_rack_goes_dark_long_enough_and_comes_back_as_it_was(tmp_path: Path) -> None:
    rig = make(tmp_path)
    ended = reboot(rig)

    assert ended.do is Do.DONE, ended
    shelves = rig.rack.find("shelf")
    assert [(e.unit, e.detail) for e in shelves] == [
        ("p0", "Off"),
        ("p1", "Off"),
        ("p0", "On"),
        ("p1", "On"),
    ]
    assert shelves[2].at - shelves[1].at >= rig.rack.times.discharge
    assert [e.detail for e in rig.rack.find("fed")] == ["discharged"]
    assert [rig.tray(f"t{n}").power for n in range(2)] == ["On", "On"]
    assert [rig.tray(f"t{n}").policy for n in range(2)] == ["LastState", "LastState"]
    assert rig.violations() == []


def test_no_shelf_goes_off_under_a_flash(tmp_path: Path) -> None:
    rig = make(tmp_path)
    tray = rig.tray("t1")
    tray.copied = rig.rack.now + 600.0
    ended = reboot(rig)
    assert ended.do is Do.DONE
    assert rig.rack.find("shelf")[0].at > 1_600.0
    (tmp_path / "other").mkdir()
    stuck = make(tmp_path / "other")
    stuck.tray("t1").faults.copy_never_ends = True
    assert reboot(stuck).do is Do.FAIL
    assert stuck.rack.find("shelf") == []


def test_a_rack_with_a_tenant_or_an_unread_tray_is_left_alone(tmp_path: Path) -> None:
    rig = make(tmp_path)
    rig.tenants["t1"] = "acme"
    assert "acme uses t1" in reboot(rig).why
    rig.tenants["t1"] = None
    assert "nobody looked" in reboot(rig).why
    rig.tenants["t1"] = ""
    rig.tray("t1").dead = True
    assert reboot(rig).do is Do.FAIL
    assert rig.rack.find("shelf") == []


def test_a_rack_without_a_shelf_that_can_be_switched_is_left_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, trays=1, switches=1, shelves=0)
    assert "the plan has no shelf" in reboot(rig).why
    assert rig.tray("t0").power == "On"
    (tmp_path / "other").mkdir()
    blind = make(tmp_path / "other")

    async def run() -> Next:
        update = blind.update()
        update.addresses = {n: one for n, one in update.addresses.items() if n != "p1"}
        with open_log(blind.folder / "cold") as log:
            return await ColdReboot(update, update.plan.racks[0], log).carry_out()

    assert "p1 has no `bmc`" in asyncio.run(run()).why
    assert blind.wires.calls == 0


def test_a_tenant_in_another_rack_of_the_domain_refuses_it(tmp_path: Path) -> None:
    rig = make(tmp_path)

    async def run(tenant: str | None) -> Next:
        update = rig.update()
        (rack,) = update.plan.racks
        unit = rack.units[0].model_copy(update={"name": "far"})
        far = rack.model_copy(update={"name": "r02", "units": (unit,)})
        update.plan = update.plan.model_copy(update={"racks": (rack, far)})
        update.asked = update.asked.model_copy(
            update={"units": {**update.asked.units, "far": UnitState(tenant=tenant)}}
        )
        with open_log(rig.folder / "cold") as log:
            return await ColdReboot(update, rack, log).carry_out()

    assert "acme uses far" in asyncio.run(run("acme")).why
    assert "nobody looked whose host far is" in asyncio.run(run(None)).why
    assert rig.wires.calls == 0


def test_a_journal_whose_cold_reboot_is_over_claims_no_second_one(tmp_path: Path) -> None:
    rig = make(tmp_path)
    assert reboot(rig).do is Do.DONE
    calls = rig.wires.calls
    again = reboot(rig)
    assert (again.do, "is over" in again.why) == (Do.FAIL, True)
    assert rig.wires.calls == calls


def test_a_switch_that_has_to_stay_off_keeps_the_shelves_as_they_are(tmp_path: Path) -> None:
    """Its tray has no restore policy that anybody publishes: a shelf that comes on powers it."""
    rig = make(tmp_path)
    detectors = rig.switch("s0").detectors
    detectors["leakage1"] = "Critical"
    ended = reboot(rig)
    assert (ended.do, "s0 (wet" in ended.why) == (Do.FAIL, True), ended
    assert rig.rack.find("shelf") == []
    detectors["leakage1"] = "OK"
    rig.rack.advance(10.0)
    with open_water(tmp_path / "water.json") as store:
        store.units["s0"] = UnitWater()
        store.save()

    def leak_in_the_dark(event: Event) -> None:
        if (event.unit, event.detail) == ("p1", "Off"):
            wet.append(event.at)  # its file is written between two rounds, which hold it

    wet: list[float] = []
    rig.rack.watch = leak_in_the_dark
    paused = rig.pause

    async def pause(seconds: float) -> None:
        await paused(seconds)
        if wet:
            with open_water(tmp_path / "water.json") as store:
                store.units["s0"] = UnitWater(latched=True, state=WaterState.WET)
                store.save()

    rig.pause = pause  # type: ignore[method-assign]
    ended = reboot(rig)
    assert "s0 (wet" in ended.why
    assert [e.detail for e in rig.rack.find("shelf")] == ["Off", "Off"]
    assert rig.rack.find("fed") == []


def test_a_bmc_that_something_else_feeds_stops_it(tmp_path: Path) -> None:
    rig = make(tmp_path)
    tray = rig.tray("t1")
    tray.lose_power = lambda: None  # type: ignore[method-assign]
    ended = reboot(rig)
    assert "t1 answers with every shelf off" in ended.why
    assert [e.detail for e in rig.rack.find("shelf")] == ["Off", "Off"]


def leak(rig: Rig) -> Callable[[], None]:
    """Make a tray wet; return what dries it."""
    tray = rig.tray("t1")
    detector = next(iter(tray.detectors))
    tray.detectors[detector] = "Critical"

    def dry() -> None:
        tray.detectors[detector] = "OK"

    return dry


def test_a_wet_tray_gets_no_power_from_a_person_a_retry_a_cold_reboot_or_a_new_process(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path)
    tray = rig.tray("t1")
    tray.power = "Off"
    dry = leak(rig)
    for _ in range(3):  # a person, a retry, another process
        told = asyncio.run(ask_for_power(rig, "t1"))
        assert any("t1" in one.subject and "wet" in one.detail for one in told)
    dry()  # silence of its detector, or a dried one, is no word of a person
    told = asyncio.run(ask_for_power(rig, "t1"))
    assert any("wet" in one.detail for one in told)
    ended = reboot(rig)
    assert (ended.do, "t1: wet" in ended.why) == (Do.FAIL, True), ended
    assert tray.power == "Off"
    assert tray.policy == "AlwaysOff"  # it stays off whatever feeds it next
    assert [e for e in rig.rack.find("powered") if e.unit == "t1"] == []
    assert rig.tray("t0").power == "Off"  # it stands below the wet one
    with open_water(tmp_path / "water.json") as store:
        cleared = clear_latch("t1", store.units["t1"], "amy", "new hose")
        assert isinstance(cleared, UnitWater)
        store.units["t1"] = cleared
        store.save()
    assert asyncio.run(ask_for_power(rig, "t1")) == ()
    assert rig.violations() == []


def test_after_a_start_of_what_hears_the_building_no_tray_gets_power_until_it_has_spoken(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path)
    rig.tray("t0").power = "Off"
    file = tmp_path / "building.json"
    kind = "RackLeakDetect"
    states = [{"value": 0, "text": "NoLeak"}, {"value": 1, "text": "Leak"}]
    about = {"objectType": "Rack", "pointType": kind, "rackLocationId": "r01", "stateText": states}

    def speak(building: Building) -> None:
        now = time.time()
        said = {"value": 0, "timestamp": int(now * 1000), "quality": 1}
        building.take(f"BMS/v1/PUB/Metadata/Rack/{kind}/a", json.dumps(about).encode(), now)
        building.take(f"BMS/v1/PUB/Value/Rack/{kind}/a", json.dumps(said).encode(), now)

    def ask(building: Building) -> str:
        write_file(file, building, time.time())
        told = asyncio.run(ask_for_power(rig, "t0", file))
        return " ".join(one.detail for one in told)

    heard = Building()
    speak(heard)
    assert ask(heard) == ""
    rig.tray("t0").power = "Off"
    powered = len(rig.rack.find("powered"))
    restarted = Building()  # QoS 0 and nothing retained: it knows nothing for up to 100 s
    assert "sensor is unknown" in ask(restarted)
    assert len(rig.rack.find("powered")) == powered
    speak(restarted)
    assert ask(restarted) == ""


def test_a_tray_that_leaks_while_the_rack_is_dark_stays_off(tmp_path: Path) -> None:
    rig = make(tmp_path)

    def drop(event: Event) -> None:
        if event.what == "fed":
            leak(rig)

    rig.rack.watch = drop
    ended = reboot(rig)
    assert "t1: wet" in ended.why
    assert rig.rack.find("powered") == []
    assert rig.violations() == []


class Killed(BaseException):
    """The process died here."""


@pytest.mark.parametrize("seed", [1, 2])
def test_deaths_during_a_cold_reboot_lose_nothing(tmp_path: Path, seed: int) -> None:
    rig = make(tmp_path)
    seen = deaths = 0

    def die(method: str) -> None:
        nonlocal seen, deaths
        if method != "GET":
            seen += 1
            if (seen * 7 + seed) % 3 == 0 and deaths < 12:
                deaths += 1
                raise Killed

    rig.wires.before = lambda _, call: die(call.method)
    rig.wires.after = lambda _, call: die(call.method)
    while True:
        try:
            ended = reboot(rig)
        except Killed:
            rig.wires.at_once.clear()
            continue
        break
    assert ended.do is Do.DONE, ended
    assert deaths >= 5
    assert [e.detail for e in rig.rack.find("fed")] == ["discharged"]
    assert rig.violations() == []


@pytest.mark.parametrize("lost", ["power", "policy"])
def test_a_tray_that_was_not_read_is_looked_at_for_a_quarter_of_an_hour(lost: str) -> None:
    """Behind a host that is off: one answer that is lost leaves it no such end."""
    both = {"power": {"t0": "Off", "t1": "On"}, "policy": {"t0": "AlwaysOff", "t1": "LastState"}}
    whole = RackView(("t0", "t1"), ("p0",), **{**both, "power": {**both["power"], "p0": "On"}})
    seen = {name: one for name, one in getattr(whole, lost).items() if name != "t1"}
    half = replace(whole, **{lost: seen})
    lines = [Line("k", BEGAN, "host-off:t0", 0.0)]
    first = decide_reboot(half, ActLog(lines), 10.0)
    assert (first.do, first.what) == (Do.NOTE, "mute:t1")
    lines.append(Line("k", NOTED, first.what, 10.0, first.why))
    assert decide_reboot(half, ActLog(lines), 900.0).do is Do.WAIT
    late = decide_reboot(half, ActLog(lines), 911.0)
    assert (late.do, late.why) == (
        Do.FAIL,
        "t1 was not read: it could come back on by itself",
    )
    again = decide_reboot(whole, ActLog(lines), 900.0)
    assert (again.do, again.what) == (Do.NOTE, "told:t1")
    lines.append(Line("k", NOTED, again.what, 900.0, ""))
    assert decide_reboot(whole, ActLog(lines), 900.0).what == "policy-off:t1"
    assert decide_reboot(half, ActLog(lines), 2_000.0).what == "mute:t1"  # a new time begins
