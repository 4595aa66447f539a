"""What a round over racks does where one of its reads or acts fails."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rack_rig import TARGETS, make
from test_domains import Two
from typer.testing import CliRunner

from provisioner.integrations.racks import update_commands, water_file
from provisioner.integrations.racks.membership import UnitReading
from provisioner.integrations.racks.plan import PlannedUnit
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import NOTED, Line, open_log
from provisioner.integrations.racks.update_world import keep_dry, wait_all
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_file import open_water, wait_for_water
from provisioner.model.inventory import Moisture
from provisioner.ports import Call, Unreachable

TRAY = {"compute-tray": TARGETS["compute-tray"]}


@pytest.mark.parametrize("silent", [False, True])
def test_detectors_are_looked_for_once_and_again_where_another_firmware_answers(
    tmp_path: Path, silent: bool
) -> None:
    """A look of a round asks for the detectors and the power alone: each round has one of all."""
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    asked: list[str] = []
    rig.wires.before = lambda _, call: asked.append(call.path)
    build = tray.shown._build

    def build_elsewhere() -> Any:
        named = json.dumps(build()).replace("Chassis/Chassis_0/T", "Chassis/BMC_0/T")
        tree = json.loads(named)
        moved = tree["/redfish/v1/Chassis/Chassis_0"].pop("ThermalSubsystem")
        tree["/redfish/v1/Chassis/BMC_0"]["ThermalSubsystem"] = moved
        return tree

    async def scenario() -> None:
        update = rig.update()
        _, unit = update.find("t0")
        first = await update.read_water(unit)
        assert len(first.leaks) == len(tray.detectors)
        asked.clear()
        assert await update.read_water(unit) == first
        assert len(asked) == 1 + len(tray.detectors) + 1
        tray.shown._build = build_elsewhere
        tray.detectors[next(iter(tray.detectors))] = "Critical"
        tray.shown.change()
        if silent:
            tray.bmc_up = rig.rack.now + 60
        lost = await update.read_water(unit)
        assert lost.unread or {one.moisture for one in lost.leaks} == {Moisture.UNREADABLE}
        rig.rack.advance(120)
        found = await update.read_water(unit)
        assert [one.slot for one in found.leaks if one.moisture is Moisture.WET]

    asyncio.run(scenario())


def test_a_leak_counts_and_is_forced_off_where_the_power_state_cannot_be_read(
    tmp_path: Path,
) -> None:
    rig = make(tmp_path, TRAY)
    tray = rig.tray("t0")
    tray.detectors[next(iter(tray.detectors))] = "Critical"
    silent = True

    def answer(call: Call) -> None:
        if silent and call.method == "GET" and "/Systems" in call.path:
            raise Unreachable("no answer", maybe_executed=True)

    rig.wires.before = lambda _, call: answer(call)
    update = rig.update()

    async def scenario() -> None:
        nonlocal silent
        rack, unit = update.find("t0")
        reading = await update.read_water(unit)
        assert (reading.power, reading.unread) == ("Unknown", "")
        async with wait_for_water(update.water, update.pause) as store:
            racked = update.open_rack(rack, store)
            known = await racked.look(update.read_water)
            assert known["t0"].latched
            silent = False
            await keep_dry(update, racked)
        assert tray.power == "Off"

    asyncio.run(scenario())


def test_a_failed_act_leaves_no_other_one_running_behind_a_closed_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    line = Line("a", NOTED, "late", 1.0)

    async def fail() -> None:
        raise ValueError("first")

    async def note() -> None:
        await asyncio.sleep(0.01)
        log.write(line)
        await log.sync()
        raise KeyError("second")

    async def scenario() -> None:
        await wait_all([fail(), note()])

    with pytest.raises(ValueError, match="first"), open_log(file) as log:
        asyncio.run(scenario())
    assert log.of("a").noted("late")
    written = file.read_bytes()
    log.write(line)
    with (
        (tmp_path / "other").open("wb"),
        pytest.raises(OSError, match="descriptor"),
    ):  # it has the same number
        asyncio.run(log.sync())
    assert (file.read_bytes(), (tmp_path / "other").read_bytes()) == (written, b"")


def test_a_slow_disk_holds_up_what_is_sent_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on while a line of the journal is on its way to the disk; no write does."""
    rig = make(tmp_path, TRAY)
    original = os.fsync
    begun = asyncio.Event()
    go_on = threading.Event()
    seen: list[str] = []

    def watch(call: Call) -> None:
        if call.method != "GET":
            seen.append("sent")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def sync(descriptor: int) -> None:
            named = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if named.endswith("/journal") and not go_on.is_set():
                loop.call_soon_threadsafe(begun.set)
                go_on.wait()
                seen.append("synced")
            original(descriptor)

        monkeypatch.setattr(os, "fsync", sync)
        running = asyncio.create_task(rig.live())
        await begun.wait()  # returns only if the loop is free
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert seen == []
        go_on.set()
        await running

    rig.wires.before = lambda _, call: watch(call)
    asyncio.run(scenario())
    assert seen[0] == "synced"
    assert "sent" in seen


def test_behind_a_line_that_was_cut_no_other_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "journal"
    original = os.write

    async def scenario() -> None:
        with open_log(file) as log:
            log.write(Line("a", NOTED, "first", 1.0))
            await log.sync()
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", lambda held, text: original(held, text[:9]))
                log.write(Line("a", NOTED, "cut", 2.0))
                with pytest.raises(OSError, match="was cut"):
                    await log.sync()
            log.write(Line("a", NOTED, "behind", 3.0))
            with pytest.raises(OSError, match="descriptor"):
                await log.sync()
        with open_log(file) as log:
            assert [log.of("a").noted(word) for word in ("first", "cut", "behind")] == [
                True,
                False,
                False,
            ]

    asyncio.run(scenario())


def test_of_two_looks_that_are_kept_at_one_time_the_later_one_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Racks are looked at side by side, and each keeps what all have found so far."""
    file = tmp_path / "water.json"
    original = water_file.replace_file
    written: list[int] = []
    first = threading.Event()

    def replace(path: Path, content: str, **more: Any) -> None:
        if not first.is_set():
            first.set()
            time.sleep(0.05)  # the second one comes meanwhile, and waits
        written.append(content.count('"wet"'))
        original(path, content, **more)

    monkeypatch.setattr(water_file, "replace_file", replace)

    async def scenario() -> None:
        with open_water(file) as store:

            async def keep(name: str) -> None:
                store.units[name] = UnitWater(state=WaterState.WET, latched=True)
                await store.keep()

            keeping = asyncio.create_task(keep("t0"))
            await asyncio.to_thread(first.wait)
            await asyncio.gather(keeping, keep("t1"), keep("t2"))

    asyncio.run(scenario())
    assert written[0] == 1
    assert written[-1] == 3
    with open_water(file) as store:
        assert sorted(store.units) == ["t0", "t1", "t2"]


@pytest.mark.parametrize("fails", ["t0", "t1"])
def test_a_bug_at_one_unit_hides_no_leak_of_another(tmp_path: Path, fails: str) -> None:
    rig = make(tmp_path, TRAY, trays=2)
    wet = "t1" if fails == "t0" else "t0"
    rig.tray(wet).detectors = dict.fromkeys(rig.tray(wet).detectors, "Critical")
    update = rig.update()
    original = update.read_water

    async def read(unit: PlannedUnit) -> UnitReading:
        if unit.name == fails:
            raise AssertionError("ours")
        return await original(unit)

    update.read_water = read  # type: ignore[method-assign]

    async def scenario() -> None:
        rack, _ = update.find("t0")
        async with wait_for_water(update.water, update.pause) as store:
            known = await keep_dry(update, update.open_rack(rack, store))
        assert known[fails].state is WaterState.UNKNOWN
        assert known[wet].latched

    asyncio.run(scenario())
    assert rig.tray(wet).power == "Off"


def test_a_unit_that_cannot_be_switched_off_keeps_no_other_one_on(tmp_path: Path) -> None:
    rig = make(tmp_path, TRAY, trays=2)
    for name in ("t0", "t1"):
        rig.tray(name).detectors = dict.fromkeys(rig.tray(name).detectors, "Critical")

    def answer(url: str, call: Call) -> None:
        if call.method == "POST" and url.endswith("10.0.0.1"):
            raise AssertionError("ours")

    rig.wires.before = answer
    update = rig.update()

    async def scenario() -> None:
        rack, _ = update.find("t0")
        async with wait_for_water(update.water, update.pause) as store:
            await keep_dry(update, update.open_rack(rack, store))

    asyncio.run(scenario())
    assert (rig.tray("t0").power, rig.tray("t1").power) == ("On", "Off")
    assert any("not off: t0: AssertionError" in one for one in rig.said), rig.said


@pytest.mark.parametrize(("slot", "code"), [(11, 0), (17, 1)])
def test_the_command_fails_where_another_domain_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int, code: int
) -> None:
    rig = Two(tmp_path, targets={"power-shelf": {"pmc": "3.2.4"}}, trays=2, switches=2, shelves=2)
    for unit in (rig.tray("t1"), rig.switch("s1")):
        unit.chassis = "1820002"
    rig.tray("t1").slot = slot
    (tmp_path / "racks.yaml").write_text(rig.plan().model_dump_json())
    (tmp_path / "campaign.yaml").write_text(rig.campaign().model_dump_json())
    made = rig.update()
    monkeypatch.setattr(update_commands, "build_update", lambda *_, **__: made)
    words = ["update", str(tmp_path / "racks.yaml"), str(tmp_path / "campaign.yaml"), "r01", "r02"]
    files = ["--water", str(tmp_path / "water.json"), "--journal", str(tmp_path / "journal")]
    told = CliRunner().invoke(app, [*words, *files, "--yes"])
    assert told.exit_code == code, told.output
    assert "0 left" in told.output
    assert ("held: t1: " in told.output) is bool(code)


@pytest.mark.parametrize("cut", [False, True])
def test_units_that_ask_for_power_at_one_time_share_a_look_that_began_after_they_asked(
    tmp_path: Path, cut: bool
) -> None:
    """Eighteen trays ask at one time once their copies have ended, and each look is of a rack."""
    rig = make(tmp_path, TRAY, trays=4)
    looks = 0
    begun = asyncio.Event()

    def count(url: str, call: Call) -> None:
        nonlocal looks
        if url == rig.units[0]["bmc"] and call.path.endswith("/Processors/GPU_0"):
            looks += 1
            begun.set()
            if looks == 2:
                wet = rig.tray("t3")
                wet.detectors[next(iter(wet.detectors))] = "Critical"
                wet.shown.change()

    rig.wires.before = count

    async def scenario() -> None:
        update = rig.update()
        rack, _ = update.find("t0")
        async with wait_for_water(update.water, update.pause) as store:
            racked = update.open_rack(rack, store)
            units = [unit for unit in rack.units if unit.name.startswith("t")]
            asked = [asyncio.ensure_future(racked.find_refusals_now(u, "On")) for u in units]
            if cut:
                await begun.wait()
                asked[0].cancel()
            told = await asyncio.gather(*asked, return_exceptions=True)
        assert looks == 2
        assert isinstance(told[0], asyncio.CancelledError) if cut else told[0] == ()
        for one, unit in zip(told[1:], units[1:], strict=True):
            assert isinstance(one, tuple)
            assert one[0].subject == unit.name  # wet, or below what is

    asyncio.run(scenario())
