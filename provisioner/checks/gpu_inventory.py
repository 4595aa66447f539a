"""Eight GPUs with the serials of the Redfish inventory, one model, one VBIOS, one driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import GPUS
from provisioner.checks.readers.smi_query import (
    find_unresponsive,
    name_part,
    read_table,
    require_unique,
)
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_SAME = (("name", "model"), ("vbios_version", "VBIOS"), ("driver_version", "driver"))


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = read_table(evidence, GPUS, "index", "uuid", "serial", *(c for c, _ in _SAME))
    if len(rows) != context.gpus:
        missing = set(context.gpu_serials) - {row["serial"] for row in rows}
        detail = f"{len(rows)} of {context.gpus} GPUs"
        if missing:
            detail += f"; missing serial {', '.join(sorted(missing))}"
        yield fault("host", Severity.ISOLATE, detail, len(rows), context.gpus)
    answers = [(row, find_unresponsive(row, name_part(row))) for row in rows]
    yield from (finding for _, finding in answers if finding is not None)
    rows = [row for row, finding in answers if finding is None]
    require_unique(rows, "index", "uuid")
    if context.gpu_serials:
        for row in rows:
            if row["serial"] not in context.gpu_serials:
                yield fault(
                    name_part(row),
                    Severity.CONFIG,
                    "a serial that is not in the Redfish inventory",
                    row["serial"],
                )
    for column, name in _SAME:
        distinct = sorted({row[column] for row in rows})
        if len(distinct) > 1:
            yield fault(
                "host", Severity.CONFIG, f"the GPUs differ in {name}", ", ".join(distinct), "one"
            )


CHECK = Check("gpu_inventory", Gate.A, (GPUS,), _findings)
