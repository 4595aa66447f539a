"""I5: every GPU's PCIe link can do and does what the profile asks: Gen5 x16.

DCGM's own floor for these parts is generation 3 (its diag-skus.yaml), so that a link trained down
to Gen4 passes there; the floor here is the profile's. An idle GPU lowers its link to the first
generation to save power: the generation in use is judged after a load, and there the first one
still only says that the GPU is idle again. A link that truly fell to it misses the bandwidth floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, fault
from provisioner.checks.commands import PCIE
from provisioner.checks.counters import earlier
from provisioner.checks.readers.smi_table import count, once, part_of, silent, table
from provisioner.checks.thresholds import floor
from provisioner.model.health import Evidence, Finding, Gate, Severity

_COLUMNS = ("gen.current", "gen.max", "width.current", "width.max")
IDLE_GENERATION = 1


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    names = [f"pcie.link.{column}" for column in _COLUMNS]
    rows = table(evidence, PCIE, "index", "pci.bus_id", *names)
    once(rows, "index", "pci.bus_id")
    gen_min, width_min = floor(context, "pcie_gen"), floor(context, "pcie_width")
    wanted = f"Gen{gen_min:g} x{width_min:g}"
    loaded = earlier(evidence, PCIE) is not None
    if len(rows) != context.gpus:
        yield fault("host", Severity.ISOLATE, "links of GPUs", len(rows), context.gpus)
    for row in rows:
        part = f"{part_of(row)} at {row['pci.bus_id']}"
        if (gone := silent(row, part)) is not None:
            yield gone
            continue
        gen, gen_max, width, width_max = (count(row, name) for name in names)
        measured = f"Gen{gen} x{width} of Gen{gen_max} x{width_max}"
        slow = loaded and IDLE_GENERATION < gen < gen_max
        if gen_max < gen_min or width_max < width_min:
            yield fault(part, Severity.CONFIG, "the slot limits the PCIe link", measured, wanted)
        elif width < width_max or slow:
            yield fault(part, Severity.ISOLATE, "the PCIe link trained down", measured, wanted)


CHECK = Check(
    "pcie_link", Gate.A, (PCIE,), _findings, after_load=True, thresholds=("pcie_gen", "pcie_width")
)
