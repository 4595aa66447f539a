"""Two thousand nodes within a budget of requests, under virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World
from virtual_time import VirtualClock

from provisioner.control.context import Context
from provisioner.control.watch.watcher import ROUND_S, Watcher, WatchParts
from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.watch import BURST_S, Budget
from provisioner.model.certificate import Certificate
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.planning.watch.first_round import FIRST_REQUESTS, compute_extra_rate
from provisioner.ports import BmcAddress, Call, Reply, Secret
from provisioner.settings import Settings
from provisioner.store.rows import evidence_rows, node_rows
from provisioner.store.sql_store import open_store

DAY_S = 86400.0


class Fleet:
    """Many BMCs with the tree of one simulated BMC; what it said once is said by all of them."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self._world, self._clock = world, clock
        bmc = world.site.machines["su0-n00"].bmcs["host"]
        url = world.site.urls["su0-n00/host"]
        self._one = BmcAddress(url, bmc.username, Secret(bmc.password))
        self._said: dict[tuple[str, bool], Reply] = {}
        self.asked: list[float] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        assert call.method == "GET", "a watch changes nothing"
        self.asked.append(self._clock.now())
        await asyncio.sleep(0.05)
        key = (call.path, bmc.secret is not None)
        if key not in self._said:
            self._said[key] = await self._world.transport.request(self._one, call)
        return self._said[key]

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return None

    async def forget(self, bmc: BmcAddress) -> None:
        return None

    async def close(self) -> None:
        return None


class OnePassword:
    """`Credentials` of a fleet."""

    async def current(self, name: str) -> tuple[str, Secret] | None:
        return "admin", Secret(f"password of {name}")


async def watched(
    folder: Path, nodes: int, run_s: float, **settings: float
) -> tuple[Fleet, Watcher, int, dict[str, list[float]]]:
    """Watch so many nodes for a while: the fleet, the watch, rows written, glances per node."""
    clock, store = VirtualClock(), open_store(":memory:", inline=True)
    fleet = Fleet(World(folder, 1, 7), clock)
    now = clock.now()

    def fill(connection: Any) -> None:
        for number in range(nodes):
            name = f"n{number:04d}"
            bmc = BmcRef(name="host", url=f"https://{name}.test")
            node_rows.add_node(connection, Node(id=name, kind=NodeKind.HOST, state=State.RELEASED,
                                                bmcs=(bmc,), certificate=f"c-{name}"))  # fmt: skip
            evidence_rows.put_certificate(
                connection,
                Certificate(id=f"c-{name}", node=name, release="r", profile="p", serials=(),
                            versions=(), boot_id="", location="", ports=(), report_digest="",
                            matrix_digest="", issued_at=now, expires_at=now + 30 * DAY_S),
            )  # fmt: skip

    await store.write(fill)
    glances: dict[str, list[float]] = {}

    async def nobody(_: str) -> None:
        return None

    class Noting(Watcher):
        async def _look(self, node: Node, turns: Any) -> None:
            await super()._look(node, turns)
            glances.setdefault(node.id, []).append(clock.now())

    reach = Reach(fleet, None, OnePassword())  # type: ignore[arg-type]
    parts = WatchParts(store.alerts, lambda: "s")
    context = Context(store, clock, Settings.model_validate(settings))
    watcher = Noting(context, parts, reach, nobody)
    before = await store.read(lambda c: c.connection.total_changes)
    task = asyncio.create_task(watcher.run())
    await clock.sleep(run_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    after = await store.read(lambda c: c.connection.total_changes)
    await store.close()
    return fleet, watcher, after - before, glances


def longest_wait(glances: dict[str, list[float]]) -> float:
    return max(
        later - earlier
        for times in glances.values()
        for earlier, later in itertools.pairwise(times)
    )


def busiest(asked: list[float], window_s: float) -> int:
    return max(Counter(int(at // window_s) for at in asked).values())


@pytest.mark.long
def test_two_thousand_nodes_are_each_glanced_at_in_time_within_the_budget(tmp_path: Path) -> None:
    per_s, every_s = 60.0, 300.0
    fleet, _, written, glances = virtual_time.run(
        watched(tmp_path, 2000, 900.0, watch_requests_per_s=per_s, watch_node_s=every_s,
                watch_s=1e6)
    )  # fmt: skip

    assert len(glances) == 2000
    assert longest_wait(glances) <= every_s + ROUND_S + 2
    assert busiest(fleet.asked, 10.0) <= 10 * per_s + BURST_S * per_s
    assert written == 0  # nothing happened, so that nothing was written


def test_sweeps_take_what_glances_leave(tmp_path: Path) -> None:
    per_s, every_s = 6.0, 60.0
    fleet, watcher, _, glances = virtual_time.run(
        watched(tmp_path, 40, 1200.0, watch_requests_per_s=per_s, watch_node_s=every_s,
                watch_s=60.0)
    )  # fmt: skip

    assert longest_wait(glances) <= every_s + ROUND_S + 10
    assert busiest(fleet.asked, 10.0) <= 10 * per_s + BURST_S * per_s
    assert watcher.eyes.budget.spent > 0.9 * 1200 * per_s  # all of it is used


def test_a_first_round_ends_in_time_beyond_a_budget_that_is_too_small(tmp_path: Path) -> None:
    nodes, first_s, per_s = 60, 900.0, 0.2
    fleet, watcher, _, glances = virtual_time.run(
        watched(tmp_path, nodes, 1800.0, watch_requests_per_s=per_s, watch_node_s=300.0,
                watch_s=1e6, watch_first_s=first_s)
    )  # fmt: skip
    began = min(fleet.asked)
    after_it = [at for at in fleet.asked if at > began + first_s + 2 * BURST_S]

    assert len(glances) == nodes
    assert max(times[0] for times in glances.values()) - began <= first_s
    assert len(after_it) <= (1800.0 - first_s) * per_s + 1  # the budget holds again
    assert watcher.eyes.budget.extra_per_s == 0.0


def test_a_first_round_that_may_take_its_time_stays_within_the_budget(tmp_path: Path) -> None:
    per_s = 0.5
    fleet, *_ = virtual_time.run(
        watched(tmp_path, 50, 600.0, watch_requests_per_s=per_s, watch_node_s=300.0,
                watch_s=1e6, watch_first_s=0.0)
    )  # fmt: skip

    assert len(fleet.asked) <= 600.0 * per_s + 1


@pytest.mark.parametrize(
    ("bmcs", "first_s", "per_s", "extra"),
    [(720_896, 7200.0, 200.0, 601.0), (10_000, 7200.0, 200.0, 0.0), (720_896, 0.0, 200.0, 0.0)],
)
def test_the_pace_of_a_first_round(bmcs: int, first_s: float, per_s: float, extra: float) -> None:
    assert round(compute_extra_rate(bmcs, first_s, per_s)) == extra


def test_a_first_look_takes_no_more_requests_than_its_pace_counts_with(tmp_path: Path) -> None:
    fleet, _, _, glances = virtual_time.run(
        watched(tmp_path, 10, 299.0, watch_requests_per_s=100.0, watch_node_s=300.0, watch_s=1e6)
    )  # fmt: skip

    assert sum(map(len, glances.values())) == 10
    assert len(fleet.asked) <= 10 * FIRST_REQUESTS


def test_patient_requests_get_nothing_of_a_first_round() -> None:
    async def main() -> float:
        clock = VirtualClock()
        budget = Budget(clock, 1.0)
        budget.extra_per_s = 100.0
        began = clock.now()
        await asyncio.gather(*(budget.take_slot(urgent=False) for _ in range(11)))
        return clock.now() - began

    assert virtual_time.run(main()) >= 8.0  # two seconds' worth were saved up


def test_who_is_urgent_goes_before_who_came_first() -> None:
    async def main() -> list[str]:
        clock, order = VirtualClock(), []
        budget = Budget(clock, 1.0)

        async def ask(name: str, *, urgent: bool) -> None:
            await budget.take_slot(urgent=urgent)
            order.append(name)

        patient = [asyncio.create_task(ask(f"patient{i}", urgent=False)) for i in range(3)]
        await clock.sleep(0.5)
        await asyncio.gather(ask("urgent", urgent=True), *patient)
        return order

    assert virtual_time.run(main()) == ["patient0", "urgent", "patient1", "patient2"]
