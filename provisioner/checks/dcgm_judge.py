"""Judges DCGM's tests by their content: exit codes and DCGM's own "Pass" are not sufficient.

A skipped test does not pass. A failure without a severity counts as the worst. A failure of
severity CONFIG means that the host must be repaired and the test repeated (with persistence mode
off, every GPU fails in this way).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from provisioner.checks.check import CheckContext, fault
from provisioner.checks.readers.dcgm_document import DcgmWarning, Result, Test
from provisioner.model.cohort import Finding, Severity

# dcgm_errors.h: 0 NONE, 3 UNKNOWN; a severity that is not listed here counts as the worst
_SEVERITY = {
    1: Severity.MONITOR,
    2: Severity.ISOLATE,
    4: Severity.ISOLATE,  # TRIAGE
    5: Severity.CONFIG,
    6: Severity.RESET_GPU,
}
# plugins of each level (NvidiaValidationSuite.cpp); plugins that a version adds are judged too
LEVELS: Mapping[int, tuple[str, ...]] = {
    1: ("software",),
    2: ("software", "memory", "pcie"),
    3: (
        "software",
        "memory",
        "pcie",
        "diagnostic",
        "memory_bandwidth",
        "targeted_stress",
        "targeted_power",
    ),
}
LEVELS = {**LEVELS, 4: (*LEVELS[3], "memtest", "pulse_test")}

_SKIPPED = ("skip", "skipped", "not run", "notrun")
# a test that could not do its work may still report "Pass" (NVIDIA/DCGM issue 284)
_TROUBLE = re.compile(
    r"(?<!\b0 )(?<!\bno )\berrors?\b(?!\s*[:=]?\s*0\b)"
    r"|\bskip|\bunable\b|\bcould not\b|\bcannot\b|\bfail",
    re.IGNORECASE,
)
_BANDWIDTH = re.compile(
    r"bandwidth\D{0,40}?([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(GB/s|MB/s)", re.IGNORECASE
)


def judge_tests(
    tests: Sequence[Test], required: Collection[str], context: CheckContext
) -> Iterator[Finding]:
    """Yield every fault, and a finding for each required test without a result for all GPUs."""
    for test in tests:
        yield from judge_test(test)
    for name in required:
        mine = [test for test in tests if test.name == name]
        if not mine:
            yield fault("host", Severity.CONFIG, f"DCGM did not run {name}")
            continue
        # a GPU that did not pass has a finding of its own, with DCGM's severity
        parts = {p for t in mine for r in t.results for p in r.parts if "GPU " in p}
        silent = all(not r.parts for t in mine for r in t.results)
        if silent and name == "software":
            continue  # 3.x judges the host as a whole
        if len(parts) != context.gpus:
            detail = f"GPUs with a result of {name}"
            yield fault("host", Severity.ISOLATE, detail, len(parts), context.gpus)


def judge_test(test: Test) -> Iterator[Finding]:
    """Yield the faults of one test: of its results, and those that only its summary has."""
    for result in test.results:
        yield from _judge_result(test.title, result)
    if test.summary != "pass":
        yield fault("host", Severity.CONFIG, f"{test.title}: the summary is {test.summary}")
    warned = {w.words for r in test.results for w in r.warnings}
    for text in test.messages:
        if text not in warned and _TROUBLE.search(text):
            yield fault("host", Severity.CONFIG, f"{test.title}: {text}")


def _judge_result(title: str, result: Result) -> Iterator[Finding]:
    part = ", ".join(result.parts) or "GPU all"
    skipped = result.status in _SKIPPED
    faults = [f for w in result.warnings if (f := _judge_warning(title, part, w, skipped=skipped))]
    yield from faults
    if skipped:
        yield fault(part, Severity.CONFIG, f"{title}: skipped, which is no pass")
    elif result.status == "pass":
        for text in result.info:
            if _TROUBLE.search(text):
                yield fault(part, Severity.CONFIG, f"{title}: {text}")
    elif not faults:
        # no severity is given: the worst is assumed, except where DCGM itself only warns
        worst = Severity.MONITOR if result.status in ("warn", "warning") else Severity.ISOLATE
        yield fault(part, worst, f"{title}: {result.status}, without a severity")


def _judge_warning(title: str, part: str, warned: DcgmWarning, *, skipped: bool) -> Finding | None:
    """Return a warning as a finding; None for severity NONE."""
    if warned.severity == 0:
        return None
    # the reason for a skipped test is the host's configuration, unless DCGM gives a severity
    default = Severity.CONFIG if skipped and warned.severity is None else Severity.ISOLATE
    severity = _SEVERITY.get(warned.severity, default) if warned.severity is not None else default
    measured = f"error {warned.error_id}" if warned.error_id else ""
    return fault(part, severity, f"{title}: {warned.words}", measured)


def read_bandwidths(tests: Sequence[Test], name: str) -> Mapping[str, float]:
    """Return part -> MB/s that a test measured; the lowest where a part has several figures."""
    lowest: dict[str, float] = {}
    for result in (r for t in tests if t.name == name for r in t.results):
        for text in result.info:
            if match := _BANDWIDTH.search(text):
                value = float(match[1]) * (1000.0 if match[2].upper() == "GB/S" else 1.0)
                for part in result.parts:
                    lowest[part] = min(value, lowest.get(part, value))
    return lowest
