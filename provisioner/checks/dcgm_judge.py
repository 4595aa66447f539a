"""Judges DCGM's tests by what they say: exit codes and DCGM's own "Pass" are not enough.

A skipped test is not a pass; a failure without a severity is treated as the worst; a failure of
severity CONFIG asks to repair the host and run again (persistence mode off fails every GPU so).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from provisioner.checks.check import CheckContext, fault
from provisioner.checks.readers.dcgm_document import Result, Test, Warned
from provisioner.model.health import Finding, Severity

# dcgm_errors.h: 0 NONE, 3 UNKNOWN; whatever is not listed is the worst
_SEVERITY = {
    1: Severity.MONITOR,
    2: Severity.ISOLATE,
    4: Severity.ISOLATE,  # TRIAGE
    5: Severity.CONFIG,
    6: Severity.RESET_GPU,
}
# plugins of each level (NvidiaValidationSuite.cpp); others that a version adds are judged too
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
# a test that could not do its work may still say "Pass" (NVIDIA/DCGM issue 284)
_TROUBLE = re.compile(
    r"(?<!\b0 )(?<!\bno )\berrors?\b(?!\s*[:=]?\s*0\b)"
    r"|\bskip|\bunable\b|\bcould not\b|\bcannot\b|\bfail",
    re.IGNORECASE,
)
_BANDWIDTH = re.compile(
    r"bandwidth\D{0,40}?([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(GB/s|MB/s)", re.IGNORECASE
)


def judge_tests(
    tests: Sequence[Test], wanted: Collection[str], context: CheckContext
) -> Iterator[Finding]:
    """Every fault, and every wanted test that did not give a result for all GPUs."""
    for test in tests:
        yield from judge_test(test)
    for name in wanted:
        mine = [test for test in tests if test.name == name]
        if not mine:
            yield fault("host", Severity.CONFIG, f"DCGM did not run {name}")
            continue
        # a GPU whose result is no pass has its own finding, with DCGM's own severity
        told = {p for t in mine for r in t.results for p in r.parts if "GPU " in p}
        silent = all(not r.parts for t in mine for r in t.results)
        if silent and name == "software":
            continue  # 3.x judges the host as a whole
        if len(told) != context.gpus:
            detail = f"GPUs with a result of {name}"
            yield fault("host", Severity.ISOLATE, detail, len(told), context.gpus)


def judge_test(test: Test) -> Iterator[Finding]:
    """The faults of one test: of its results, and those that stand in its summary alone."""
    for result in test.results:
        yield from _judge_result(test.title, result)
    if test.summary != "pass":
        yield fault("host", Severity.CONFIG, f"{test.title}: summary says {test.summary}")
    told = {w.words for r in test.results for w in r.warnings}
    for words in test.said:
        if words not in told and _TROUBLE.search(words):
            yield fault("host", Severity.CONFIG, f"{test.title}: {words}")


def _judge_result(title: str, result: Result) -> Iterator[Finding]:
    part = ", ".join(result.parts) or "GPU all"
    skipped = result.status in _SKIPPED
    faults = [f for w in result.warnings if (f := _warning(title, part, w, skipped=skipped))]
    yield from faults
    if skipped:
        yield fault(part, Severity.CONFIG, f"{title}: skipped, which is no pass")
    elif result.status == "pass":
        for words in result.info:
            if _TROUBLE.search(words):
                yield fault(part, Severity.CONFIG, f"{title}: {words}")
    elif not faults:
        # no severity is given: the worst is assumed, except where DCGM itself only warns
        worst = Severity.MONITOR if result.status in ("warn", "warning") else Severity.ISOLATE
        yield fault(part, worst, f"{title}: {result.status}, without a severity")


def _warning(title: str, part: str, warned: Warned, *, skipped: bool) -> Finding | None:
    """One warning as a finding; None for severity NONE."""
    if warned.severity == 0:
        return None
    # why a test was skipped is a matter of the host, unless DCGM says more
    unsaid = Severity.CONFIG if skipped and warned.severity is None else Severity.ISOLATE
    severity = _SEVERITY.get(warned.severity, unsaid) if warned.severity is not None else unsaid
    said = f"error {warned.error_id}" if warned.error_id else ""
    return fault(part, severity, f"{title}: {warned.words}", said)


def bandwidths(tests: Sequence[Test], name: str) -> Mapping[str, float]:
    """Part -> MB/s that a test says it measured; of several figures of a part the lowest."""
    found: dict[str, float] = {}
    for result in (r for t in tests if t.name == name for r in t.results):
        for words in result.info:
            if match := _BANDWIDTH.search(words):
                value = float(match[1]) * (1000.0 if match[2].upper() == "GB/S" else 1.0)
                for part in result.parts:
                    found[part] = min(value, found.get(part, value))
    return found
