"""T9: the memory bandwidth of every GPU, by DCGM's plugin with a minimum that we pass.

DCGM's own minimum for the H200 is a unit slip: 2333 in a field of MB/s, which no GPU can miss. So
a "Pass" counts only if the command named a minimum that is high enough, or the document tells what
was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, NotJudged, fault
from provisioner.checks.dcgm_judge import bandwidths, judge_tests
from provisioner.checks.readers.dcgm_document import tests_of
from provisioner.checks.readers.reading import text_of
from provisioner.checks.thresholds import find, floor, misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

HBM = Command(name="hbm", line="dcgmi diag -r memory_bandwidth -j", limit_s=900.0)
_TEST, _THRESHOLD = "memory_bandwidth", "hbm_mb_s"
_PASSED = re.compile(
    r"memory_bandwidth\.minimum_bandwidth=([0-9]{1,12}(?:\.[0-9]{1,6})?)(?![0-9.])"
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    tests = tests_of(text_of(evidence, HBM, any_exit=True))
    yield from judge_tests(tests, (_TEST,), context)
    wanted = floor(context, _THRESHOLD)
    measured = bandwidths(tests, _TEST)
    for part, value in measured.items():
        low = misses(context, _THRESHOLD, value)
        if low is not None:
            yield fault(part, Severity.ISOLATE, "the memory bandwidth is below its floor", *low)
    minima = [float(m) for m in _PASSED.findall(evidence[HBM.name].source)]
    if len(measured) < context.gpus and max(minima, default=0.0) < wanted:
        raise NotJudged(
            f"the command passed no minimum of {wanted:.10g} MB/s, and the document tells "
            "no measured bandwidth"
        )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    found = bandwidths(tests_of(text_of(evidence, HBM, any_exit=True)), _TEST)
    return {f"{_THRESHOLD}/{part}": value for part, value in found.items()}


def _lines(context: CheckContext) -> tuple[Command, ...]:
    wanted = find(context, _THRESHOLD).value
    told = f" -p 'memory_bandwidth.minimum_bandwidth={wanted:.10g}'" if wanted is not None else ""
    return (HBM.model_copy(update={"line": HBM.line + told}),)


CHECK = Check(
    "hbm",
    Gate.B,
    (HBM,),
    _findings,
    load=True,
    measure=_measure,
    lines=_lines,
    thresholds=(_THRESHOLD,),
)
