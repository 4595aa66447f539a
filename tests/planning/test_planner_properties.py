"""Plans are legal, cheapest and repeatable; refusals are true: judged by exhaustive search."""

from __future__ import annotations

from dataclasses import replace

import exhaustive
import pytest
from exhaustive import Case, Law, Way
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from provisioner.components import ComponentKind
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release, Requirement
from provisioner.model.plan import Disruption, Plan, StepKind
from provisioner.planning.path import partition, solving
from provisioner.planning.path.clusters import Effort
from provisioner.planning.path.planner import plan

KINDS = ("a.x", "b.x", "c.x")
PUSHED = "redfish_push"  # needs files, which these matrices do not have
WAYS_OUT = ("none", "bmc_reset", "warm_reboot", "cold_boot", "ac_cycle")
versions_ = st.integers(1, 4)
kinds_ = st.sampled_from(KINDS)


@st.composite
def ways(draw: st.DrawFn) -> Way:
    kind = draw(kinds_)
    upgrade = draw(st.integers(0, 5)) > 0
    low, high = sorted(draw(st.lists(versions_, min_size=2, max_size=2, unique=True)))
    start, to = (low, high) if upgrade else (high, low)
    via = draw(st.none() | versions_)
    others = st.sampled_from([k for k in KINDS if k != kind])
    seldom = st.integers(0, 3).map(lambda n: n == 0)  # most edges are plain, or nothing has a plan
    return Way(
        kind,
        start,
        to,
        draw(st.sampled_from(WAYS_OUT)),
        via=via if via not in (start, to) and draw(seldom) else None,
        brings=draw(st.tuples(others, versions_)) if draw(seldom) else None,
        needs=draw(st.tuples(others, versions_)) if draw(seldom) else None,
        downgrade=draw(st.booleans()),
        one_way=draw(st.integers(0, 7)) == 0,
        seconds=draw(st.sampled_from((60, 90))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    found: dict[tuple[object, ...], Way] = {}
    for way in draw(st.lists(ways(), min_size=6, max_size=16)):
        found.setdefault((way.kind, way.start, way.to, way.resets_by, way.seconds), way)
    laws = draw(
        st.lists(
            st.permutations(KINDS).flatmap(
                lambda ks: st.builds(Law, st.just(ks[0]), versions_, st.just(ks[1]), versions_)
            ),
            max_size=3,
        )
    )
    staged = draw(
        st.dictionaries(kinds_, st.tuples(versions_, st.sampled_from(WAYS_OUT[1:])), max_size=1)
    )
    return Case(
        start={kind: draw(st.integers(1, 2)) for kind in KINDS},
        staged=staged,
        pins=draw(st.dictionaries(kinds_, st.integers(2, 4), min_size=1)),
        ways=tuple(found.values()),
        laws=tuple(laws),
        push_is_outage=frozenset(draw(st.sets(kinds_, max_size=1))),
    )


def planned(case: Case, vendor: str = "v", method: str = "playbook_host_software") -> Plan:
    declared = {
        kind: ComponentKind(
            name=kind,
            title=kind,
            grammar="dotted",
            method=method,
            disruption=Disruption.HOST if kind in case.push_is_outage else Disruption.NONE,
            duration_s=60,
        )
        for kind in case.start
    }
    edges: dict[str, list[Edge]] = {}
    for way in case.ways:
        edges.setdefault(way.kind, []).append(
            Edge(
                from_versions=(str(way.start),),
                to=str(way.to),
                via=(str(way.via),) if way.via else (),
                carries={way.brings[0]: str(way.brings[1])} if way.brings else {},
                requires={way.needs[0]: f">={way.needs[1]}"} if way.needs else {},
                activates_by=Activation(way.resets_by),
                downgrade=way.downgrade,
                one_way=way.one_way,
                duration_s=way.seconds,
                evidence="tested",
            )
        )
    rules = tuple(
        Requirement(
            name="a law",  # two rules of one name are two rules
            when={law.kind: f">={law.least}"},
            needs={law.other: f">={law.other_least}"},
            reason="so it is",
        )
        for number, law in enumerate(case.laws)
    )
    pins = {kind: Pin(version=str(version)) for kind, version in case.pins.items()}
    matrix = Matrix(
        releases={"r": Release(profiles={"p": Profile(match=Match(), pins=pins)}, requires=rules)},
        edges={kind: tuple(found) for kind, found in edges.items()},
    )
    inventory = Inventory(
        node="n",
        vendor=vendor,
        components=tuple(
            Component(
                kind=kind,
                slot="0",
                version=str(version),
                staged=str(case.staged[kind][0]) if kind in case.staged else None,
                pending=Activation(case.staged[kind][1]) if kind in case.staged else None,
                source=kind,
            )
            for kind, version in case.start.items()
        ),
    )
    return plan(inventory, matrix, "r", "p", kinds=declared, production=method != PUSHED)


def simple(case: Case) -> bool:
    """Whether what is staged at the start carries nothing: the judge knows no such thing."""
    return not any(
        way.kind == kind and version in (way.to, way.via) and way.brings
        for kind, (version, _) in case.staged.items()
        for way in case.ways
    )


def replay(case: Case, found: Plan) -> None:
    """Carry the plan out on the judge's model of a node; every step must be one it allows."""
    running, waiting = exhaustive.initial(case)
    at_first = dict(waiting)
    for step in found.steps:
        for expected in step.expected:
            own = waiting.get(expected.kind)
            assert str(running[expected.kind]) == expected.version
            assert (str(own[0]) if own else None) == expected.staged
        before = exhaustive.broken(case, running)
        if step.kind is StepKind.UPDATE:
            push = next(
                p
                for p in exhaustive.pushes(case, running)
                if (p.kind, str(p.to), p.resets_by)
                == (step.component, step.to_version, step.activation)
                and dict([p.brings] if p.brings else []) == {k: int(v) for k, v in step.carries}
                and (not p.needs or running[p.needs[0]] >= p.needs[1])
            )
            assert push.kind not in waiting or waiting[push.kind] == at_first.get(push.kind)
            if push.resets_by == "none":
                running = exhaustive.run(running, {push.kind: (push.to, push.brings)})
                waiting.pop(push.kind, None)
            else:
                waiting[push.kind] = (push.to, push.resets_by, push.brings)
        else:
            covered = {
                k: w for k, w in waiting.items() if w[1] in exhaustive.COVERS[step.activation]
            }
            told = {(f"{k}/0", str(w[0])) for k, w in covered.items()}
            assert set(step.activates) == told
            running = exhaustive.run(running, {k: (w[0], w[2]) for k, w in covered.items()})
            waiting = {k: w for k, w in waiting.items() if k not in covered}
        waiting = exhaustive.settle(running, waiting)
        assert exhaustive.broken(case, running) <= before
    assert exhaustive.ended(case, running, waiting)


def starred(case: Case) -> Case:
    """The same case with every law about one kind, so that the others are leaves of it."""
    laws = tuple(
        Law(law.kind, law.least, "b.x", law.other_least)
        if law.kind != "b.x"
        else Law("b.x", law.least, law.other, law.other_least)
        for law in case.laws
    )
    return replace(case, laws=laws)


# Two ways to write the same version, and only one of them takes another component back on its way.
BRINGS_BACK = Case(
    start=dict.fromkeys(KINDS, 1),
    staged={},
    pins={"c.x": 3, "a.x": 2},
    ways=(
        Way("a.x", 2, 1, "none"),
        Way("a.x", 1, 2, "none"),
        Way("a.x", 1, 3, "none"),
        Way("c.x", 2, 3, "bmc_reset", via=1, needs=("a.x", 3)),
        Way("c.x", 1, 3, "bmc_reset", brings=("a.x", 1), needs=("a.x", 3)),
    ),
    laws=(),
    push_is_outage=frozenset(),
)


# Neither has a way of its own; each reaches its pin from where the other brings it.
IN_TURN = Case(
    start={"a.x": 2, "b.x": 1, "c.x": 1},
    staged={},
    pins={"a.x": 3, "c.x": 3},
    ways=(
        Way("a.x", 1, 3, "none", brings=("c.x", 3)),
        Way("c.x", 1, 2, "none", brings=("a.x", 1)),
    ),
    laws=(),
    push_is_outage=frozenset(),
)


def test_what_is_brought_to_a_version_goes_on_from_there_and_brings_others() -> None:
    found = planned(IN_TURN)

    assert not found.blockers
    assert [(s.component, s.to_version) for s in found.steps] == [("c.x", "2"), ("a.x", "3")]


def test_a_way_that_brings_another_component_back_is_told_from_one_that_does_not() -> None:
    found = planned(BRINGS_BACK)

    assert [(s.component, s.to_version, s.carries) for s in found.steps] == [
        ("a.x", "3", ()),
        ("c.x", "3", (("a.x", "1"),)),
        ("", "", ()),
        ("a.x", "2", ()),
    ]
    assert [(e.kind, e.version) for e in found.steps[-1].expected] == [("a.x", "1")]
    replay(BRINGS_BACK, found)


# four times the profile's number: most cases are small, or have no plan
@settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@example(BRINGS_BACK)
@example(IN_TURN)
@given(cases().filter(simple))
def test_a_plan_is_legal_and_cheapest_and_a_refusal_is_true(case: Case) -> None:
    found = planned(case)
    cheapest = exhaustive.cheapest(case)
    event("refused" if cheapest is None else f"{len(found.steps)} steps")

    if cheapest is None:
        assert found.blockers
        assert not found.steps
        assert all(b.detail and b.unblock and b.subject for b in found.blockers)
    else:
        assert not found.blockers
        assert (found.outages, found.resets, found.duration_s) == cheapest
        replay(case, found)
    assert planned(case) == found


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases().filter(simple).map(starred))
def test_a_part_that_is_taken_apart_has_the_same_cheapest_plan(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "STATES_MAX", 2)  # so that every part is given a hub
        found = planned(case)

    cheapest = exhaustive.cheapest(case)
    assert (cheapest is None) == bool(found.blockers)
    if cheapest is not None:
        assert (found.outages, found.resets, found.duration_s) == cheapest
        replay(case, found)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases().filter(simple))
def test_a_search_that_ends_early_has_the_best_legal_plan_so_far(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "Effort", lambda _: Effort(3))
        found = planned(case)

    cheapest = exhaustive.cheapest(case)
    assert (cheapest is None) == bool(found.blockers)
    if cheapest is not None:
        assert (found.outages, found.resets, found.duration_s) >= cheapest
        replay(case, found)


# What is staged forbids to write a.x, which would bring another version of it: c.x is written anew
# first, although it comes after a.x in the order of tracks.
STAGED_IN_THE_WAY = Case(
    start=dict.fromkeys(KINDS, 1),
    staged={"c.x": (2, "cold_boot")},
    pins={"a.x": 2, "c.x": 3},
    ways=(
        Way("a.x", 1, 2, "cold_boot", brings=("c.x", 3)),
        Way("c.x", 1, 3, "cold_boot"),
    ),
    laws=(Law("c.x", 2, "a.x", 2),),
    push_is_outage=frozenset(),
)
# The BMC's version and the host's need each other, and only an AC cycle activates both at once.
ONLY_TOGETHER = Case(
    start=dict.fromkeys(KINDS, 1),
    staged={},
    pins={"a.x": 2, "b.x": 2},
    ways=(Way("a.x", 1, 2, "bmc_reset"), Way("b.x", 1, 2, "cold_boot")),
    laws=(Law("a.x", 2, "b.x", 2), Law("b.x", 2, "a.x", 2)),
    push_is_outage=frozenset(),
)
# The second edge into the stop is cheaper than the first, and its conditions are not asked here.
CHEAPER_STOP = Case(
    start={"a.x": 1, "b.x": 1, "c.x": 1},
    staged={},
    pins={"a.x": 4},
    ways=(
        Way("a.x", 2, 3, "cold_boot"),
        Way("a.x", 2, 3, "bmc_reset", needs=("b.x", 4), seconds=90),
        Way("a.x", 1, 4, "none", via=3),
    ),
    laws=(),
    push_is_outage=frozenset(),
)


@pytest.mark.parametrize(
    ("case", "cost"),
    [
        (STAGED_IN_THE_WAY, (1, 1, 1020)),
        (ONLY_TOGETHER, (1, 1, 1320)),
        (CHEAPER_STOP, (0, 1, 450)),
    ],
    ids=["staged in the way", "only together", "cheaper stop"],
)
def test_a_plan_that_was_refused_or_dearer_is_the_cheapest(
    case: Case, cost: tuple[int, int, int]
) -> None:
    found = planned(case)

    assert not found.blockers
    assert (found.outages, found.resets, found.duration_s) == cost == exhaustive.cheapest(case)
    replay(case, found)
