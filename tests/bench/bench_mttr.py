"""From a fault of a serving node to a certified spare in its place: our own time, and the devices'.

    make bench NAME=mttr                       (ARGS="--nodes 4096 --events 50" for a quick one)

Event to decision: 65,536 rows in a SQLite file, two spares in each unit of 32, and the loops of a
daemon running beside (rounds of the watch, ticks of scheduler and repairs). A BMC's event with a
fatal GPU error is handed to the watch as the listener does; the decision is on disk when the case,
the notices (the schedulers' hooks cordon by them) and the spare's allocation are, and its release
is submitted. One by one, then a burst. Time is of the wall, from the event's text on.

Release: as many spares as the burst, each in another unit, through the release sequence onto
simulated leaves (`bench_release.py`) in virtual time, so that wall and CPU are apart: CPU is ours
and the simulated leaves', virtual seconds are the devices'. One core does one at a time: the last
one's own time is the burst's decision and the program's CPU of all journeys.

Whole: four faults at once on a whole simulated site with the whole daemon in virtual time: readings
of all BMCs, gate, moves, watching after the move. The simulated site's CPU is counted apart, as it
stands for the devices (`cpu_sides.py`). The last line is JSON. `--profile` prints where the event
loop stood still, by function.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import bench_release
import this_machine
from bench_api import node as fleet_node
from bench_watch import Blind
from cpu_sides import CpuSides
from loop_probe import LoopProbe
from replacing import replace_nodes
from sqlalchemy import Connection, insert
from virtual_time import run

from provisioner.adapters.redfish.eventing.events import read_document
from provisioner.control.context import Context
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repairs import Repairs
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.data import Data, open_data
from provisioner.execution.actions.reach import Reach
from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.runtime.event_loop import exempt_heap, new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.rows import node_rows
from provisioner.store.schema import schema

NODES, EVENTS, BURST = 65_536, 300, 200
UNIT, SPARES = 32, 2
DECIDED_MS, OWN_S = 100.0, 90.0  # what is demanded
WHOLE = 4  # faults at once on the whole simulated site, each with a spare
SETTLE_S = 120.0  # every fault has its decision within this, or the benchmark fails
PAUSE_S = 0.1  # between two events, in the mean
XID = {
    "@odata.type": "#Event.v1_7_0.Event",
    "Events": [
        {
            "MessageId": "ResourceEvent.1.0.ResourceErrorsDetected",
            "Message": "The resource property GPU_SXM_5 Driver Event Message has detected errors "
            "of type 'XID 79 GPU has fallen off the bus'.",
            "MessageArgs": ["GPU_SXM_5 Driver Event Message", "XID 79 GPU has fallen off the bus"],
            "MessageSeverity": "Critical",
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/GPU_SXM_5"},
        }
    ],
}


def place_node(number: int, now: float) -> Node:
    """A host of the fleet: the last ones of each unit are spares."""
    spare = number % UNIT >= UNIT - SPARES
    changes = {
        "state": State.CERTIFIED if spare else State.RELEASED,
        "placement": Placement.MAINTENANCE if spare else Placement.CUSTOMER,
        "entered_at": now,
        "location": Location(scalable_unit=number // UNIT, rack="r1", index=number % UNIT),
    }
    return fleet_node(number).model_copy(update=changes | ({"tenant": ""} if spare else {}))


def fill_rows(connection: Connection, numbers: range, now: float) -> None:
    """One transaction of the fleet's rows."""
    made = [place_node(number, now) for number in numbers]
    rows = [
        {"id": n.id, **node_rows._columns(n), "changed": i}
        for n, i in zip(made, numbers, strict=True)
    ]
    connection.execute(insert(schema.nodes), rows)


class Deciding:
    """The parts of a daemon that decide on faults, with their loops."""

    def __init__(self, data: Data) -> None:
        self.store = data.store
        self.decided: dict[str, float] = {}  # spare -> when its release was submitted
        self.more = asyncio.Condition()
        settings = Settings(spares_per_unit=SPARES, watch_node_s=1800.0, watch_s=1800.0)
        context = Context(data.store, WallClock(), settings)
        reach = Reach(None, None, data.vault)  # type: ignore[arg-type]  # nobody is asked
        parts = WatchParts(data.store.alerts, lambda: "s")
        case_service = CaseService(context, data.store.cases, data.store.alerts)
        self.repairs = Repairs(context, case_service, data.store.alerts, self.submit)
        called = self.repairs.calls.call
        self.watcher = Blind(context, parts, reach, self.submit, on_raised=called)
        self.scheduler = Scheduler(context, self.submit, self.watcher.keeper.list_held_nodes)
        self.loops: list[asyncio.Task[None]] = []

    async def submit(self, operation: str) -> None:
        at = time.perf_counter()
        opened = await self.store.operations.get(operation)
        if opened is None or opened.want != State.CERTIFIED.value:
            return  # a faulty node that is taken back
        self.decided.setdefault(opened.node, at)
        async with self.more:
            self.more.notify_all()

    async def all_decided(self, count: int) -> None:
        """Wait until so many releases were submitted."""
        async with self.more:
            await self.more.wait_for(lambda: len(self.decided) >= count)

    async def begin(self) -> None:
        await self.watcher.run_round()
        await self.scheduler.tick()
        await self.repairs.tick()
        exempt_heap()  # as a daemon does a minute after its start
        self.loops = [
            asyncio.create_task(loop())
            for loop in (
                self.repairs.answer_calls,
                self.repairs.run,
                self.scheduler.run,
                self.watcher.run,
            )
        ]

    async def end(self) -> None:
        for loop in self.loops:
            loop.cancel()
        await asyncio.gather(*self.loops, return_exceptions=True)

    async def hear(self, node: str) -> None:
        """An event, as the listener hands it over."""
        await self.watcher.receive(node, "HGX", read_document(json.loads(json.dumps(XID))))

    async def hear_each(self, names: list[str], rng: random.Random) -> list[float]:
        """Events one after the other; the milliseconds of each until its decision."""
        heard: dict[str, float] = {}
        for name in names:
            heard[name] = time.perf_counter()
            await self.hear(name)
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
        async with asyncio.timeout(SETTLE_S):
            await self.all_decided(len(names))
        return await self.list_times(heard)

    async def hear_at_once(self, names: list[str]) -> list[float]:
        """Events at the same time; the milliseconds of each until its decision."""
        before = len(self.decided)
        heard = dict.fromkeys(names, time.perf_counter())
        await asyncio.gather(*(self.hear(name) for name in names))
        async with asyncio.timeout(SETTLE_S):
            await self.all_decided(before + len(names))
        return await self.list_times(heard)

    async def list_times(self, heard: dict[str, float]) -> list[float]:
        """Milliseconds from each event to its decision; every one has one."""
        spares = {c.node: c.stand_in for c in await self.store.cases.list_open() if c.stand_in}
        lacking = [name for name in heard if name not in spares]
        assert not lacking, lacking
        return [1000 * (self.decided[spares[n]] - at) for n, at in heard.items()]


async def decide_faults(
    folder: Path, nodes: int, events: int, burst: int, *, profile: bool = False
) -> dict[str, float]:
    """Event to decision, one by one and in a burst; `profile`: and where the loop stood still."""
    rng = random.Random("faults")
    async with open_data(folder / "data", time.time()) as data:
        for begin in range(0, nodes, 1024):
            numbers = range(begin, min(begin + 1024, nodes))
            await data.store.write(partial(fill_rows, numbers=numbers, now=time.time()))
        deciding = Deciding(data)
        await deciding.begin()
        units = rng.sample(range(nodes // UNIT), min(events + burst, nodes // UNIT))
        names = [f"n{u * UNIT + rng.randrange(UNIT - SPARES):05d}" for u in units]
        single, storm = names[: len(names) - burst], names[len(names) - burst :]
        lines: list[str] = []
        async with probe_loop("one by one", lines, profile) as held:
            cpu = time.process_time()
            took = await deciding.hear_each(single, rng)
            cpu = time.process_time() - cpu
        async with probe_loop("at once", lines, profile):
            stormed = await deciding.hear_at_once(storm)
        await deciding.end()
    for line in lines:
        say(line)
    return {
        "events": len(took),
        "decision_p50_ms": round(statistics.median(took), 1),
        "decision_p99_ms": round(find_p99(took), 1),
        "decision_max_ms": round(max(took), 1),
        "decision_cpu_ms": round(1000 * cpu / len(took), 1),
        "burst": len(stormed),
        "burst_p50_s": round(statistics.median(stormed) / 1000, 2),
        "burst_p99_s": round(find_p99(stormed) / 1000, 2),
        **held,
    }


@asynccontextmanager
async def probe_loop(
    phase: str, lines: list[str], profile: bool
) -> AsyncIterator[dict[str, float]]:
    """Have the loop measured, if asked for; its figures are there at the end."""
    figures: dict[str, float] = {}
    if not profile:
        yield figures
        return
    async with LoopProbe() as probe:
        yield figures
    figures |= probe.compute_figures()
    lines += [f"-- the event loop, {phase}: {figures}", *probe.list_lines()]


def find_p99(times: list[float]) -> float:
    """The smallest value that 99 of 100 do not exceed."""
    return sorted(times)[-(-99 * len(times) // 100) - 1]


async def release_spares(count: int) -> dict[str, float]:
    """Releases of spares in as many units, all at once."""
    fleet = bench_release.Fleet(count * UNIT, every=UNIT)
    wrong, _ = await bench_release.all_at_once(fleet, "fence")
    assert not wrong, wrong[0]
    took: list[float] = []

    async def release(name: str) -> None:
        began = fleet.clock.now()
        node = Node(id=name, kind=NodeKind.HOST, ports=fleet.hosts[name], vrf="RED")
        told = await fleet.releases.release(node, "RED")
        assert not told.blockers, told.blockers
        took.append(fleet.clock.now() - began)

    cpu = time.process_time()
    await asyncio.gather(*(release(name) for name in fleet.hosts))
    cpu = time.process_time() - cpu
    await fleet.tenancy.close()
    return {
        "released": len(took),
        "release_cpu_ms": round(1000 * cpu / len(took), 1),
        "release_cpu_all_s": round(cpu, 2),
        "leaves_p50_s": round(statistics.median(took), 1),
        "leaves_p99_s": round(find_p99(took), 1),
    }


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--burst", type=int, default=BURST)
    parser.add_argument(
        "--profile", action="store_true", help="print where the event loop stood still"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        decided = runner.run(
            decide_faults(
                Path(folder),
                options.nodes,
                options.events,
                options.burst,
                profile=options.profile,
            )
        )
    say(
        f"event to decision at {options.nodes} nodes: P50 {decided['decision_p50_ms']} ms, P99 "
        f"{decided['decision_p99_ms']} ms (demanded {DECIDED_MS:.0f}); {decided['burst']} at once: "
        f"P50 {decided['burst_p50_s']} s, P99 {decided['burst_p99_s']} s"
    )
    released = run(release_spares(options.burst))
    say(
        f"release of {released['released']} spares: {released['release_cpu_ms']} ms of CPU each "
        f"(simulated leaves included); leaves' own time P99 {released['leaves_p99_s']} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        sides = CpuSides()
        whole = replace_nodes(Path(folder), nodes=2 * WHOLE, faults=WHOLE, measure=sides)
    assert not whole.wrong, whole.wrong
    whole_cpu_s = whole.cpu_s / len(whole.served_s)
    program_cpu_s = sides.compute_program_share() * whole_cpu_s
    own_s = decided["burst_p99_s"] + options.burst * program_cpu_s
    say(
        f"whole journey: {max(whole.served_s):.0f} s, almost all of it devices' and settings' "
        f"waits; {whole_cpu_s:.2f} s of CPU each, of which {program_cpu_s:.2f} s are the program's "
        f"and the rest the simulated site's; own control time of the last of {options.burst} on "
        f"one core: {own_s:.1f} s (demanded {OWN_S:.0f})"
    )
    figures: dict[str, Any] = {"nodes": options.nodes, **decided, **released}
    figures |= {
        "device_s": round(max(whole.served_s), 1),
        "whole_cpu_s": round(whole_cpu_s, 3),
        "program_cpu_s": round(program_cpu_s, 3),
        "own_control_p99_s": round(own_s, 1),
        **this_machine.told(),
    }
    say(json.dumps(figures))


if __name__ == "__main__":
    main()
