"""Who is an outlier among its like, and what a fleet may teach about itself."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.cohort import Baseline, CheckResult, Gate, HealthReport, Sample, Verdict
from provisioner.model.inventory import Inventory
from provisioner.planning.certification.cohort import (
    LearningPolicy,
    NotLearned,
    Policy,
    add_outliers,
    find_odd_siblings,
    find_outliers,
    judge_node,
    learn_baseline,
    sample_of,
)

POLICY = Policy()
LEARNING = LearningPolicy()


def sample(n: int, measured: dict[str, float], **changes: object) -> Sample:
    base = Sample(
        node=f"n{n}", rack=f"rack{n // 4}", profile="hgx", versions="v", measured=measured,
        sound=True,
    )  # fmt: skip
    return base.model_copy(update=changes)


def fleet(count: int, level: float = 400.0, noise: float = 0.005, seed: int = 1) -> list[Sample]:
    rng = Random(seed)
    return [sample(n, {"busbw_gb_s/host": rng.gauss(level, level * noise)}) for n in range(count)]


def test_a_slow_node_is_an_outlier_and_noise_is_not():
    others = fleet(40)
    slow = sample(99, {"busbw_gb_s/host": 370.0})
    fine = sample(98, {"busbw_gb_s/host": 396.0})

    (found,) = judge_node(slow, others, POLICY)
    assert (found.node, found.part, round(found.typical)) == ("n99", "host", 400)
    assert judge_node(fine, others, POLICY) == ()


def test_a_tight_cohort_condemns_nobody_for_an_effect_that_does_not_matter():
    others = fleet(40, noise=0.00001)

    assert judge_node(sample(99, {"busbw_gb_s/host": 398.0}), others, POLICY) == ()
    assert judge_node(sample(99, {"busbw_gb_s/host": 380.0}), others, POLICY) != ()


def test_a_wide_cohort_condemns_nobody_who_is_within_its_spread():
    others = fleet(40, noise=0.06)

    assert judge_node(sample(99, {"busbw_gb_s/host": 370.0}), others, POLICY) == ()


@pytest.mark.parametrize("change", [{"profile": "other"}, {"versions": "w"}, {"sound": False}])
def test_only_sound_nodes_of_the_same_profile_and_versions_are_a_measure(change):
    others = [s.model_copy(update=change) for s in fleet(40)]

    assert judge_node(sample(99, {"busbw_gb_s/host": 100.0}), others, POLICY) == ()


def test_a_cohort_that_is_too_small_judges_nobody():
    slow = sample(99, {"busbw_gb_s/host": 100.0})

    assert judge_node(slow, fleet(6), POLICY) == ()
    assert judge_node(slow, fleet(7), POLICY) != ()


def test_rails_are_cohorts_of_their_own_and_gpus_of_all_nodes_are_one():
    def rails(n: int, second: float) -> Sample:
        return sample(n, {"ib_gbit_s/rail 0": 390.0, "ib_gbit_s/rail 1": second})

    others = [rails(n, 340.0) for n in range(20)]  # rail 1 is slow everywhere: its leaf, not a node

    assert judge_node(rails(99, 340.0), others, POLICY) == ()
    assert [o.metric for o in judge_node(rails(99, 300.0), others, POLICY)] == ["ib_gbit_s/rail 1"]


def test_less_is_better_for_temperatures_and_rates():
    cool = [sample(n, {"gpu_temperature_c/GPU 0": 55.0 + n % 3}) for n in range(20)]
    still = [sample(n, {"out_of_sequence_per_s/mlx5_0": 0.0}) for n in range(20)]

    assert judge_node(sample(99, {"gpu_temperature_c/GPU 0": 80.0}), cool, POLICY) != ()
    assert judge_node(sample(99, {"gpu_temperature_c/GPU 0": 35.0}), cool, POLICY) == ()
    assert judge_node(sample(99, {"out_of_sequence_per_s/mlx5_0": 0.5}), still, POLICY) == ()
    assert judge_node(sample(99, {"out_of_sequence_per_s/mlx5_0": 9.0}), still, POLICY) != ()


def test_what_is_measured_after_a_load_is_compared_with_the_same_load_only():
    def after(check: str, value: float) -> CheckResult:
        return CheckResult(
            check=check, gate=Gate.A, verdict=Verdict.PASS,
            measured={"gpu_temperature_c/GPU 0": value},
        )  # fmt: skip

    def seen(node: str, burnt: float) -> HealthReport:
        results = (after("temperatures", 40.0), after("temperatures after gpu_burn", burnt))
        return HealthReport(
            node=node, inventory_digest="d", started_at=0, ended_at=1, results=results
        )

    inventory = Inventory(node="n", vendor="v")
    fleet = [sample_of(seen(f"n{n}", 70.0), inventory, "hgx", "r") for n in range(12)]
    report = seen("hot", 95.0)

    judged = add_outliers(
        report, judge_node(sample_of(report, inventory, "hgx", "r"), fleet, POLICY)
    )

    assert [r.verdict for r in judged.results] == [Verdict.PASS, Verdict.FAIL]
    assert judge_node(fleet[0], fleet, POLICY) == ()


def test_a_gpu_is_held_against_its_seven_siblings_even_in_a_fleet_of_one():
    measured = {f"burn_gflop_s/GPU {g}": 50_000.0 for g in range(8)} | {"burn_gflop_s/GPU 5": 40e3}

    (found,) = find_odd_siblings(sample(0, measured))

    assert found.part == "GPU 5"
    assert "the 8 of its node" in found.among


def test_what_no_rule_knows_is_never_judged():
    others = [sample(n, {"mystery/host": 1.0}) for n in range(20)]

    assert judge_node(sample(99, {"mystery/host": 1e9}), others, POLICY) == ()


def test_an_outlier_fails_the_check_that_measured_it():
    slow = sample(99, {"busbw_gb_s/host": 300.0})
    results = tuple(
        CheckResult(check=name, gate=Gate.B, verdict=Verdict.PASS, measured=measured)
        for name, measured in (("nccl", dict(slow.measured)), ("ecc", {}))
    )
    report = HealthReport(
        node="n99", inventory_digest="d", started_at=0, ended_at=1, results=results
    )

    judged = add_outliers(report, judge_node(slow, fleet(40), POLICY))

    assert [r.verdict for r in judged.results] == [Verdict.FAIL, Verdict.PASS]
    assert "outlier among 41 nodes" in judged.results[0].findings[0].detail
    assert add_outliers(report, ()) == report


@given(st.permutations(range(20)))
def test_the_order_of_samples_does_not_matter(order):
    samples = [*fleet(19), sample(19, {"busbw_gb_s/host": 300.0})]

    assert find_outliers([samples[i] for i in order], POLICY) == find_outliers(samples, POLICY)


def taught(values: list[float], racks: int = 8) -> list[Sample]:
    return [
        sample(n, {"busbw_gb_s/host": v}, rack=f"rack{n % racks}") for n, v in enumerate(values)
    ]


def learned(samples: list[Sample], **more: object) -> Baseline | NotLearned:
    given: dict = {"previous": None, "published": None, "policy": LEARNING, "now": 5.0}
    return learn_baseline("busbw_gb_s", samples, **(given | more))


@given(st.integers(0, 10_000), st.floats(0.0, 0.8), st.floats(0.7, 0.93))
def test_a_bad_majority_does_not_poison_the_baseline(seed, share, factor):
    rng = Random(seed)
    values = [rng.gauss(400, 2) * (factor if n < share * 60 else 1.0) for n in range(60)]
    found = learned(taught(values))

    assert isinstance(found, Baseline)
    assert 392 < found.level < 408
    assert found.floor == pytest.approx(found.level * 0.95)


def test_a_few_numbers_that_are_too_good_to_be_true_teach_nothing():
    found = learned(taught([400.0] * 50 + [4000.0] * 5))

    assert isinstance(found, Baseline)
    assert found.level == 400.0


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "no level"),
        (taught([400.0] * 7), "no level"),
        (taught([400.0] * 20, racks=1), "no level"),
        (taught([400.0 * 1.2**n for n in range(20)]), "no level"),
        ([s.model_copy(update={"sound": False}) for s in taught([400.0] * 20)], "no level"),
        ([*taught([400.0] * 20), sample(50, {"busbw_gb_s/x": 400.0}, versions="w")], "several"),
    ],
)
def test_too_little_teaches_nothing_and_says_what_would_help(samples, why):
    found = learned(samples)

    assert isinstance(found, NotLearned)
    assert why in found.why
    assert found.unblock


def test_a_level_moves_little_at_a_time_and_never_far_from_its_anchor():
    first = learned(taught([400.0] * 20))
    assert isinstance(first, Baseline)

    a_little = learned(taught([397.0] * 20), previous=first)
    too_much = learned(taught([390.0] * 20), previous=first)
    better = learned(taught([420.0] * 20), previous=first)
    absurd = learned(taught([800.0] * 20), previous=first)
    against_paper = learned(taught([400.0] * 20), published=460.0)

    assert isinstance(a_little, Baseline)
    assert a_little.anchor == 400.0
    assert isinstance(too_much, NotLearned)
    assert isinstance(better, Baseline)
    assert isinstance(absurd, NotLearned)
    assert isinstance(against_paper, NotLearned)
    assert "anchor" in against_paper.why
    level: Baseline | NotLearned = first
    for value in [396.5, 393.0, 389.5, 386.0, 382.5]:  # each step small, all of them not
        assert isinstance(level, Baseline)
        level = learned(taught([value] * 20), previous=level)
        if isinstance(level, NotLearned):
            break
    assert isinstance(level, NotLearned)


def test_a_ceiling_is_learned_where_less_is_better():
    samples = [
        sample(n, {"latency_us/host": 4.0 + 0.01 * (n % 3)}, rack=f"r{n % 4}") for n in range(20)
    ]
    found = learn_baseline(
        "latency_us", samples, previous=None, published=None, policy=LEARNING, now=1.0
    )

    assert isinstance(found, Baseline)
    assert found.floor > found.level
