"""A vendor's order of flashing is legal and as cheap as it can be: judged by exhaustive search.

The judge knows the declared order: the host BMC runs its pin, by its own restarts, before anything
else is pushed through it. Without the declaration, plans are the cheapest ones.
"""

from __future__ import annotations

from dataclasses import replace

import exhaustive
from exhaustive import Case, Law, Way
from hypothesis import HealthCheck, event, example, given, settings
from test_planner_properties import PUSHED, cases, planned, replay, simple

from provisioner.model.plan import Plan, StepKind

BMC = "host.bmc"
DECLARES, SILENT = "dell_idrac", "supermicro"


def rename(kind: str) -> str:
    return BMC if kind == "a.x" else kind


def with_bmc(case: Case) -> Case:
    """The same case with the host BMC as one of its kinds, which has a way to its pin."""
    pins = {rename(k): v for k, v in case.pins.items()} | {BMC: 3, "b.x": 3}
    ahead = (
        Way(BMC, case.start["a.x"], 3, "bmc_reset", seconds=75),
        Way("b.x", case.start["b.x"], 3, "ac_cycle", seconds=75),
    )
    return Case(
        start={rename(k): v for k, v in case.start.items()},
        staged={rename(k): v for k, v in case.staged.items()},
        pins=pins,
        ways=ahead
        + tuple(
            replace(
                way,
                kind=rename(way.kind),
                brings=way.brings and (rename(way.brings[0]), way.brings[1]),
                needs=way.needs and (rename(way.needs[0]), way.needs[1]),
            )
            for way in case.ways
        ),
        laws=tuple(
            Law(rename(law.kind), law.least, rename(law.other), law.other_least)
            for law in case.laws
        ),
        push_is_outage=frozenset(),
    )


def is_bmc_ahead(case: Case, found: Plan) -> bool:
    waits = BMC in exhaustive.initial(case)[1]
    others = False
    for step in found.steps:
        if step.kind is StepKind.ACTIVATE:
            waits = waits and not any(name.startswith(BMC) for name, _ in step.activates)
        elif step.component == BMC:
            if others:
                return False
            waits = waits or step.activation != "none"
        elif waits:
            return False
        else:
            others = True
    return True


# an AC cycle is needed anyway, and would restart the BMC too
COVERED = Case(
    start={BMC: 1, "b.x": 1, "c.x": 1},
    staged={},
    pins={BMC: 2, "b.x": 2},
    ways=(Way(BMC, 1, 2, "bmc_reset"), Way("b.x", 1, 2, "ac_cycle")),
    laws=(),
    push_is_outage=frozenset(),
)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@example(COVERED)
@given(cases().filter(simple).map(with_bmc))
def test_a_declared_order_is_kept_at_the_least_cost(case: Case) -> None:
    cheapest = exhaustive.cheapest(case)
    if cheapest is None:
        return
    found = planned(case, DECLARES, PUSHED)
    cost = (found.outages, found.resets, found.duration_s)
    first = exhaustive.cheapest_with_first(case, BMC)
    ahead = is_bmc_ahead(case, found)
    event(f"ahead: {ahead}, dearer: {cost != cheapest}")

    assert not found.blockers
    replay(case, found)
    assert cost in {cheapest, *first}
    assert ahead or cost == cheapest
    taken_back = any(way.brings and way.brings[0] == BMC for way in case.ways)
    assert ahead or not first or taken_back
    assert found.resets <= cheapest[1] or "than the cheapest plan has" in str(found.steps)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@example(COVERED)
@given(cases().filter(simple).map(with_bmc))
def test_without_a_declaration_a_plan_is_the_cheapest(case: Case) -> None:
    cheapest = exhaustive.cheapest(case)
    if cheapest is None:
        return
    found = planned(case, SILENT, PUSHED)

    assert (found.outages, found.resets, found.duration_s) == cheapest
