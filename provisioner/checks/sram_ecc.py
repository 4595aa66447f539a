"""E4: no uncorrectable SRAM error, ever; few correctable ones; no threshold passed, nothing to do.

SRAM has no rows to remap: an uncorrectable error stays in the aggregate count for the part's life.
The threshold flag asks for NVIDIA's field diagnostics (NVML, `bThresholdExceeded`). Drivers split
the uncorrectable count by how it was found (parity, SEC-DED) or give one; all of them are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.counters import earlier
from provisioner.checks.readers.reading import whole
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, gpus
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

_COUNTS = (("Volatile", Severity.RESET_GPU), ("Aggregate", Severity.ISOLATE))
# the first two wait for a reset; for the last one no repair is left (as Xid 157 says)
_REPAIRS = {
    "Channel Repair Pending": Severity.RESET_GPU,
    "TPC Repair Pending": Severity.RESET_GPU,
    "Unrepairable Memory": Severity.ISOLATE,
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    found = gpus(evidence, context)
    for gpu in found:
        for when, severity in _COUNTS:
            if bad := _sum(gpu, when, "SRAM Uncorrectable"):
                words = f"uncorrectable SRAM errors ({when.lower()})"
                yield fault(gpu.part, severity, words, bad, 0)
        corrected = _sum(gpu, "Aggregate", "SRAM Correctable")
        if missed := misses(context, "sram_correctable", corrected):
            words = "correctable SRAM errors (aggregate)"
            yield fault(gpu.part, Severity.MONITOR, words, *missed)
        flag = gpu.find("ECC Errors/Aggregate/SRAM Threshold Exceeded")
        if flag not in (None, "No", *NOT_THERE):
            words = "the SRAM error threshold: run NVIDIA's field diagnostics"
            yield fault(gpu.part, Severity.ISOLATE, words, flag, "No")
        for path, values in gpu.values.items():
            name = path.rpartition("/")[2]
            if name in _REPAIRS and any(v not in ("No", *NOT_THERE) for v in values):
                yield fault(gpu.part, _REPAIRS[name], name.lower(), values[0], "No")
    _unbroken(evidence, context, found)


def _unbroken(
    evidence: Mapping[str, Evidence], context: CheckContext, after: list[GpuFacts]
) -> None:
    """A GPU that was reset during the load test has lost its counts: they tell nothing."""
    before = earlier(evidence, SMI_QUERY)
    if before is None:
        return
    had = {g.pci: _sum(g, "Volatile", "SRAM Correctable") for g in gpus(before, context)}
    for gpu in after:
        if gpu.pci not in had:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} was not there before the load test")
        new = _sum(gpu, "Volatile", "SRAM Correctable") - had[gpu.pci]
        if new < 0:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} was reset during the load test")


def _sum(gpu: GpuFacts, when: str, words: str) -> int:
    """All counts of this kind. With ECC off there are none, which check `ecc` reports."""
    listed = {
        key: value
        for key, value in gpu.section(f"ECC Errors/{when}").items()
        if key.startswith(words)
    }
    if not listed:
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say {words} ({when})")
    return sum(whole(value, key) for key, value in listed.items())


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    return {
        f"sram_correctable/{gpu.part}": _sum(gpu, "Aggregate", "SRAM Correctable")
        for gpu in gpus(evidence, context)
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
