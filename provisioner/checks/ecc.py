"""ECC is on, no uncorrectable error since boot, few enough correctable errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import ECC
from provisioner.checks.readers.smi_query import (
    Row,
    find_unresponsive,
    name_part,
    parse_count,
    read_table,
    require_unique,
)
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_UNCORRECTED = "ecc.errors.uncorrected.volatile.total"
_CORRECTED = "ecc.errors.corrected.volatile.dram"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = read_table(evidence, ECC, "index", "ecc.mode.current", _UNCORRECTED, _CORRECTED)
    require_unique(rows, "index")
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report ECC", len(rows), context.gpus)
    for row in rows:
        part = name_part(row)
        if (unresponsive := find_unresponsive(row, part)) is not None:
            yield unresponsive
            continue
        for column in ("ecc.mode.current", "ecc.mode.pending"):
            if (mode := row.get(column, "Enabled")) != "Enabled":
                detail = "ECC is not enabled"
                detail += " after the next reset" if column.endswith("pending") else ""
                yield fault(part, Severity.CONFIG, detail, mode, "Enabled")
        if not _has_counts(row):
            continue  # with ECC off there are no counts, and the finding above reports that
        if (uncorrected := parse_count(row, _UNCORRECTED)) > 0:
            yield fault(
                part, Severity.RESET_GPU, "uncorrectable ECC errors since boot", uncorrected, 0
            )
        corrected = parse_count(row, _CORRECTED)
        if missed := check_threshold(context, "dram_correctable", corrected):
            detail = "correctable DRAM errors since boot"
            yield fault(part, Severity.MONITOR, detail, *missed)


def _has_counts(row: Row) -> bool:
    return row["ecc.mode.current"] == "Enabled" or row[_UNCORRECTED].isdecimal()


CHECK = Check("ecc", Gate.A, (ECC,), _findings, after_load=True, thresholds=("dram_correctable",))
