"""E5 on GPUs that retire pages instead of remapping rows (before A100): none waits, not too many.

From 60 retired pages on NVIDIA takes the part back (Dynamic Page Retirement, "RMA policy"); Azure's
page check compares the same number. GPUs that remap rows say N/A here and must say how many rows
they remapped, which `row_remap` judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.reading import whole
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, gpus
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

_SINGLE = ("Single Bit ECC", "Multiple Single Bit ECC")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in gpus(evidence, context):
        retired = gpu.section("Retired Pages")
        told = {key: value for key, value in retired.items() if value not in NOT_THERE}
        if not told:
            if not gpu.section("Remapped Rows") and gpu.find("Remapped Rows") is None:
                raise Unreadable(f"nvidia-smi -q: {gpu.pci} tells neither pages nor rows")
            continue
        pending = told.get("Pending Page Blacklist", told.get("Pending"))
        single = next((told[key] for key in _SINGLE if key in told), None)
        double = told.get("Double Bit ECC")
        if pending is None or single is None or double is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not tell its retired pages")
        if pending != "No":
            words = "a page waits for a reset to be retired"
            yield fault(gpu.part, Severity.RESET_GPU, words, pending, "No")
        pages = whole(single, "single bit") + whole(double, "double bit")
        if missed := misses(context, "retired_pages", pages):
            yield fault(gpu.part, Severity.ISOLATE, "retired pages", *missed)


CHECK = Check(
    "page_retirement",
    Gate.A,
    (SMI_QUERY,),
    _findings,
    after_load=True,
    thresholds=("retired_pages",),
)
