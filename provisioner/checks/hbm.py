"""The memory bandwidth of every GPU, by DCGM's plugin with a minimum that we pass.

DCGM's own minimum for the H200 has the wrong unit: 2333 in a field of MB/s, which every GPU
reaches. So a "Pass" counts only if the command named a high enough minimum, or if the document
contains the measured bandwidth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, NotJudged, fault
from provisioner.checks.dcgm_judge import judge_tests, read_bandwidths
from provisioner.checks.readers.dcgm_document import read_tests
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.thresholds import check_threshold, find, require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

HBM = Command(name="hbm", line="dcgmi diag -r memory_bandwidth -j", limit_s=900.0)
_TEST = "memory_bandwidth"
_THRESHOLD = "hbm_mb_s"
_PASSED = re.compile(
    r"memory_bandwidth\.minimum_bandwidth=([0-9]{1,12}(?:\.[0-9]{1,6})?)(?![0-9.])"
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    tests = read_tests(read_output(evidence, HBM, any_exit=True))
    yield from judge_tests(tests, (_TEST,), context)
    required = require_threshold(context, _THRESHOLD)
    measured = read_bandwidths(tests, _TEST)
    for part, value in measured.items():
        low = check_threshold(context, _THRESHOLD, value)
        if low is not None:
            yield fault(part, Severity.ISOLATE, "the memory bandwidth is below its floor", *low)
    minima = [float(m) for m in _PASSED.findall(evidence[HBM.name].source)]
    if len(measured) < context.gpus and max(minima, default=0.0) < required:
        raise NotJudged(
            f"the command passed no minimum of {required:.10g} MB/s, and the document contains "
            "no measured bandwidth"
        )


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    measured = read_bandwidths(read_tests(read_output(evidence, HBM, any_exit=True)), _TEST)
    return {f"{_THRESHOLD}/{part}": value for part, value in measured.items()}


def _build_commands(context: CheckContext) -> tuple[Command, ...]:
    minimum = find(context, _THRESHOLD).value
    option = (
        f" -p 'memory_bandwidth.minimum_bandwidth={minimum:.10g}'" if minimum is not None else ""
    )
    return (HBM.model_copy(update={"line": HBM.line + option}),)


CHECK = Check(
    "hbm",
    Gate.B,
    (HBM,),
    _findings,
    load=True,
    measure=_measure,
    lines=_build_commands,
    thresholds=(_THRESHOLD,),
)
