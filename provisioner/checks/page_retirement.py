"""GPUs that retire pages instead of remapping rows (before A100): none pending, not too many.

From 60 retired pages on NVIDIA takes the part back (Dynamic Page Retirement, "RMA policy"); Azure's
page check uses the same number. GPUs that remap rows print N/A here and must report how many rows
they remapped, which `row_remap` judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, read_gpus
from provisioner.checks.readers.tool_output import parse_whole
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_SINGLE = ("Single Bit ECC", "Multiple Single Bit ECC")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in read_gpus(evidence, context):
        retired = gpu.get_section("Retired Pages")
        reported = {key: value for key, value in retired.items() if value not in NOT_THERE}
        if not reported:
            if not gpu.get_section("Remapped Rows") and gpu.find("Remapped Rows") is None:
                raise Unreadable(
                    f"nvidia-smi -q: {gpu.pci} reports neither retired pages nor remapped rows"
                )
            continue
        pending = reported.get("Pending Page Blacklist", reported.get("Pending"))
        single = next((reported[key] for key in _SINGLE if key in reported), None)
        double = reported.get("Double Bit ECC")
        if pending is None or single is None or double is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report its retired pages")
        if pending != "No":
            detail = "a page waits for a reset to be retired"
            yield fault(gpu.part, Severity.RESET_GPU, detail, pending, "No")
        pages = parse_whole(single, "single bit") + parse_whole(double, "double bit")
        if missed := check_threshold(context, "retired_pages", pages):
            yield fault(gpu.part, Severity.ISOLATE, "retired pages", *missed)


CHECK = Check(
    "page_retirement",
    Gate.A,
    (SMI_QUERY,),
    _findings,
    after_load=True,
    thresholds=("retired_pages",),
)
