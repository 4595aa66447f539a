"""T4: an all-reduce over all GPUs of the node is correct, and above its floor of bus bandwidth.

Wrong values are data corruption: the node is isolated, the test is never tried again until it
passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NCCL
from provisioner.checks.reading import lines_of, number, text_of, whole
from provisioner.checks.thresholds import known, thresholds
from provisioner.model.health import Evidence, Finding, Gate, Severity

_BOUNDS = re.compile(r"^# Out of bounds values\s*: (\d{1,18}) (OK|FAILED)\s*$")
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*: ([0-9.]{1,16})\s*(OK|FAILED)?\s*$")
_RANK = re.compile(r"^#\s+Rank\s+(\d+) ")
_SIZE = 16 * 1024**3
_ROW_CELLS = (13,)  # size count type redop root, then time algbw busbw #wrong twice


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    lines = lines_of(text_of(evidence, NCCL, any_exit=True))
    bounds = [m for line in lines if (m := _BOUNDS.match(line))]
    averages = [(n, m) for n, line in enumerate(lines) if (m := _AVERAGE.match(line))]
    if len(bounds) != 1 or len(averages) != 1:
        raise Unreadable("nccl-tests: not exactly one result in it")
    at, average = averages[0]
    if not any(line.startswith("#") for line in lines[at + 1 :]):
        raise Unreadable("nccl-tests: it ends early")
    ranks = {m[1] for line in lines if (m := _RANK.match(line))}
    if len(ranks) != context.gpus:
        yield fault("host", Severity.CONFIG, "ranks in the all-reduce", len(ranks), context.gpus)
    # wrong values and a missed bandwidth end with an exit code too: the content says which
    code = evidence[NCCL.name].exit_code
    if code != 0 and bounds[0][2] == "OK" and average[2] != "FAILED":
        yield fault("host", Severity.CONFIG, "the all-reduce ended with an error", code, 0)
    wrong = whole(bounds[0][1], "out of bounds") + _wrong(lines)
    if wrong or bounds[0][2] != "OK":
        yield fault("host", Severity.ISOLATE, "the all-reduce gave wrong values", wrong, 0)
    floor = known(
        thresholds(context.gpu_model).all_reduce_gb_s, "all-reduce bandwidth", context.gpu_model
    )
    measured = number(average[1], "bus bandwidth")
    if measured < floor or average[2] == "FAILED":
        yield fault(
            "host",
            Severity.ISOLATE,
            "the all-reduce is below its floor",
            f"{measured:.1f} GB/s",
            f"{floor:.1f} GB/s",
        )


def _wrong(lines: list[str]) -> int:
    """Wrong values in the rows of the wanted size; "N/A" where a row did not verify."""
    rows = [cells for line in lines if (cells := line.split()) and cells[0] == str(_SIZE)]
    if not rows or any(len(cells) not in _ROW_CELLS for cells in rows):
        raise Unreadable(f"nccl-tests: no row of {_SIZE} bytes that can be read")
    total = 0
    for cells in rows:
        counted = [whole(cell, "#wrong") for cell in (cells[8], cells[12]) if cell != "N/A"]
        if not counted:
            raise Unreadable("nccl-tests: nothing was verified")
        total += sum(counted)
    return total


CHECK = Check("nccl_single", Gate.B, (NCCL,), _findings, load=True)
