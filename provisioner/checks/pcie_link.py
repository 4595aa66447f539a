"""I5: every GPU's PCIe link runs at what it can and at what the profile asks: Gen5 x16.

DCGM's own floor for these parts is generation 3 (its diag-skus.yaml), so that a link trained down
to Gen4 passes there; the floor here is the profile's. A GPU that lowers its idle link to save power
looks the same as one that trained down, and fails: the bandwidth test tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import PCIE
from provisioner.checks.reading import csv_rows, text_of, whole
from provisioner.checks.thresholds import thresholds
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = csv_rows(text_of(evidence, PCIE), 6, "nvidia-smi")
    floor = thresholds(context.gpu_model)
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "links of GPUs", len(rows), context.gpus)
    for row in rows:
        part = f"GPU {whole(row[0], 'index')} at {row[1]}"
        gen, gen_max, width, width_max = (whole(cell, "pcie.link") for cell in row[2:])
        measured = f"Gen{gen} x{width} of Gen{gen_max} x{width_max}"
        wanted = f"Gen{floor.pcie_gen} x{floor.pcie_width}"
        if gen_max < floor.pcie_gen or width_max < floor.pcie_width:
            yield fault(part, Severity.CONFIG, "the slot limits the PCIe link", measured, wanted)
        elif gen < gen_max or width < width_max:
            yield fault(part, Severity.ISOLATE, "the PCIe link trained down", measured, wanted)


CHECK = Check("pcie_link", Gate.A, (PCIE,), _findings, after_load=True)
