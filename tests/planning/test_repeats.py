"""A figure that just misses is measured again, and the median decides; nothing else is retried."""

from __future__ import annotations

from itertools import product

import pytest

from provisioner.model.cohort import CheckResult, Finding, Gate, Severity, Verdict
from provisioner.planning.certification.regression import (
    RepeatPolicy,
    is_narrow_miss,
    should_repeat,
    verdict_of,
)

POLICY = RepeatPolicy()


def finding(measured: str, wanted: str = "at least 460 GB/s") -> Finding:
    return Finding(
        part="host", severity=Severity.ISOLATE, detail="slow", measured=measured, wanted=wanted
    )


def result(*measured: str, wanted: str = "at least 460 GB/s") -> CheckResult:
    verdict = Verdict.FAIL if measured else Verdict.PASS
    findings = tuple(finding(m, wanted) for m in measured)
    return CheckResult(check="nccl", gate=Gate.B, verdict=verdict, findings=findings)


GOOD, SOFT, HARD = result(), result("440 GB/s"), result("300 GB/s")


@pytest.mark.parametrize(
    ("measured", "wanted", "expected"),
    [
        ("440 GB/s", "at least 460 GB/s", True),
        ("413 GB/s", "at least 460 GB/s", False),
        ("4.4", "at most 4.2", True),
        ("wrong data", "", False),
        ("", "at least 460 GB/s", False),
        ("3", "0", False),
        ("1.9e+06 MB/s", "at least 2e+06 MB/s", True),
    ],
)
def test_a_near_miss_is_a_figure_close_to_its_limit(measured, wanted, expected):
    assert is_narrow_miss(finding(measured, wanted), POLICY) is expected


def test_only_a_near_miss_is_run_again_and_at_most_three_times():
    assert should_repeat([SOFT], POLICY)
    assert should_repeat([SOFT, GOOD], POLICY)
    assert not should_repeat([SOFT, SOFT], POLICY)  # two of three: the median is known
    assert not should_repeat([SOFT, GOOD, GOOD], POLICY)
    assert not should_repeat([HARD], POLICY)
    assert not should_repeat([result("440 GB/s", "out of bounds")], POLICY)
    assert not should_repeat([GOOD], POLICY)
    assert not should_repeat([], POLICY)
    assert not should_repeat([SOFT, HARD], POLICY)


def test_the_median_stands_and_a_hard_failure_stands_for_all():
    for runs in product([GOOD, SOFT], repeat=3):
        passed = sum(r is GOOD for r in runs)
        assert verdict_of(runs, POLICY).verdict is (Verdict.PASS if passed >= 2 else Verdict.FAIL)
    assert verdict_of([SOFT, HARD], POLICY) is HARD
    assert verdict_of([HARD], POLICY) is HARD
    assert verdict_of([SOFT, SOFT], POLICY).verdict is Verdict.FAIL
