"""No row waits for a reset to be remapped, no remapping failed, not too many were remapped.

NVML: `pending` takes effect at the next GPU reset; `failure` is sticky and makes the GPU a
candidate for return (DCGM errors 80 and 85).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import REMAP
from provisioner.checks.readers.smi_query import (
    find_unresponsive,
    parse_count,
    read_table,
    require_unique,
)
from provisioner.checks.readers.tool_output import parse_whole
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_COLUMNS = tuple(
    f"remapped_rows.{name}" for name in ("correctable", "uncorrectable", "pending", "failure")
)
_FLAGS = {"No": 0, "Yes": 1}  # some drivers print words, others counts


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = read_table(evidence, REMAP, "gpu_uuid", *_COLUMNS)
    require_unique(rows, "gpu_uuid")
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report remapping", len(rows), context.gpus)
    for row in rows:
        part = row["gpu_uuid"]
        if (unresponsive := find_unresponsive(row, part)) is not None:
            yield unresponsive
            continue
        parse_count(row, _COLUMNS[0])
        uncorrectable = parse_count(row, _COLUMNS[1])
        pending = row[_COLUMNS[2]]
        failure = row[_COLUMNS[3]]
        if _parse_flag(failure) > 0:
            yield fault(part, Severity.ISOLATE, "a row remapping failed", failure, 0)
        if _parse_flag(pending) > 0:
            yield fault(part, Severity.RESET_GPU, "a row waits to be remapped", pending, 0)
        if missed := check_threshold(context, "remapped_uncorrectable", uncorrectable):
            detail = "rows remapped for uncorrectable errors"
            yield fault(part, Severity.ISOLATE, detail, *missed)


def _parse_flag(cell: str) -> int:
    return _FLAGS[cell] if cell in _FLAGS else parse_whole(cell, "remapped_rows")


CHECK = Check(
    "row_remap",
    Gate.A,
    (REMAP,),
    _findings,
    after_load=True,
    thresholds=("remapped_uncorrectable",),
)
