"""A whole campaign over up to 65,536 nodes in virtual time, at most 5 % of them out at once.

    make bench NAME=fleet-campaign             (ARGS="65536" for other sizes)

Real: a SQLite file with its lanes, the requests that make and start the campaign, the loop of
`control/campaigns/campaigns.py`, the scheduler and the engine. Only what a driver does to hardware
is played: it takes its operation, waits the node's virtual minutes (its plan's estimate times 0.9
to 1.15, the seed is fixed), and writes each state that the reconciler would have written, with one
sample of what the node measures. Not written: inventories, reports, certificates, ledger. There is
no watch. Campaigns and scheduler look every five minutes at every size (`poll_s`; by default it is
20 s), so that sizes compare, and half a day of CPU is not spent on looks at which nothing is new.

Each size is a fresh process. What is out of service is counted apart from the campaign, at each
admission, by rack, scalable unit, tenant and fleet; one node too many is a violation. CPU is that
of all threads of the process from the request to start until the campaign is done; times of the
wall are not told. Exponents are fitted on logarithms. The last line is JSON; the exit code is 1 if
a limit was broken, a node was taken twice, or CPU grows faster than 1.1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bench_campaign
import bench_scale
import this_machine
from upgraded_fleet import POLICY, Truth, domains, fill, limits, matrix, sample, well
from waiting_loop import WaitingLoop, waited_for

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.campaigns.campaigns import Campaigns
from provisioner.control.context import Context
from provisioner.control.engine.engine import EmbeddedEngine
from provisioner.control.node.scheduler import Scheduler
from provisioner.execution.actions.hold import Hold
from provisioner.integrations.twin.loop import EPOCH, VirtualClock
from provisioner.model.campaign import Campaign, CampaignNode, CampaignRow, CampaignState
from provisioner.model.node import Node, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.model.tenant import Tenant
from provisioner.planning.campaigns.campaign_preview import Forecast
from provisioner.settings import Settings
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.sql_store import SqlStore, open_store

SIZES = (1024, 4096, 16_384)  # 65,536 are asked for: some hour of CPU
SETTINGS = Settings(production=False, poll_s=300.0, watch_s=86_400.0, operations_max=4096)
LOOK_S = 600.0  # virtual, between two looks whether it is done
HOURS_MAX = 24 * 14
PARTS = {State.DRAINING: 0.05, State.CONVERGING: 0.75, State.VALIDATING: 0.2}
NEXT = {State.DRAINING: State.CONVERGING, State.CONVERGING: State.VALIDATING}


def _enter(node: Node, state: State, now: float, placement: Placement) -> Node:
    """Return the node in a state, whatever the journey's table says."""
    return node.model_copy(update={"state": state, "entered_at": now, "placement": placement})


class Book(SqlCampaignRepository):
    """The real rows; each admission is told to the truth once it is on disk."""

    def __init__(self, store: SqlStore, truth: Truth) -> None:
        super().__init__(store)
        self.truth = truth

    async def admit(
        self, campaign: Campaign, row: CampaignRow | None, node: Node, why: str, now: float
    ) -> Node:
        saved = await super().admit(campaign, row, node, why, now)
        self.truth.leaves(saved)
        return saved


@dataclass
class Drivers:
    """In place of the reconciler: virtual minutes, then the state that it would have written."""

    store: SqlStore
    clock: VirtualClock
    truth: Truth
    lasts: dict[str, float] = field(default_factory=dict)

    async def drive(self, operation_id: str) -> None:
        hold = Hold(self.store, self.clock, await self.store.operations.take(operation_id))
        found = await self.store.nodes.get(hold.operation.node)
        assert found is not None
        node = found
        while node.state in PARTS:
            began = max(node.entered_at, EPOCH)
            stay_s = self.lasts[node.id] * PARTS[node.state]
            if node.state is State.CONVERGING and not node.tenant:
                stay_s += self.lasts[node.id] * PARTS[State.DRAINING]  # nobody to be drained
            await self.clock.sleep(began + stay_s - self.clock.now())
            node = await self._goes_on(hold, node)
        self.truth.returns(node)
        await self.store.operations.end(hold.operation, OperationStatus.DONE, "it serves")

    async def _goes_on(self, hold: Hold, node: Node) -> Node:
        now, state = self.clock.now(), NEXT.get(node.state, State.CERTIFIED)
        if state is State.CERTIFIED:
            await self.store.cohorts.put_sample(sample(node, "2", now))
        await hold.record(node=_enter(node, state, now, Placement.MAINTENANCE))
        if state is State.CERTIFIED and node.tenant:
            certified = await self.store.nodes.get(node.id)
            assert certified is not None
            released = _enter(certified, State.RELEASED, now, Placement.CUSTOMER)
            await hold.record(node=released)
        written = await self.store.nodes.get(node.id)
        assert written is not None
        return written


async def nobody() -> frozenset[str]:
    return frozenset()


async def lived(file: Path, count: int, loop: WaitingLoop, settings: Settings) -> dict[str, Any]:
    """One campaign over so many nodes, from the request until it is done."""
    chance, clock = random.Random(count), VirtualClock()
    store = waited_for(open_store(file), loop)
    facts = bench_campaign.fleet(count, chance)
    for at in range(0, count, 1024):
        await store.write(lambda c, at=at: fill(c, facts[at : at + 1024]))  # type: ignore[misc]
    for name in sorted({f.tenant for f in facts} - {""}):
        await store.tenants.put(Tenant(name=name, vrf=name.upper()))
    truth = Truth(limits(await store.nodes.list()))
    book, drivers = Book(store, truth), Drivers(store, clock, truth)
    began = time.process_time()
    requests = CampaignRequests(Context(store, clock, settings), book, matrix())
    made = await requests.create("next", "kind=host", POLICY)
    assert made.campaign is not None, made.blockers
    started = await requests.start(made.campaign.id)
    assert not started.blockers, started.blockers[:3]
    assert started.campaign is not None
    planned = {r.node: r.facts for r in started.rows}
    drivers.lasts = {n: f.minutes * 60 * chance.uniform(0.9, 1.15) for n, f in planned.items()}
    found = {"start_cpu_s": round(time.process_time() - began, 2)}
    engine = EmbeddedEngine(store, drivers.drive, settings.operations_max)
    scheduler = Scheduler(Context(store, clock, settings), engine.submit, nobody)
    campaigns = Campaigns(Context(store, clock, settings), book)
    await engine.start()
    loops = [asyncio.create_task(scheduler.run()), asyncio.create_task(campaigns.run())]
    ended = await _ended(requests, started.campaign, engine, truth, count)
    cpu_s = time.process_time() - began
    for task in loops:
        task.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await engine.stop()
    found |= await _told(store, book, ended, truth, planned, drivers)
    await store.close()
    return found | {
        "cpu_s": round(cpu_s, 1),
        "cpu_ms_per_node": round(1000 * cpu_s / count, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


async def _ended(
    requests: CampaignRequests,
    campaign: Campaign,
    engine: EmbeddedEngine,
    truth: Truth,
    count: int,
) -> Campaign:
    """Looks until it is over; a line each virtual hour."""
    for look in range(int(HOURS_MAX * 3600 / LOOK_S)):
        await asyncio.sleep(LOOK_S)
        found = await requests.find_campaign(campaign.id)
        if look % 6 == 5:
            sys.stderr.write(
                f"{count} nodes: {(look + 1) * LOOK_S / 3600:.0f} h, {len(truth.began)} begun, at "
                f"most {truth.most} of {truth.limits['total', '']} out at once, {len(truth.wrong)} "
                f"violations, {engine.running} driven, {time.process_time():.0f} s of CPU\n"
            )
        if found.state is not CampaignState.STARTED:
            return found
    raise AssertionError(f"it does not end: {truth.out['total', '']} are out")


async def _told(
    store: SqlStore,
    book: Book,
    campaign: Campaign,
    truth: Truth,
    planned: dict[str, CampaignNode],
    drivers: Drivers,
) -> dict[str, Any]:
    """The end against the truth, and the makespan against its bound."""
    assert (campaign.state, campaign.reason) == (CampaignState.DONE, ""), campaign.reason
    rows = {r.node: r for r in await book.list_rows(campaign.id)}
    fleet = await store.nodes.list()
    wrong = [*truth.wrong]
    wrong += [f"{n} was taken {k} times" for n, k in truth.began.items() if k != 1]
    wrong += [f"{r.node} ended {r.progress.state}" for r in rows.values() if r.progress.reason]
    wrong += [f"{n.id} is {n.state} on {n.release}" for n in fleet if not well(n)]
    assert len(truth.began) == len(rows) == len(fleet), (len(truth.began), len(rows))
    where = {n.id: n for n in fleet}
    facts = [
        planned[n].model_copy(
            update={
                "rack": where[n].location.rack,
                "unit": domains(where[n])[1][1],
                "tenant": where[n].tenant,
            }
        )
        for n in planned
    ]
    waves = Forecast(waves={n: r.progress.wave for n, r in rows.items()})
    bound_h = bench_campaign.bound_s(campaign, facts, drivers.lasts, waves) / 3600
    last = max(r.progress.finished_at for r in rows.values())
    hours = (last - campaign.started_at) / 3600
    return {
        "nodes": len(rows),
        "virtual_hours": round(hours, 3),
        "bound_hours": round(bound_h, 3),
        "makespan_over_bound": round(hours / bound_h, 4),
        "out_at_once": truth.most,
        "may_be_out": truth.limits["total", ""],
        "violations": len(wrong),
        "first_violations": wrong[:3],
    }


def measure(count: int, settings: Settings = SETTINGS) -> dict[str, Any]:
    """One size, in this process."""
    loop = WaitingLoop()
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "data" / "db.sqlite"
            return loop.run_until_complete(lived(file, count, loop, settings))
    finally:
        loop.close()


def told(sizes: Sequence[int], found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all sizes, with how CPU grows between them."""
    cpu = [f["cpu_s"] * 1000 for f in found]
    steps = {
        f"{a}-{b}": round(bench_scale.exponent((a, b), (x, y)), 3)
        for a, b, x, y in zip(sizes, sizes[1:], cpu, cpu[1:], strict=False)
    }
    return {
        **this_machine.told(),
        "sqlite": sqlite3.sqlite_version,
        "fleets": list(found),
        "violations": sum(f["violations"] for f in found),
        "cpu_exponent": round(bench_scale.exponent(sizes, cpu), 3) if len(sizes) > 1 else None,
        "cpu_exponents": steps,
    }


def main() -> int:
    """Every size in a process of its own, then one line of JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("sizes", type=int, nargs="*", default=SIZES)
    ask.add_argument("--poll", type=float, default=SETTINGS.poll_s, help="virtual seconds")
    ask.add_argument("--child", action="store_true")
    asked = ask.parse_args()
    settings = SETTINGS.model_copy(update={"poll_s": asked.poll})
    if asked.child:
        sys.stdout.write(json.dumps(measure(asked.sizes[0], settings)) + "\n")
        return 0
    found = []
    for size in asked.sizes:
        command = [sys.executable, __file__, "--child", "--poll", str(asked.poll), str(size)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append(json.loads(said))
        sys.stdout.write(f"{said}")
        sys.stdout.flush()
    all_of_it = told(asked.sizes, found)
    sys.stdout.write(json.dumps(all_of_it) + "\n")
    grows = all_of_it["cpu_exponent"] or 0.0
    return 0 if not all_of_it["violations"] and grows <= bench_scale.GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
