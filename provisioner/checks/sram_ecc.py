"""No uncorrectable SRAM error ever, few correctable ones, no error threshold exceeded.

SRAM has no rows to remap: an uncorrectable error stays in the aggregate count for the part's life.
The threshold flag asks for NVIDIA's field diagnostics (NVML, `bThresholdExceeded`). Drivers split
the uncorrectable count by detection (parity, SEC-DED) or give one; all of them are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.counter_growth import find_before_load
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, read_gpus
from provisioner.checks.readers.tool_output import parse_whole
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_COUNTS = (("Volatile", Severity.RESET_GPU), ("Aggregate", Severity.ISOLATE))
# the first two wait for a reset; the last one cannot be repaired (as for Xid 157)
_REPAIRS = {
    "Channel Repair Pending": Severity.RESET_GPU,
    "TPC Repair Pending": Severity.RESET_GPU,
    "Unrepairable Memory": Severity.ISOLATE,
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    listed = read_gpus(evidence, context)
    for gpu in listed:
        for when, severity in _COUNTS:
            if bad := _sum_counts(gpu, when, "SRAM Uncorrectable"):
                detail = f"uncorrectable SRAM errors ({when.lower()})"
                yield fault(gpu.part, severity, detail, bad, 0)
        corrected = _sum_counts(gpu, "Aggregate", "SRAM Correctable")
        if missed := check_threshold(context, "sram_correctable", corrected):
            detail = "correctable SRAM errors (aggregate)"
            yield fault(gpu.part, Severity.MONITOR, detail, *missed)
        flag = gpu.find("ECC Errors/Aggregate/SRAM Threshold Exceeded")
        if flag not in (None, "No", *NOT_THERE):
            detail = "the SRAM error threshold: run NVIDIA's field diagnostics"
            yield fault(gpu.part, Severity.ISOLATE, detail, flag, "No")
        for path, values in gpu.values.items():
            name = path.rpartition("/")[2]
            if name in _REPAIRS and any(v not in ("No", *NOT_THERE) for v in values):
                yield fault(gpu.part, _REPAIRS[name], name.lower(), values[0], "No")
    _require_no_reset(evidence, context, listed)


def _require_no_reset(
    evidence: Mapping[str, Evidence], context: CheckContext, after: list[GpuFacts]
) -> None:
    """Raise `Unreadable` for a GPU that was reset during the load test and so lost its counts."""
    before = find_before_load(evidence, SMI_QUERY)
    if before is None:
        return
    had = {
        g.pci: _sum_counts(g, "Volatile", "SRAM Correctable") for g in read_gpus(before, context)
    }
    for gpu in after:
        if gpu.pci not in had:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} was not there before the load test")
        new = _sum_counts(gpu, "Volatile", "SRAM Correctable") - had[gpu.pci]
        if new < 0:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} was reset during the load test")


def _sum_counts(gpu: GpuFacts, when: str, prefix: str) -> int:
    """Return the sum of all counts of this kind. With ECC off there are none: see check `ecc`."""
    listed = {
        key: value
        for key, value in gpu.get_section(f"ECC Errors/{when}").items()
        if key.startswith(prefix)
    }
    if not listed:
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report {prefix} ({when})")
    return sum(parse_whole(value, key) for key, value in listed.items())


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    return {
        f"sram_correctable/{gpu.part}": _sum_counts(gpu, "Aggregate", "SRAM Correctable")
        for gpu in read_gpus(evidence, context)
    }


CHECK = Check(
    "sram_ecc",
    Gate.A,
    (SMI_QUERY,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=("sram_correctable",),
)
