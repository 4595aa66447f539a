"""A change that makes nodes worse is seen, and chance is not."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.planning.certification.regression import (
    Effect,
    RegressionPolicy,
    compare_metrics,
    judge_wave,
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
