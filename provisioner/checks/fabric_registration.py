"""Every GPU has registered with the NVLink fabric: state Completed, status Success.

A GPU that has not registered cannot run CUDA on an NVSwitch system (DCGM errors 112 and 123). The
values are those of nvidia-smi's documentation; any other pair fails, with the driver's own text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import SMI_QUERY, read_gpus
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_WANTED = ("Completed", "Success")
# newer drivers add details of the registered link; every value except these is a fault
_HEALTHY = frozenset({"Healthy", "Full", "False", "None", "No", "N/A", "Not Supported", "OK"})


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in read_gpus(evidence, context):
        fabric = gpu.get_section("Fabric")
        if "State" not in fabric or "Status" not in fabric:
            raise Unreadable(
                f"nvidia-smi -q: {gpu.pci} does not report its fabric state and status"
            )
        registration = (fabric["State"], fabric["Status"])
        if registration != _WANTED:
            yield fault(
                gpu.part,
                Severity.RESTART,
                "not registered with the NVLink fabric",
                ", ".join(registration),
                ", ".join(_WANTED),
            )
        for name, value in fabric.items():
            if name.startswith("Health/") and value not in _HEALTHY:
                detail = f"the fabric's health, {name.removeprefix('Health/')}"
                yield fault(gpu.part, Severity.ISOLATE, detail, value)


CHECK = Check("fabric_registration", Gate.A, (SMI_QUERY,), _findings, after_load=True)
