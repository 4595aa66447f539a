"""The GPUs are idle: no process, next to no memory in use, MIG off, default compute mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import NOT_THERE, SMI_QUERY, GpuFacts, read_gpus
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in read_gpus(evidence, context):
        for when in ("Current", "Pending"):
            mode = gpu.require(f"MIG Mode/{when}", f"MIG M./{when}")
            if mode != "Disabled" and mode not in NOT_THERE:
                detail = f"MIG is {'on' if when == 'Current' else 'to be on after a reset'}"
                yield fault(gpu.part, Severity.CONFIG, detail, mode, "Disabled")
        mode = gpu.require("Compute Mode")
        if mode != "Default":
            yield fault(gpu.part, Severity.CONFIG, "the compute mode", mode, "Default")
        used = gpu.get_quantity("FB Memory Usage/Used")
        if used is None:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report how much memory is in use")
        if missed := check_threshold(context, "idle_memory_mib", used):
            yield fault(gpu.part, Severity.CONFIG, "memory in use", *missed)
        if names := list_processes(gpu):
            shown_names = ", ".join(filter(None, names[:3])) or "without a name"
            detail = f"a foreign process: {shown_names}"
            yield fault(gpu.part, Severity.CONFIG, detail, len(names), 0)


def list_processes(gpu: GpuFacts) -> tuple[str, ...]:
    """Return the processes that use a GPU by name, "" where it has none.

    They are "Processes : None", or a section with a block for each process. Raises `Unreadable`.
    """
    if gpu.values.get("Processes") == ["None"]:
        return ()
    listed = [
        value
        for path, values in gpu.values.items()
        if path.startswith("Processes/") and path.endswith("Process ID")
        for value in values
    ]
    if not listed:
        raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not report which processes use it")
    names = [
        value
        for path, values in gpu.values.items()
        if path.startswith("Processes/") and path.endswith("/Name")
        for value in values
    ]
    return tuple((*names, *[""] * len(listed))[: len(listed)])


CHECK = Check("gpu_processes", Gate.A, (SMI_QUERY,), _findings, thresholds=("idle_memory_mib",))
