"""Each domain that is out has rounds of its own, and a round asks no more than it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rack_rig import TARGETS, finish, make
from rack_wave import Wave

from provisioner.integrations.racks import water_file
from provisioner.integrations.racks.campaign import Act, ActKind
from provisioner.integrations.racks.duty.approval import RackCampaignState
from provisioner.integrations.racks.rack_rounds import NEAR, SOON_S, Pace
from provisioner.integrations.racks.update_log import BEGAN, Line
from provisioner.integrations.racks.water import KEPT_S, UnitWater, WaterState, fold_look, is_news
from provisioner.integrations.racks.water_file import open_water
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.ports import Call, Reply

SMALL = {"trays": 1, "switches": 1, "shelves": 1}
POLL_S = 30.0


@pytest.mark.parametrize("mute", [False, True])
def test_a_domain_whose_bmcs_are_mute_keeps_no_other_one_waiting(
    tmp_path: Path, mute: bool
) -> None:
    """Both are out at one time; a request to the mute rack takes ten minutes of virtual time."""
    wave = Wave(tmp_path, racks=2, at_once=2, shape=SMALL)
    slow, other = wave.rigs
    request = wave.request

    async def answer(address: Any, call: Call) -> Reply:
        if mute and wave.by_host[address.url.rstrip("/")] is slow and slow.rack.find("push"):
            await asyncio.sleep(600.0)
        return await request(address, call)

    wave.request = answer  # type: ignore[method-assign]
    wave.approve()
    state = wave.live(0)
    assert state.state is (RackCampaignState.DONE if not mute else state.state)
    begin, end = wave.span(other)
    assert end - begin <= 1.05 * wave.bound()
    if mute:
        assert wave.span(slow)[1] > 2 * end


def test_while_a_push_goes_on_its_task_and_the_water_alone_are_asked(tmp_path: Path) -> None:
    rig = make(tmp_path, {"compute-tray": {"host-bundle": "25.08-9"}})
    asked: list[tuple[float, str]] = []
    rig.wires.before = lambda _, call: asked.append((rig.rack.now, call.path))
    finish(rig)
    pushed = rig.rack.find("push")[0].at
    ended = pushed + rig.rack.times.push
    meanwhile = {path for at, path in asked if pushed + 1 < at < ended}
    assert any("/TaskService/Tasks/" in path for path in meanwhile)
    assert any("LeakDetect" in path for path in meanwhile)
    assert not any("FirmwareInventory" in path for path in meanwhile)
    assert any("FirmwareInventory" in path for at, path in asked if at >= ended)


def act(component: str = "pmc") -> Act:
    kind = ActKind.PMC_PRIMARY
    return Act(f"p0/{component}", kind, "p0", ("r0",), (), 240.0, component=component)


def begun(at: float, what: str = "push") -> Line:
    return Line("p0/pmc", BEGAN, what, at)


def test_how_long_a_write_took_tells_when_to_look_at_the_next_one() -> None:
    pace = Pace()
    first = begun(100.0)
    assert pace.find_wait(act(), first, 100.0, POLL_S) == POLL_S  # nobody knows yet
    for at in (130.0, 160.0, 190.0):
        pace.learn(act(), first, first, at)
    pace.learn(act(), first, begun(220.0, "select:Primary"), 220.0)  # it took 90 to 120 s
    second = begun(1_000.0)
    assert pace.find_wait(act(), second, 1_000.0, POLL_S) == POLL_S
    near_s = 90.0 * NEAR
    assert pace.find_wait(act(), second, 1_080.0, POLL_S) == 10.0 + near_s
    assert pace.find_wait(act(), second, 1_095.0, POLL_S) == near_s
    assert pace.find_wait(act(), second, 1_200.0, POLL_S) == POLL_S  # this one takes longer
    assert pace.find_wait(act("psu"), second, 1_095.0, POLL_S) == POLL_S
    assert pace.find_wait(act(), None, 1_095.0, POLL_S) == POLL_S
    just_before = 1_000.0 + 90.0 + near_s - 1e-9
    assert pace.find_wait(act(), second, just_before, POLL_S) == SOON_S  # no busy loop
    assert pace.find_wait(act(), second, 1_095.0, 1.0) == 1.0


def test_what_is_known_of_a_write_narrows_and_gives_way_to_one_that_was_quicker() -> None:
    pace = Pace()

    def take(begin: float, looks: list[float], end: float) -> float:
        last = begun(begin)
        for at in looks:
            pace.learn(act(), last, last, begin + at)
        pace.learn(act(), last, begun(begin + end, "end"), begin + end)
        probe = begun(begin)
        return pace.find_wait(act(), probe, begin, 1e9) / (1 + NEAR)

    assert take(0.0, [90.0], 120.0) == pytest.approx(90.0)
    assert take(1_000.0, [93.0, 96.0], 99.0) == pytest.approx(96.0)
    assert take(2_000.0, [60.0], 99.0) == pytest.approx(96.0)  # the narrower one stays
    assert take(3_000.0, [70.0], 80.0) == pytest.approx(70.0)  # a quicker unit


def dry(slot: str = "LD0") -> LeakDetector:
    return LeakDetector(slot=slot, moisture=Moisture.DRY, detail="OK", source="x")


def test_a_look_that_shows_nothing_new_is_kept_from_time_to_time_alone() -> None:
    kept = UnitWater()
    looks = []
    for at in (0.0, 10.0, 20.0, 30.0):
        after = fold_look(kept, [dry()], at)
        looks.append(is_news(kept, after))
        kept = after if looks[-1] else kept
    assert looks == [True, True, False, False]  # two whole dry looks are what a person needs
    assert is_news(kept, fold_look(kept, [dry()], kept.since + KEPT_S))
    assert is_news(kept, fold_look(kept, None, 40.0))
    assert is_news(kept, fold_look(kept, [dry(), dry("LD1")], 40.0))
    assert is_news(kept, fold_look(kept, [dry()], kept.since - 1.0))  # a clock that went back
    wet = LeakDetector(slot="LD0", moisture=Moisture.WET, detail="Critical", source="x")
    latched = fold_look(kept, [wet], 40.0)
    assert is_news(kept, latched)
    assert is_news(latched, fold_look(latched, [dry()], 50.0))


def test_looks_of_dry_racks_write_the_file_twice_and_one_that_is_wet_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(tmp_path, {"compute-tray": TARGETS["compute-tray"]}, trays=2)
    original = water_file.replace_file
    written: list[str] = []

    def replace(path: Path, content: str, **more: Any) -> None:
        written.append(content)
        original(path, content, **more)

    monkeypatch.setattr(water_file, "replace_file", replace)

    async def scenario() -> None:
        update = rig.update()
        rack, _ = update.find("t0")
        for _ in range(4):
            async with update.held.hold(update.water, update.pause) as store:
                await update.open_rack(rack, store).look(update.read_water)
        assert len(written) == 2
        tray = rig.tray("t1")
        tray.detectors[next(iter(tray.detectors))] = "Critical"
        tray.shown.change()
        async with update.held.hold(update.water, update.pause) as store:
            await update.open_rack(rack, store).look(update.read_water)

    asyncio.run(scenario())
    assert len(written) == 3
    with open_water(tmp_path / "water.json") as store:
        assert store.find("t1").state is WaterState.WET
        assert store.find("t0").dry_looks == 2
