"""Who is to blame on fabrics with planted faults: found, and nobody innocent, for little."""

from __future__ import annotations

import random

import planted as world_of
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import World, fabric_of, isolate, name_of, plant

from provisioner.planning.fault_location.isolation import (
    Campaign,
    find_culprits,
    plan_next_round,
)
from provisioner.planning.fault_location.isolation_words import (
    Culprit,
    Fabric,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
    RailResult,
    Round,
    Verdicts,
)

POLICY = IsolationPolicy()
SMALL = fabric_of(64)


def observations_of(
    world: World, policy: IsolationPolicy = POLICY, most: int = 99
) -> list[Observation]:
    """What a campaign observes, to its end or for some rounds."""
    seen: list[Observation] = []
    for _ in range(most):
        step = plan_next_round(world.fabric, seen, policy)
        if isinstance(step, Verdicts):
            break
        seen += [world.run(test, step.number) for test in step.tests]
    return seen


@pytest.mark.parametrize("size", [64, pytest.param(256, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"nodes": 1},
        {"links": 1},
        {"leaves": 1},
        {"nodes": 2, "links": 3},
        {"nodes": 3, "links": 4, "leaves": 1},
    ],
    ids=str,
)
def test_the_planted_are_found_and_nobody_else(size: int, faults: dict[str, int]) -> None:
    fabric = fabric_of(size)
    for seed in range(3):
        world = plant(World(fabric, random.Random(seed)), **faults)

        verdicts = isolate(world, POLICY)

        assert {name_of(b) for b in verdicts.condemned} == world.planted()
        assert verdicts.undecided == ()
        assert verdicts.node_minutes <= 0.5 * size * (size - 1) * POLICY.pair_minutes


@pytest.mark.parametrize("seed", range(4))
def test_screening_in_groups_finds_the_same(seed: int) -> None:
    world = plant(World(SMALL, random.Random(seed)), nodes=1, links=2)

    verdicts = isolate(world, IsolationPolicy(group_size=8))

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_part_is_found_by_its_ratio(seed: int) -> None:
    world = plant(World(SMALL, random.Random(seed)), nodes=1, links=1)
    world.slow = {**dict.fromkeys(world.nodes, 0.8), **dict.fromkeys(world.links, 0.85)}

    verdicts = isolate(world, POLICY)

    assert {name_of(b) for b in verdicts.condemned} == world.planted()
    slow = {b.culprit: b.slow for b in verdicts.condemned}
    assert slow == {
        Culprit.NODE: pytest.approx(0.8, abs=0.03),
        Culprit.LINK: pytest.approx(0.85, abs=0.03),
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_way_between_leaves_blames_no_node_and_no_leaf(seed: int) -> None:
    fabric = fabric_of(128)
    world = plant(World(fabric, random.Random(seed)), uplinks=1)

    verdicts = isolate(world, POLICY)

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


def test_two_leaves_that_do_not_reach_each_other_are_both_in_doubt() -> None:
    world = plant(World(SMALL, random.Random(5)), uplinks=1)

    verdicts = isolate(world, POLICY)

    assert verdicts.condemned == ()
    assert {b.culprit for b in verdicts.undecided} == {Culprit.UPLINK}
    assert len(verdicts.undecided) == 2


def test_too_much_blame_at_once_condemns_nobody() -> None:
    world = plant(World(SMALL, random.Random(1)), nodes=24)

    verdicts = isolate(world, POLICY)

    assert verdicts.condemned == ()
    assert "common cause" in verdicts.held
    assert verdicts.undecided
    assert verdicts.rounds <= 3


def test_tests_that_never_ran_prove_nothing_and_end() -> None:
    world = World(fabric_of(8), random.Random(0))
    seen: list[Observation] = []
    while isinstance(step := plan_next_round(world.fabric, seen, POLICY), Round):
        for test in step.tests:
            results = tuple(RailResult(rail=r, shown=RailOutcome.NOT_RUN) for r in test.rails)
            seen.append(Observation(test=test, round_number=step.number, results=results))

    assert step.condemned == ()
    assert step.cleared == 0
    assert len(step.untested) == 8


def test_corrupted_data_is_not_outweighed_by_passes() -> None:
    fabric = fabric_of(8)
    seen = observations_of(World(fabric, random.Random(0), noise=0.0))
    pair = FabricTest(
        name="corrupt", kind=FabricTestKind.RAIL, nodes=("n0000", "n0005"), rails=(3,)
    )
    corrupt = RailResult(rail=3, shown=RailOutcome.WRONG_DATA)
    seen.append(Observation(test=pair, round_number=9, results=(corrupt,)))

    verdicts = find_culprits(fabric, seen, POLICY)

    assert verdicts.condemned == ()
    assert {(b.node, b.rail) for b in verdicts.undecided} == {("n0000", 3), ("n0005", 3)}


@given(st.randoms(use_true_random=False), st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_the_order_and_repetition_of_reports_mean_nothing(
    rng: random.Random, repeated: int
) -> None:
    world = plant(World(fabric_of(32), random.Random(7)), nodes=1, links=1)
    seen = observations_of(world, most=4)
    mixed = [*seen, *seen[:repeated]]
    rng.shuffle(mixed)

    assert find_culprits(world.fabric, mixed, POLICY) == find_culprits(world.fabric, seen, POLICY)


results = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.integers(0, 7),
        st.sampled_from([RailOutcome.PASS, RailOutcome.FAIL, RailOutcome.FAIL]),
    ),
    max_size=60,
)
ONE_RAIL = fabric_of(8, rails=1, unit=4)
LOOSE = IsolationPolicy(innocent_risk=0.99, held_share=1.0)


def observed(found: list[tuple[int, int, RailOutcome]]) -> list[Observation]:
    return [
        Observation(
            test=FabricTest(
                name=f"t{i}",
                kind=FabricTestKind.RAIL,
                nodes=(f"n{a:04}", f"n{b:04}"),
                rails=(0,),
            ),
            round_number=i,
            results=(RailResult(rail=0, shown=shown),),
        )
        for i, (a, b, shown) in enumerate(found)
        if a != b
    ]


@given(results)
@settings(max_examples=100, deadline=None)
def test_nobody_is_condemned_with_fewer_than_three_partners(
    found: list[tuple[int, int, RailOutcome]],
) -> None:
    seen = observed(found)

    for verdict in find_culprits(ONE_RAIL, seen, LOOSE).condemned:
        failed = {
            n
            for o in seen
            for n in o.test.nodes
            if o.results[0].shown is RailOutcome.FAIL
            and (verdict.node in o.test.nodes or verdict.culprit is not Culprit.LINK)
        } - {verdict.node}
        assert len(verdict.partners) >= 3
        assert set(verdict.partners) <= failed


@given(results, st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_a_pass_never_adds_blame_for_what_it_went_through(
    found: list[tuple[int, int, RailOutcome]], one: int, other: int
) -> None:
    before = covered(find_culprits(ONE_RAIL, observed(found), LOOSE))
    after = covered(
        find_culprits(ONE_RAIL, observed([*found, (one, other, RailOutcome.PASS)]), LOOSE)
    )

    if one != other:
        assert not (after - before) & {f"n{one:04}", f"n{other:04}"}


def covered(verdicts: Verdicts) -> set[str]:
    """Nodes whose one link is condemned, by itself or with its leaf."""
    leaves = {b.leaf for b in verdicts.condemned if b.culprit is Culprit.LEAF}
    return {b.node for b in verdicts.condemned if b.node} | {
        n.name for n in ONE_RAIL.nodes if n.links[0].leaf in leaves
    }


def test_a_campaign_can_be_stored_and_taken_up_again() -> None:
    world = plant(World(SMALL, random.Random(3)), links=1)
    seen = observations_of(world, most=2)
    stored = [Observation.model_validate_json(o.model_dump_json()) for o in seen]
    fabric = Fabric.model_validate_json(world.fabric.model_dump_json())

    step = plan_next_round(fabric, stored, POLICY)

    assert step == plan_next_round(world.fabric, seen, POLICY)
    assert isinstance(step, Round)


@pytest.mark.parametrize("size", [2, 8])  # of the screening's groups; 2: pairs
def test_observations_taken_as_they_come_give_the_same_rounds_and_verdicts(size: int) -> None:
    world = plant(World(SMALL, random.Random(3)), nodes=1, links=2)
    policy = IsolationPolicy(group_size=size)
    campaign = Campaign(SMALL, policy)
    seen: list[Observation] = []
    while isinstance(step := campaign.plan_next_round(), Round):
        assert step == plan_next_round(SMALL, seen, policy)
        more = [world.run(test, step.number) for test in step.tests]
        campaign.add(more)
        seen += more
        if step.number == 2:  # reported twice
            campaign.add(more)
            seen += more

    assert step == plan_next_round(SMALL, seen, policy)
    assert step == find_culprits(SMALL, seen, policy)


def test_the_world_of_these_tests_is_noisy() -> None:
    world = World(SMALL, random.Random(0), noise=0.03)
    seen = world_of.World.run(
        world,
        FabricTest(
            name="t",
            kind=FabricTestKind.PAIR,
            nodes=("n0000", "n0001"),
            rails=tuple(range(8)) * 200,
        ),
        0,
    )

    wrong = sum(r.shown is not RailOutcome.PASS for r in seen.results) / len(seen.results)
    assert 0.01 < wrong < 0.06
