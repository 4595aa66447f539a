"""An AC cycle by outlets: power really goes away, and a PDU that misleads is found out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from power_bench import NEW, NODE, OTHER, STAGED, Bench, build, play

from provisioner.model.alert import Alert
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.location import Outlet
from provisioner.model.node import Node, NodeKind, Placement
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch import alerts as rules
from provisioner.planning.watch.leaks import list_signals


def cycle(trouble: str = "", **more: Any) -> tuple[Bench, tuple[Blocker, ...]]:
    """Cycle a host of which one PDU may be troubled; the bench and the problems."""

    async def story() -> tuple[Bench, tuple[Blocker, ...]]:
        bench = await build(**more)
        if trouble:
            bench.units["b"].troubles.add(trouble)
        return bench, await bench.cycle()

    return play(story())


def test_a_host_whose_bmc_has_no_ac_cycle_loses_all_feeds_and_runs_what_was_staged() -> None:
    async def story() -> tuple[Any, ...]:
        bench = await build()
        problems = await bench.cycle()
        machine = bench.site.machines[NODE]
        ledger = await bench.entries()
        return problems, bench, machine, ledger

    problems, bench, machine, ledger = play(story())

    assert problems == ()
    assert bench.log == ["off", "on"]
    assert machine.firmware[STAGED].running == NEW
    assert machine.host.power == "On"
    assert [e.status for e in ledger] == [ActionStatus.CONFIRMED]
    assert [o["pdu"] for o in ledger[0].before["seen"]["outlets"]] == ["a", "b"]
    # both feeds go at once, and stay off for the time of the setting
    off = {u.name: u.log[0][0] for u in bench.units.values()}
    on = {u.name: u.log[1][0] for u in bench.units.values()}
    assert abs(off["a"] - off["b"]) < 5
    assert on["a"] - off["a"] >= bench.effects.settings.outlets_off_s
    assert bench.site.machines[OTHER].host.power == "On"


def test_a_bmc_with_an_ac_cycle_of_its_own_needs_no_outlets() -> None:
    bench, problems = cycle(vendor="supermicro")

    assert problems == ()
    assert bench.log == ["cycle"]
    assert [u.log for u in bench.units.values()] == [[], []]


def test_without_outlets_a_person_is_asked_to_pull_the_cords() -> None:
    bench, problems = cycle(outlets=())

    assert [p.reason for p in problems] == [Reason.NOT_OFFERED]
    assert "hardware list" in problems[0].unblock
    assert bench.log == []


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("lies", "still answers"),  # says off while the outlet is on
        ("crossed", "still answers"),  # switches the next outlet
        ("sticks", "reports on"),  # answers success and does nothing
    ],
)
def test_a_pdu_that_misleads_is_found_out_and_everything_is_on_again(
    trouble: str, words: str
) -> None:
    bench, problems = cycle(trouble)

    assert [p.reason for p in problems] == [Reason.POWER]
    assert words in problems[0].detail
    assert bench.log == []
    assert bench.units["a"].on["A1"]
    assert bench.site.machines[NODE].host.power == "On"


def test_a_feed_that_is_not_on_the_list_is_found_out() -> None:
    bench, problems = cycle(outlets=("a/A1",))

    assert [p.reason for p in problems] == [Reason.POWER]
    assert "a feed is missing" in problems[0].unblock
    assert bench.units["a"].on["A1"]


def test_a_silent_pdu_stops_the_step_before_anything_is_switched() -> None:
    bench, problems = cycle("silent")

    assert [p.reason for p in problems] == [Reason.UNREACHABLE]
    assert [u.log for u in bench.units.values()] == [[], []]
    assert "power" not in [e.kind for e in bench.site.machines[NODE].log]


def test_an_outlet_that_is_off_already_is_left_to_the_person_who_switched_it() -> None:
    async def story() -> tuple[Bench, tuple[Blocker, ...]]:
        bench = await build()
        bench.units["b"].on["A1"] = False
        return bench, await bench.cycle()

    bench, problems = play(story())

    assert [p.reason for p in problems] == [Reason.POWER]
    assert "b/A1 is off" in problems[0].detail
    assert [u.log for u in bench.units.values()] == [[], []]


def test_an_outlet_that_feeds_another_node_is_never_switched() -> None:
    async def story() -> tuple[Bench, tuple[Blocker, ...]]:
        bench = await build()
        shared = (Outlet(pdu="b", outlet="A1"),)
        await bench.store.nodes.add(Node(id=OTHER, kind=NodeKind.HOST, outlets=shared))
        return bench, await bench.cycle()

    bench, problems = play(story())

    assert [p.reason for p in problems] == [Reason.NOT_OFFERED]
    assert f"feeds {OTHER} too" in problems[0].detail
    assert [u.log for u in bench.units.values()] == [[], []]


def test_an_outlet_of_a_racks_power_shelf_is_never_switched(tmp_path: Path) -> None:
    tray: dict[str, Any] = {"name": "t0", "kind": "compute-tray", "u": 2, "slot": 1}
    shelf = {"name": "p0", "kind": "power-shelf", "u": 1, "outlets": ["b/A1"]}
    units = [{**tray, "tray_index": 0}, shelf]
    plan = {"racks": [{"name": "r0", "chassis_serial": "1", "units": units}]}
    (tmp_path / "racks.yaml").write_text(json.dumps(plan))

    bench, problems = cycle(racks_folder=str(tmp_path))

    assert [p.reason for p in problems] == [Reason.NOT_OFFERED]
    assert "the outlet b/A1 feeds p0, t0, host:t0 by the racks' plan" in problems[0].detail
    assert [u.log for u in bench.units.values()] == [[], []]


def test_no_outlet_is_switched_while_the_racks_plan_is_not_read(tmp_path: Path) -> None:
    bench, problems = cycle(racks_folder=str(tmp_path))

    assert [p.reason for p in problems] == [Reason.NOT_OFFERED]
    assert "what its outlets feed beside it is unknown" in problems[0].detail
    assert [u.log for u in bench.units.values()] == [[], []]


def test_a_node_that_serves_a_tenant_keeps_its_power() -> None:
    async def story() -> tuple[Bench, tuple[Blocker, ...]]:
        bench = await build()
        serving = {"placement": Placement.CUSTOMER, "tenant": "red"}
        await bench.store.nodes.save(bench.node.model_copy(update=serving))
        return bench, await bench.cycle()

    bench, problems = play(story())

    assert [p.reason for p in problems] == [Reason.NOT_CONFIRMED]
    assert [u.log for u in bench.units.values()] == [[], []]


def test_a_pdu_that_the_settings_do_not_name_is_a_refusal() -> None:
    bench, problems = cycle(outlets=("a/A1", "c/A1"))

    assert [p.reason for p in problems] == [Reason.NOT_OFFERED]
    assert problems[0].detail.startswith("its outlets name c,")
    assert bench.log == []


def test_a_driver_that_dies_while_the_power_is_off_is_followed_by_one_that_restores_it() -> None:
    async def story() -> tuple[Any, ...]:
        bench = await build()
        first = asyncio.ensure_future(bench.cycle())
        while bench.log != ["off"]:
            await bench.effects.clock.sleep(1.0)
        await bench.effects.clock.sleep(60.0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        fed = bench.units["a"].on["A1"]
        (entry,) = await bench.entries()
        problem = await bench.resume(entry)
        return fed, problem, bench, await bench.entries()

    fed, problem, bench, ledger = play(story())

    assert not fed
    assert problem is None
    assert bench.log == ["off", "on", "off", "on"]  # the proof is done anew
    assert bench.site.machines[NODE].firmware[STAGED].running == NEW
    assert [e.status for e in ledger] == [ActionStatus.ABSENT, ActionStatus.CONFIRMED]


def leak(now: float) -> Alert:
    """The alert of a leak, as a look of another daemon or a person's report raises it."""
    wet = LeakDetector(
        slot="1/plate", moisture=Moisture.WET, detail="DetectorState Critical", source="rack"
    )
    (signal,) = list_signals(NODE, [wet], "rack manifold", now)
    alert = rules.apply_signal(None, signal)
    assert alert is not None
    return alert


async def wait_for_darkness(bench: Bench) -> None:
    while bench.log != ["off"]:
        await bench.effects.clock.sleep(1.0)


def test_a_leak_that_is_recorded_while_the_outlets_are_off_keeps_them_off() -> None:
    async def story() -> tuple[Bench, tuple[Blocker, ...]]:
        bench = await build()
        cycling = asyncio.ensure_future(bench.cycle())
        await wait_for_darkness(bench)
        await bench.store.alerts.put([leak(bench.effects.clock.now())], [], 0.0)
        return bench, await cycling

    bench, problems = play(story())

    assert [p.reason for p in problems] == [Reason.LEAK]
    assert "a/A1, b/A1 stay off: a leak at 1/plate" in problems[0].detail
    assert "alert clear" in problems[0].unblock
    assert bench.log == ["off"]
    assert not any(unit.on["A1"] for unit in bench.units.values())


def test_a_successor_restores_the_power_of_a_wet_host_once_a_person_cleared_the_leak() -> None:
    async def story() -> tuple[Any, ...]:
        bench = await build()
        first = asyncio.ensure_future(bench.cycle())
        await wait_for_darkness(bench)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        alert = leak(bench.effects.clock.now())
        await bench.store.alerts.put([alert], [], 0.0)
        (entry,) = await bench.entries()
        refused = await bench.resume(entry)
        wet = (list(bench.log), (await bench.entries())[0].status)
        cleared = rules.clear_alert(alert, bench.effects.clock.now(), "ada: dried")
        assert cleared is not None
        await bench.store.alerts.put([cleared], [], 0.0)
        return refused, wet, await bench.resume(entry), bench

    refused, wet, problem, bench = play(story())

    assert refused.reason is Reason.LEAK
    assert wet == (["off"], ActionStatus.INTENDED)
    assert problem is None
    assert bench.log == ["off", "on", "off", "on"]
    assert bench.site.machines[NODE].host.power == "On"
