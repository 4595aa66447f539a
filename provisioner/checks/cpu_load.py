"""CPUs and memory compute correctly under load (stress-ng), and memory is fast (STREAM).

stress-ng verifies its results (`--verify`) and needs no floor. No floor is published for STREAM's
triad: until one is learned from the fleet, that part is skipped and the result says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import parse_number, read_output, split_lines
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

STRESS = Command(
    name="stress",
    line="stress-ng --cpu 0 --vm 8 --vm-bytes 40% --verify --timeout 120s 2>&1",
    limit_s=300.0,
)
STREAM = Command(name="stream", line="stream_c", limit_s=300.0)
_THRESHOLD = "stream_triad_gb_s"

_SAID = re.compile(r"^stress-ng: ([a-z]{4,5}):\s+\[\d{1,10}\] (.*)$")
_FAILED = re.compile(r"^failed: (\d{1,9})\b")
_ENDED = re.compile(r"^(un)?successful run completed in [0-9].{0,60}(secs\)?|[0-9]s)$")
_TRIAD = re.compile(r"^Triad:\s+([0-9.]{1,20})(\s+[0-9.]{1,20}){3}$")
_VALID = re.compile(
    r"^Solution Validates: avg error less than [0-9.e+-]{1,20} on all three arrays$"
)
_INVALID = re.compile(r"Failed Validation on array")


def _judge_stress(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    messages = [
        m
        for line in split_lines(read_output(evidence, STRESS, any_exit=True))
        if (m := _SAID.match(line))
    ]
    ended = [m for line in messages if (m := _ENDED.match(line[2]))]
    if not ended:
        raise Unreadable("stress-ng: it does not report that its run completed")
    for line in messages:
        failed = _FAILED.match(line[2])
        if line[1] in ("fail", "error") or (failed and int(failed[1])):
            yield fault("host", Severity.ISOLATE, f"stress-ng: {line[2]}")
    code = evidence[STRESS.name].exit_code
    if any(match[1] for match in ended) or code != 0:
        yield fault("host", Severity.ISOLATE, "the run was not successful", f"exit code {code}", 0)


def _read_triad(evidence: Mapping[str, Evidence]) -> tuple[float, bool]:
    """Return (GB/s, whether the results were correct)."""
    lines = [line.strip() for line in split_lines(read_output(evidence, STREAM))]
    triads = [m for line in lines if (m := _TRIAD.match(line))]
    valid = [
        bool(_VALID.match(line)) for line in lines if _VALID.match(line) or _INVALID.search(line)
    ]
    if len(triads) != 1 or not valid:
        raise Unreadable("STREAM: not exactly one triad with its validation in it")
    rules = [line for line in lines if set(line) == {"-"}]
    if not rules or lines[-1] != rules[0]:  # the last line repeats the rule of the first line
        raise Unreadable("STREAM: it ends early")
    return parse_number(triads[0][1], "Triad") / 1000, all(valid)


def _judge_stream(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    gb_s, right = _read_triad(evidence)
    if not right:
        yield fault("host", Severity.ISOLATE, "STREAM gave wrong values")
    low = check_threshold(context, _THRESHOLD, gb_s)
    if low is not None:
        yield fault("host", Severity.ISOLATE, "the memory bandwidth is below its floor", *low)


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return {f"{_THRESHOLD}/host": _read_triad(evidence)[0]}


CHECK = Check("cpu_stress", Gate.D, (STRESS,), _judge_stress, load=True)
CHECK_STREAM = Check(
    "cpu_stream",
    Gate.D,
    (STREAM,),
    _judge_stream,
    load=True,
    measure=_measure,
    thresholds=(_THRESHOLD,),
)
