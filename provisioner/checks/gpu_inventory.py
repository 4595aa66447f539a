"""I1: eight GPUs, the serials that Redfish knows, one model, one VBIOS, one driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import GPUS
from provisioner.checks.reading import csv_rows, text_of, whole
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = csv_rows(text_of(evidence, GPUS), 7, "nvidia-smi")
    if len(rows) != context.gpus:
        missing = set(context.gpu_serials) - {row[2] for row in rows}
        detail = f"{len(rows)} of {context.gpus} GPUs"
        if missing:
            detail += f"; missing serial {', '.join(sorted(missing))}"
        yield fault("host", Severity.ISOLATE, detail, len(rows), context.gpus)
    indexes = [whole(row[0], "index") for row in rows]
    if len(set(indexes)) != len(rows) or len({row[1] for row in rows}) != len(rows):
        raise Unreadable("nvidia-smi: one GPU is listed twice")
    if context.gpu_serials:
        for row in rows:
            if row[2] not in context.gpu_serials:
                yield fault(
                    f"GPU {row[0]}",
                    Severity.CONFIG,
                    "a serial that the Redfish inventory does not know",
                    row[2],
                )
    for column, name in ((3, "model"), (5, "VBIOS"), (6, "driver")):
        seen = sorted({row[column] for row in rows})
        if len(seen) > 1:
            yield fault(
                "host", Severity.CONFIG, f"the GPUs differ in {name}", ", ".join(seen), "one"
            )


CHECK = Check("gpu_inventory", Gate.A, (GPUS,), _findings)
