"""Every GPU's PCIe link supports and runs at the link of its profile: Gen5 x16.

DCGM's own floor for these parts is generation 3 (its diag-skus.yaml), so that a link trained down
to Gen4 passes DCGM; this check uses the profile's floor. An idle GPU lowers its link to the first
generation to save power. So the current generation is judged after a load only, and generation 1
there still means that the GPU is idle again. A link that really fell to it misses the bandwidth
floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import PCIE
from provisioner.checks.counter_growth import find_before_load
from provisioner.checks.readers.smi_query import (
    find_unresponsive,
    name_part,
    parse_count,
    read_table,
    require_unique,
)
from provisioner.checks.thresholds import require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_COLUMNS = ("gen.current", "gen.max", "width.current", "width.max")
IDLE_GENERATION = 1


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    names = [f"pcie.link.{column}" for column in _COLUMNS]
    rows = read_table(evidence, PCIE, "index", "pci.bus_id", *names)
    require_unique(rows, "index", "pci.bus_id")
    gen_min = require_threshold(context, "pcie_gen")
    width_min = require_threshold(context, "pcie_width")
    required = f"Gen{gen_min:g} x{width_min:g}"
    loaded = find_before_load(evidence, PCIE) is not None
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "links of GPUs", len(rows), context.gpus)
    for row in rows:
        part = f"{name_part(row)} at {row['pci.bus_id']}"
        if (unresponsive := find_unresponsive(row, part)) is not None:
            yield unresponsive
            continue
        gen, gen_max, width, width_max = (parse_count(row, name) for name in names)
        measured = f"Gen{gen} x{width} of Gen{gen_max} x{width_max}"
        slow = loaded and IDLE_GENERATION < gen < gen_max
        if gen_max < gen_min or width_max < width_min:
            yield fault(part, Severity.CONFIG, "the slot limits the PCIe link", measured, required)
        elif width < width_max or slow:
            yield fault(part, Severity.ISOLATE, "the PCIe link trained down", measured, required)


CHECK = Check(
    "pcie_link", Gate.A, (PCIE,), _findings, after_load=True, thresholds=("pcie_gen", "pcie_width")
)
