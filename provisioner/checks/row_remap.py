"""E5: no row waits for a reset to be remapped, no remapping failed, not too many were remapped.

NVML: `pending` takes effect at the next GPU reset; `failure` is sticky and makes the GPU a
candidate for return (DCGM errors 80 and 85).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import REMAP
from provisioner.checks.readers.reading import whole
from provisioner.checks.readers.smi_table import count, once, silent, table
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

_COLUMNS = tuple(
    f"remapped_rows.{name}" for name in ("correctable", "uncorrectable", "pending", "failure")
)
_FLAGS = {"No": 0, "Yes": 1}  # some drivers print words, others counts


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = table(evidence, REMAP, "gpu_uuid", *_COLUMNS)
    once(rows, "gpu_uuid")
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report remapping", len(rows), context.gpus)
    for row in rows:
        part = row["gpu_uuid"]
        if (gone := silent(row, part)) is not None:
            yield gone
            continue
        count(row, _COLUMNS[0])
        uncorrectable = count(row, _COLUMNS[1])
        pending, failure = row[_COLUMNS[2]], row[_COLUMNS[3]]
        if _flag(failure) > 0:
            yield fault(part, Severity.ISOLATE, "a row remapping failed", failure, 0)
        if _flag(pending) > 0:
            yield fault(part, Severity.RESET_GPU, "a row waits to be remapped", pending, 0)
        if missed := misses(context, "remapped_uncorrectable", uncorrectable):
            words = "rows remapped for uncorrectable errors"
            yield fault(part, Severity.ISOLATE, words, *missed)


def _flag(cell: str) -> int:
    return _FLAGS[cell] if cell in _FLAGS else whole(cell, "remapped_rows")


CHECK = Check(
    "row_remap",
    Gate.A,
    (REMAP,),
    _findings,
    after_load=True,
    thresholds=("remapped_uncorrectable",),
)
