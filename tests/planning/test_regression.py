"""A change that makes nodes worse is seen, chance is not, and tails count as well as means."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.planning.certification.regression import (
    Effect,
    RegressionPolicy,
    compare_metrics,
    judge_wave,
)
from provisioner.planning.certification.step_times import (
    StepPolicy,
    find_defective_nodes,
    is_repeatable,
    measure_similarity,
    measure_slower_similarity,
)

POLICY = RegressionPolicy()


def measured(rng: Random, nodes: int, level: float, noise: float = 0.005) -> dict:
    return {
        f"n{n}": {f"busbw_gb_s/GPU {g}": rng.gauss(level, level * noise) for g in range(8)}
        for n in range(nodes)
    }


def effect(before: dict, after: dict) -> Effect:
    (found,) = compare_metrics(before, after, POLICY)
    return found.effect


def test_a_wave_that_lowers_its_nodes_stops_the_campaign():
    rng = Random(1)
    before = measured(rng, 16, 400.0)
    worse, same = measured(rng, 16, 388.0), measured(rng, 16, 400.0)

    (stop,) = judge_wave(before, worse, POLICY)

    assert "% worse than before" in stop.detail
    assert "Roll the wave back" in stop.unblock
    assert judge_wave(before, same, POLICY) == ()
    assert judge_wave(before, measured(rng, 16, 420.0), POLICY) == ()


def test_too_few_nodes_tell_nothing():
    rng = Random(2)

    assert effect(measured(rng, 4, 400.0), measured(rng, 4, 300.0)) is Effect.NOT_TOLD
    assert effect(measured(rng, 5, 400.0), measured(rng, 5, 300.0)) is Effect.WORSE


def test_one_bad_node_is_no_regression_of_the_wave():
    rng = Random(3)
    before = measured(rng, 12, 400.0)
    after = before | {"n0": {f"busbw_gb_s/GPU {g}": 200.0 for g in range(8)}}

    assert effect(before, after) is Effect.BETTER_OR_SAME


def test_only_nodes_measured_twice_are_compared():
    rng = Random(4)
    before, after = measured(rng, 10, 400.0), measured(rng, 20, 380.0)

    (found,) = compare_metrics(before, after, POLICY)
    assert found.nodes == 10
    assert compare_metrics(before, {}, POLICY) == ()


@settings(max_examples=30)
@given(st.integers(0, 1_000_000))
def test_nothing_changed_is_almost_never_called_worse(seed):
    rng = Random(seed)

    assert judge_wave(measured(rng, 32, 400.0), measured(rng, 32, 400.0), POLICY) == ()


# step times


def steps(rng: Random, slow_share: float = 0.0, slow: float = 1.5, count: int = 400) -> list[float]:
    return [
        rng.gauss(1.0, 0.01) * (slow if rng.random() < slow_share else 1.0) for _ in range(count)
    ]


def test_equal_distributions_are_alike_and_disjoint_ones_are_not():
    a = [1.0] * 50

    assert measure_similarity(a, a) == 1.0
    assert measure_similarity(a, [2.0] * 50) == pytest.approx(0.5)
    assert measure_slower_similarity([0.5] * 50, a) == 1.0  # faster is no fault
    assert measure_slower_similarity([2.0] * 50, a) == pytest.approx(0.5)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_similarity_is_symmetric_and_between_nothing_and_one(seed, other):
    a, b = steps(Random(seed), 0.3), steps(Random(other), 0.1)

    assert measure_similarity(a, b) == pytest.approx(measure_similarity(b, a))
    assert 0 <= measure_similarity(a, b) <= measure_slower_similarity(a, b) <= 1


def test_a_node_with_a_slow_tail_is_found_although_its_median_is_fine():
    rng = Random(5)
    nodes = {f"n{i}": steps(rng) for i in range(12)} | {"tail": steps(rng, slow_share=0.15)}
    found = find_defective_nodes(nodes, StepPolicy())

    assert set(found.defective) == {"tail"}
    assert sorted(nodes["tail"])[200] == pytest.approx(1.0, rel=0.02)
    assert found.reference in found.members


def test_good_nodes_condemn_nobody():
    rng = Random(6)

    assert (
        find_defective_nodes({f"n{i}": steps(rng) for i in range(20)}, StepPolicy()).defective == {}
    )


def test_a_benchmark_that_differs_from_itself_judges_nobody():
    rng = Random(7)

    assert is_repeatable([steps(rng) for _ in range(4)], StepPolicy())
    assert not is_repeatable([steps(rng, rng.random(), 3.0) for _ in range(4)], StepPolicy())
    assert not is_repeatable([steps(rng)], StepPolicy())


@pytest.mark.parametrize(
    "bad", [[], [1.0] * 29, [0.0] * 50, [-1.0] * 50, [float("inf")] * 50, [float("nan")] * 50]
)
def test_what_is_no_list_of_step_times_is_refused(bad):
    with pytest.raises(ValueError, match="step"):
        measure_similarity(bad, [1.0] * 50)
