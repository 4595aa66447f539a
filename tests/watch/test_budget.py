"""Two thousand nodes within a budget of requests, under virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest
import virtual_time
from budgeted_fleet import watch_fleet
from virtual_time import VirtualClock

from provisioner.control.watch.watcher import ROUND_S
from provisioner.execution.observe.watch import BURST_S, Budget
from provisioner.planning.watch.watch_rules import FIRST_REQUESTS, compute_extra_rate


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
        watch_fleet(tmp_path, 2000, 900.0, watch_requests_per_s=per_s, watch_node_s=every_s,
                    watch_s=1e6)
    )  # fmt: skip

    assert len(glances) == 2000
    assert longest_wait(glances) <= every_s + ROUND_S + 2
    assert busiest(fleet.asked, 10.0) <= 10 * per_s + BURST_S * per_s
    assert written == 0  # nothing happened, so that nothing was written


def test_sweeps_take_what_glances_leave(tmp_path: Path) -> None:
    per_s, every_s = 3.0, 60.0
    fleet, watcher, _, glances = virtual_time.run(
        watch_fleet(tmp_path, 20, 600.0, watch_requests_per_s=per_s, watch_node_s=every_s,
                    watch_s=60.0)
    )  # fmt: skip

    assert longest_wait(glances) <= every_s + ROUND_S + 10
    assert busiest(fleet.asked, 10.0) <= 10 * per_s + BURST_S * per_s
    assert watcher.eyes.budget.spent > 0.9 * 600 * per_s  # all of it is used


def test_a_first_round_ends_in_time_beyond_a_budget_that_is_too_small(tmp_path: Path) -> None:
    nodes, first_s, per_s = 60, 900.0, 0.2
    fleet, watcher, _, glances = virtual_time.run(
        watch_fleet(tmp_path, nodes, 1800.0, watch_requests_per_s=per_s, watch_node_s=300.0,
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
        watch_fleet(tmp_path, 50, 600.0, watch_requests_per_s=per_s, watch_node_s=300.0,
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
        watch_fleet(tmp_path, 10, 299.0, watch_requests_per_s=100.0, watch_node_s=300.0,
                    watch_s=1e6)
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
