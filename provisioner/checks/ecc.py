"""E1 to E3: ECC is on, nothing uncorrectable since boot, few enough correctable errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import ECC
from provisioner.checks.readers.smi_table import Row, count, once, part_of, silent, table
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

_UNCORRECTED = "ecc.errors.uncorrected.volatile.total"
_CORRECTED = "ecc.errors.corrected.volatile.dram"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = table(evidence, ECC, "index", "ecc.mode.current", _UNCORRECTED, _CORRECTED)
    once(rows, "index")
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report ECC", len(rows), context.gpus)
    for row in rows:
        part = part_of(row)
        if (gone := silent(row, part)) is not None:
            yield gone
            continue
        for column in ("ecc.mode.current", "ecc.mode.pending"):
            if (mode := row.get(column, "Enabled")) != "Enabled":
                words = "ECC is not enabled"
                words += " after the next reset" if column.endswith("pending") else ""
                yield fault(part, Severity.CONFIG, words, mode, "Enabled")
        if not _counts(row):
            continue  # with ECC off there is nothing to count, and that is reported
        if (uncorrected := count(row, _UNCORRECTED)) > 0:
            yield fault(
                part, Severity.RESET_GPU, "uncorrectable ECC errors since boot", uncorrected, 0
            )
        corrected = count(row, _CORRECTED)
        if missed := misses(context, "dram_correctable", corrected):
            words = "correctable DRAM errors since boot"
            yield fault(part, Severity.MONITOR, words, *missed)


def _counts(row: Row) -> bool:
    return row["ecc.mode.current"] == "Enabled" or row[_UNCORRECTED].isdecimal()


CHECK = Check("ecc", Gate.A, (ECC,), _findings, after_load=True, thresholds=("dram_correctable",))
