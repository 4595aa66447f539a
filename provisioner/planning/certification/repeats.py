"""Repetition of failed load tests, and the joint verdict of several runs. Pure.

A figure that is slightly too low may be chance; the test runs three times, and the median decides,
not the best, because a test that is repeated until it passes proves nothing. Wrong data, a crash, a
timeout, or a figure far below its floor is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from provisioner.model.base import Record
from provisioner.model.health import CheckResult, Finding, Verdict

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class RepeatPolicy(Record):
    """Limits for repetitions; proposals, to be tuned."""

    runs: int = 3  # odd, so that there is a median
    soft: float = 0.10  # a figure within 10 % of its limit may be chance


def is_narrow_miss(finding: Finding, policy: RepeatPolicy) -> bool:
    """Return whether a finding is a figure that narrowly misses its limit."""
    measured = _NUMBER.search(finding.measured)
    limit_text = _NUMBER.search(finding.wanted)
    if measured is None or limit_text is None:
        return False
    limit = float(limit_text[0])
    return limit != 0 and abs(float(measured[0]) - limit) <= policy.soft * abs(limit)


def should_repeat(results: Sequence[CheckResult], policy: RepeatPolicy) -> bool:
    """Return whether a load test with these results so far is to run once more."""
    if not results or results[0].verdict is not Verdict.FAIL or len(results) >= policy.runs:
        return False
    # the figures must miss softly in every run that failed; one hard failure ends it
    failed = [r for r in results if r.verdict is not Verdict.PASS]
    if not all(r.findings and all(is_narrow_miss(f, policy) for f in r.findings) for r in failed):
        return False
    return not _decided(results, policy)


def verdict_of(results: Sequence[CheckResult], policy: RepeatPolicy) -> CheckResult:
    """Return the median run, or the first run that failed by more than a narrow miss."""
    assert results
    if len(results) == 1:
        return results[0]
    for result in results:
        if result.verdict is not Verdict.PASS and not all(
            is_narrow_miss(f, policy) for f in result.findings
        ):
            return result
    passed = [r for r in results if r.verdict is Verdict.PASS]
    failed = [r for r in results if r.verdict is not Verdict.PASS]
    return passed[-1] if len(passed) > policy.runs // 2 else failed[-1]


def _decided(results: Sequence[CheckResult], policy: RepeatPolicy) -> bool:
    most = policy.runs // 2 + 1
    passed = sum(r.verdict is Verdict.PASS for r in results)
    return passed >= most or len(results) - passed >= most
