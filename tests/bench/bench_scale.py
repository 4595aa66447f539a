"""How each cost of the daemon grows from 1,024 to 65,536 nodes, as an exponent; what breaks first.

    make bench NAME=scale                      (ARGS="1024 4096" for other sizes)

For each size two fresh processes: one fills a SQLite file with hosts of eight rails and 11 BMCs,
one of twenty converging with an active operation, the rest released; the other opens it and
measures, as CPU time of the whole process: start-up (open, all nodes, active operations), memory, a
tick of the scheduler, a round of the watch after five nodes changed, what one look of one operation
reads of other nodes, a write of a node, a page of the API's list, planning the whole fleet with 200
distinct version vectors, and one decision of a campaign over all nodes.

Exponents are fitted on logarithms: 1 is linear, 0 does not grow. Below half a millisecond a cost
counts as not growing. The last line is JSON; the exit code is 1 if a cost grows faster than 1.1 (a
tenth for noise: the machine is shared).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bench_api
import bench_campaign
import bench_planner
import this_machine
from bench_watch import Blind, SteppedClock, nobody
from loop_probe import LoopProbe
from sqlalchemy import Connection, insert

from provisioner import components
from provisioner.control.context import Context
from provisioner.control.node.scheduler import Scheduler
from provisioner.control.watch.watcher import ROUND_S, WatchParts
from provisioner.daemon.data import Data, open_data
from provisioner.execution.actions.reach import Reach
from provisioner.model.campaign import Campaign, CampaignState
from provisioner.model.node import Node, Placement, State
from provisioner.model.plan import Neighbour
from provisioner.planning.campaigns.campaign_moves import build_initial_rows
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.path.planner import PlanCache, PlanningNode, plan_fleet
from provisioner.runtime.event_loop import exempt_heap, new_event_loop
from provisioner.settings import Settings
from provisioner.store.rows import operation_rows
from provisioner.store.rows.node_rows import _columns
from provisioner.store.rows.page_rows import nodes_page
from provisioner.store.schema.schema import nodes

SIZES = (1024, 4096, 16_384, 65_536)
GROWTH_MAX = 1.1
FLAT_MS = 0.5
BUSY = 20  # one of so many is being upgraded
VECTORS = 200


def row(number: int) -> Node:
    """A host as it serves, or as it is upgraded."""
    busy = number % BUSY == 0
    return bench_api.node(number).model_copy(
        update={
            "state": State.CONVERGING if busy else State.RELEASED,
            "placement": Placement.MAINTENANCE if busy else Placement.CUSTOMER,
            "certificate": "" if busy else f"c{number}",
        }
    )


def fill(connection: Connection, numbers: range) -> None:
    rows = [row(number) for number in numbers]
    connection.execute(
        insert(nodes),
        [{"id": r.id, **_columns(r), "changed": n} for n, r in zip(numbers, rows, strict=True)],
    )
    for one in rows:
        if one.state is State.CONVERGING:
            operation_rows.open_operation(connection, one.id, "converging", 1.0)


async def filled(folder: Path, count: int) -> None:
    """The first process."""
    async with open_data(folder / "data", time.time()) as data:
        for start in range(0, count, 1024):
            await data.store.write(partial(fill, numbers=range(start, min(start + 1024, count))))


def resident_kib() -> int:
    """Memory of this process now."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


async def cpu_ms(work: Callable[[], Awaitable[object]], times: int = 1) -> float:
    """CPU milliseconds of this process for one; the median."""
    found = []
    for _ in range(times):
        began = time.process_time()
        await work()
        found.append(1000 * (time.process_time() - began))
    return statistics.median(found)


async def measured(folder: Path, count: int) -> dict[str, float]:
    """The second process."""
    before, began = resident_kib(), time.process_time()
    async with open_data(folder / "data", time.time()) as data:
        await data.store.nodes.list()
        active = await data.store.operations.list_active()
        found = {"start_up_ms": 1000 * (time.process_time() - began)}
        found |= await _control(data)
        found["memory_kib_per_node"] = (resident_kib() - before) / count
        assert len(active) == -(-count // BUSY), len(active)
        found |= await _store(data)
    found["plan_fleet_ms"] = _planned(count)
    found["campaign_decision_ms"] = _decided(count)
    found["campaign_decision_in_loop_ms"] = await _held_by_decision(count)
    return found


async def _control(data: Data) -> dict[str, float]:
    """The loops that look at everything."""
    store, clock = data.store, SteppedClock()
    settings = Settings(watch_node_s=1800.0, watch_s=1800.0)
    reach = Reach(None, None, data.vault)  # type: ignore[arg-type]  # nobody is asked
    context = Context(store, clock, settings)
    watcher = Blind(context, WatchParts(store.alerts, lambda: "s"), reach, nobody)
    scheduler = Scheduler(context, nobody, watcher.keeper.list_held_nodes)
    await watcher.run_round()
    await scheduler.tick()
    rounds, ticks = [], []
    for turn in range(5):
        for node in (await store.nodes.list())[turn : turn + 5]:
            await store.nodes.save(node.model_copy(update={"note": f"{turn}"}))
        await clock.sleep(ROUND_S)
        rounds.append(await cpu_ms(watcher.run_round))
        ticks.append(await cpu_ms(scheduler.tick))
    await watcher.close()
    return {"watch_round_ms": statistics.median(rounds), "tick_ms": statistics.median(ticks)}


async def _store(data: Data) -> dict[str, float]:
    """What one operation, and one reader of the API, asks for."""
    store = data.store
    node = (await store.nodes.list())[0]
    around = {p.switch for p in node.ports}

    async def write() -> None:
        found = await store.nodes.get(node.id)
        assert found is not None
        await store.nodes.save(found)

    page = partial(nodes_page, after="", limit=100, narrowed={})
    return {
        "neighbours_ms": await cpu_ms(lambda: store.nodes.list_named(around), 20),
        "write_ms": await cpu_ms(write, 20),
        "page_ms": await cpu_ms(lambda: store.read(page), 20),
    }


def _planned(count: int) -> float:
    kinds = bench_planner.build_vectors(VECTORS)
    leaf = (Neighbour(node="leaf", versions={"switch.os": ("5.12.1.100",)}),)
    fleet = (
        PlanningNode(
            bench_planner.build_node(f"n{i}", kinds[i % VECTORS]), "r", "p", neighbours=leaf
        )
        for i in range(count)
    )
    cache = PlanCache(bench_planner.build_matrix(), components.ALL, production=True)
    took = 0.0
    while batch := [node for _, node in zip(range(1024), fleet, strict=False)]:
        began = time.process_time()  # inventories are made outside of what is measured
        plan_fleet(batch, cache)
        took += time.process_time() - began
    return 1000 * took


def _decision(count: int) -> Callable[[], object]:
    """Return what decides once over all nodes."""
    facts = bench_campaign.fleet(count, random.Random(count))
    campaign = Campaign(
        id="bench",
        release="new",
        select="all",
        policy=bench_campaign.POLICY,
        state=CampaignState.STARTED,
    )
    rows = build_initial_rows(campaign, facts)
    return partial(decide, campaign, facts, rows, (), 0.0)


def _decided(count: int) -> float:
    once = _decision(count)
    once()
    took = []
    for _ in range(3):
        began = time.process_time()
        once()
        took.append(1000 * (time.process_time() - began))
    return statistics.median(took)


async def _held_by_decision(count: int) -> float:
    """The longest that the event loop stands still, in its own CPU time, as the daemon decides."""
    once = _decision(count)
    exempt_heap()  # as of a daemon that has read its fleet
    async with LoopProbe() as probe:
        for _ in range(3):
            await asyncio.to_thread(once)
    return max(probe.beats, default=0.0)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope on logarithms: of cost over size."""
    x = [math.log(s) for s in sizes]
    y = [math.log(max(c, FLAT_MS)) for c in costs]
    middle = statistics.mean(x), statistics.mean(y)
    over = sum((a - middle[0]) * (b - middle[1]) for a, b in zip(x, y, strict=True))
    return over / sum((a - middle[0]) ** 2 for a in x)


def run_child(what: str, folder: str, size: int) -> str:
    """One process of one size."""
    command = [sys.executable, __file__, "--child", what, "--folder", folder, str(size)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def table(sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Every cost at every size."""
    found: dict[str, dict[int, float]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            run_child("fill", folder, size)
            told: Mapping[str, float] = json.loads(run_child("measure", folder, size))
        sys.stdout.write(f"{size:>6} nodes: {_words(told)}\n")
        sys.stdout.flush()
        for name, value in told.items():
            found.setdefault(name, {})[size] = round(value, 3)
    return found


def _words(told: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in told.items())


def child(what: str, folder: Path, size: int) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if what == "fill":
            runner.run(filled(folder, size))
        else:
            sys.stdout.write(json.dumps(runner.run(measured(folder, size))) + "\n")


def main() -> int:
    """Print every size, the exponents, and the JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("sizes", type=int, nargs="*", default=SIZES)
    ask.add_argument("--child")
    ask.add_argument("--folder", type=Path)
    asked = ask.parse_args()
    if asked.child:
        child(asked.child, asked.folder, asked.sizes[0])
        return 0
    found = table(asked.sizes)
    grows = {
        name: round(exponent(list(costs), list(costs.values())), 3)
        for name, costs in found.items()
        if name != "memory_kib_per_node"
    }
    told: dict[str, Any] = {
        **this_machine.told(),
        "costs": found,
        "exponents": grows,
        "worst_exponent": max(grows.values()),
        "reached": max(grows.values()) <= GROWTH_MAX,
    }
    for name, value in grows.items():
        sys.stdout.write(f"{name:>24}  grows as size ^ {value:.2f}\n")
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
