"""I12: nobody uses the GPUs: no process, next to no memory in use, no MIG, compute mode open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, gpus
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in gpus(evidence, context):
        for when in ("Current", "Pending"):
            mode = gpu.word(f"MIG Mode/{when}", f"MIG M./{when}")
            if mode != "Disabled" and mode not in NOT_THERE:
                words = f"MIG is {'on' if when == 'Current' else 'to be on after a reset'}"
                yield fault(gpu.part, Severity.CONFIG, words, mode, "Disabled")
        mode = gpu.word("Compute Mode")
        if mode != "Default":
            yield fault(gpu.part, Severity.CONFIG, "the compute mode", mode, "Default")
        used = gpu.quantity("FB Memory Usage/Used")
        if used is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say how much memory is in use")
        if missed := misses(context, "idle_memory_mib", used):
            yield fault(gpu.part, Severity.CONFIG, "memory in use", *missed)
        yield from _processes(gpu)


def _processes(gpu: GpuFacts) -> Iterator[Finding]:
    """ "Processes : None", or a section with a block for each."""
    if gpu.values.get("Processes") == ["None"]:
        return
    listed = [
        value
        for path, values in gpu.values.items()
        if path.startswith("Processes/") and path.endswith("Process ID")
        for value in values
    ]
    if not listed:
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say which processes use it")
    names = [
        value
        for path, values in gpu.values.items()
        if path.startswith("Processes/") and path.endswith("/Name")
        for value in values
    ]
    words = ", ".join(names[:3]) or "without a name"
    yield fault(gpu.part, Severity.CONFIG, f"a foreign process: {words}", len(listed), 0)


CHECK = Check("gpu_processes", Gate.A, (SMI_QUERY,), _findings, thresholds=("idle_memory_mib",))
