"""Parts that fail only a share of their tests, and causes that many parts share."""

from __future__ import annotations

import random

import pytest
from planted import World, fabric_of, isolate, name_of, plant, shared_parts

from provisioner.planning.fault_location.isolation import Campaign, find_culprits
from provisioner.planning.fault_location.isolation_blame import find_explanations
from provisioner.planning.fault_location.isolation_words import Culprit, IsolationPolicy, Round

NODES = 96
PLAIN = fabric_of(NODES)
SHARED = fabric_of(NODES, shared=shared_parts(NODES))
LOW = IsolationPolicy(rate_min=0.5, miss_risk=0.05, rounds_max=80)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rate", [0.45, 0.6])
def test_an_intermittent_leaf_is_found_and_accuses_none_of_its_links(rate: float, seed: int):
    world = plant(World(PLAIN, random.Random(seed), rate=rate), leaves=1)

    verdicts = isolate(world, IsolationPolicy(rounds_max=60))

    assert {name_of(b) for b in verdicts.condemned} == world.planted()
    assert verdicts.condemned[0].rate == pytest.approx(rate, abs=0.15)


def test_a_node_that_fails_a_third_of_its_tests_is_found():
    world = plant(World(PLAIN, random.Random(3), rate=0.35), nodes=1)

    verdicts = isolate(world, LOW)

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


@pytest.mark.parametrize("kind", ["nodes", "leaves"])
def test_a_part_that_fails_three_of_ten_tests_is_found(kind: str):
    world = plant(World(PLAIN, random.Random(f"{kind} 3"), rate=0.3), **{kind: 1})
    policy = IsolationPolicy(rate_min=0.3, miss_risk=0.05, rounds_max=200)

    verdicts = isolate(world, policy)

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


@pytest.mark.parametrize("kind", [Culprit.CARD, Culprit.RACK, Culprit.FEED, Culprit.RAIL])
def test_a_shared_cause_is_named_instead_of_the_parts_that_depend_on_it(kind: Culprit):
    world = World(SHARED, random.Random(str(kind)), rate=0.7)
    names = [p.name for p in SHARED.shared if p.kind is kind] or ["rail 3"]
    world.shared = {(kind, world.rng.choice(names))}

    verdicts = isolate(world, IsolationPolicy(rounds_max=30))

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


def test_bad_spines_of_a_rail_are_named_and_its_leaves_are_cleared():
    world = World(fabric_of(128), random.Random(8))
    world.shared = {(Culprit.SPINE, "rail 2")}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()
    assert verdicts.undecided == ()


def test_three_bad_links_of_one_rail_are_not_a_bad_rail():
    world = World(PLAIN, random.Random(2))
    world.links = {("n0003", 5), ("n0040", 5), ("n0071", 5)}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


def test_a_bad_leaf_and_half_of_another_are_not_their_rail():
    world = World(SHARED, random.Random(6), rate=0.8)
    world.leaves = {"su1-rail0"}
    world.shared = {(Culprit.CARD, "su2-rail0/card0")}

    verdicts = isolate(world, IsolationPolicy())

    assert {name_of(b) for b in verdicts.condemned} == world.planted()
    assert verdicts.undecided == ()


def test_a_bad_leaf_and_the_uplinks_of_another_are_both_named():
    world = World(SHARED, random.Random(7), rate=0.6)
    world.leaves = {"su2-rail3"}
    world.uplinks = {"su0-rail3"}

    verdicts = isolate(world, IsolationPolicy(rounds_max=60))

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_suspect_meets_its_partners_again_where_no_other_is_good(seed: int):
    fabric = fabric_of(16, unit=8)
    world = World(fabric, random.Random(seed), rate=0.35, noise=0.02)
    world.leaves = {"su1-rail0"}  # leaves seven good partners on this rail
    world.links = {("n0002", 0)}

    verdicts = isolate(world, IsolationPolicy(rate_min=0.3, miss_risk=0.001, rounds_max=150))

    assert {name_of(b) for b in verdicts.condemned} == world.planted()


def test_a_part_has_a_margin_over_the_best_explanation_without_it():
    world = World(PLAIN, random.Random(1), noise=0.0)
    world.leaves = {"su1-rail0"}
    campaign = Campaign(PLAIN, IsolationPolicy())
    for number in range(2):
        step = campaign.plan_next_round()
        assert isinstance(step, Round)
        campaign.add(world.run(test, number) for test in step.tests)

    (best,), _ = find_explanations(campaign.trials, gain_min=6.0, margin_min=1000.0)

    assert best.part.name == "su1-rail0"
    kinds = {part.kind for part, _ in best.rivals}
    assert kinds == {Culprit.UPLINK, Culprit.RAIL}  # uplinks explain no failure within the leaf
    assert 0.0 < best.margin < best.gain


def test_more_wrong_results_than_assumed_condemn_nobody():
    verdicts = isolate(World(PLAIN, random.Random(4), noise=0.08), LOW)

    assert verdicts.condemned == ()


def test_verdicts_say_which_rate_could_have_been_missed():
    seen = World(PLAIN, random.Random(5), noise=0.0)
    verdicts = isolate(seen, LOW)

    assert verdicts.rate_missed == 0.5
    assert find_culprits(PLAIN, (), LOW).rate_missed == 0.0
