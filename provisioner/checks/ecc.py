"""E1 to E3: ECC is on, nothing uncorrectable since boot, few enough correctable errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import ECC
from provisioner.checks.reading import csv_rows, text_of, whole
from provisioner.checks.thresholds import DRAM_CORRECTABLE_MAX
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = csv_rows(text_of(evidence, ECC), 4, "nvidia-smi")
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that report ECC", len(rows), context.gpus)
    for row in rows:
        part = f"GPU {whole(row[0], 'index')}"
        if row[1] != "Enabled":
            yield fault(part, Severity.CONFIG, "ECC is not enabled", row[1], "Enabled")
        if (uncorrected := whole(row[2], "uncorrected")) > 0:
            yield fault(
                part, Severity.RESET_GPU, "uncorrectable ECC errors since boot", uncorrected, 0
            )
        if (corrected := whole(row[3], "corrected")) >= DRAM_CORRECTABLE_MAX:
            yield fault(
                part,
                Severity.MONITOR,
                "correctable DRAM errors since boot",
                corrected,
                f"below {DRAM_CORRECTABLE_MAX}",
            )


CHECK = Check("ecc", Gate.A, (ECC,), _findings, after_load=True)
