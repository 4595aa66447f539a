"""Plans of many mixed parts cost few states, and a search without effort left has a plan too.

States are counted instead of seconds: independent parts that are interleaved cost 2^n of them.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_planner import (
    CHAINS,
    HOST,
    LEAF,
    LEVELS,
    build_matrix,
    build_mixed_node,
    build_parts,
)

from provisioner import components
from provisioner.model.inventory import Inventory
from provisioner.model.plan import Plan
from provisioner.planning.path import solving
from provisioner.planning.path.clusters import Effort
from provisioner.planning.path.planner import PlanCache, PlanningNode

SEED = 7


class Efforts:
    """The efforts of all searches; `most` is given to each instead of the usual number."""

    def __init__(self, most: int = solving.STATES_MAX) -> None:
        self.most = most
        self.made: list[Effort] = []

    def make(self, _states_max: int) -> Effort:
        self.made.append(Effort(self.most))
        return self.made[-1]

    def count_spent(self) -> int:
        """Return the states that were looked at since the last call."""
        spent = sum(self.most - effort.left for effort in self.made)
        self.made.clear()
        return spent


@pytest.fixture
def efforts(monkeypatch: pytest.MonkeyPatch) -> Efforts:
    made = Efforts()
    monkeypatch.setattr(solving, "Effort", made.make)
    return made


def plan_fresh(inventory: Inventory) -> Plan:
    """Return the plan by a cache that holds nothing yet."""
    cache = PlanCache(build_matrix(), components.ALL, production=True)
    return cache.plan(PlanningNode(inventory, "r", "p", neighbours=LEAF))


def put_host_a_level_on(inventory: Inventory) -> Inventory:
    """Return the inventory with everything of the host one level below its pin."""
    below = {kind: CHAINS.get(kind, LEVELS)[-2] for kind in HOST}
    return inventory.model_copy(
        update={
            "components": tuple(
                c.model_copy(update={"version": below.get(c.kind, c.version)})
                for c in inventory.components
            )
        }
    )


@pytest.mark.parametrize("number", range(6))
def test_ten_cards_at_any_mixture_of_levels_cost_some_hundred_states(
    number: int, efforts: Efforts
) -> None:
    mixed = build_mixed_node(random.Random(f"{SEED} {number}"), "n")

    for inventory in (mixed, put_host_a_level_on(mixed)):
        plan = plan_fresh(inventory)

        assert not plan.blockers
        assert plan.steps
        assert len(efforts.made) == 1  # the first search ended by itself
        assert efforts.count_spent() < solving.STATES_MAX / 4


def test_states_grow_no_faster_than_the_square_of_independent_parts(efforts: Efforts) -> None:
    spent = {}
    for size in (15, 60):  # one edge each and no rule at all: 15 were refused once
        cache, node = build_parts(size, LEVELS[:2])
        plan = cache.plan(node)
        spent[size] = efforts.count_spent()

        assert not plan.blockers
        assert sum(bool(step.component) for step in plan.steps) == size

    assert spent[60] <= 16 * spent[15]


def test_a_search_that_may_look_at_few_states_has_a_plan_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixed = build_mixed_node(random.Random(SEED), "n")
    cheapest = plan_fresh(mixed)
    monkeypatch.setattr(solving, "Effort", Efforts(most=10).make)
    monkeypatch.setattr(solving, "WHOLE_STATES_MAX", 300)

    plan = plan_fresh(mixed)

    assert not plan.blockers
    assert {(s.component, s.to_version) for s in plan.steps} >= {
        (s.component, s.to_version) for s in cheapest.steps if s.component
    }
    assert (plan.outages, plan.resets, plan.duration_s) >= (
        cheapest.outages,
        cheapest.resets,
        cheapest.duration_s,
    )
    assert plan == plan_fresh(mixed)  # by states and not by seconds: the same every time
