"""I11: every GPU has registered with the NVLink fabric: state Completed, status Success.

A GPU that has not cannot run CUDA on an NVSwitch system (DCGM errors 112 and 123). The words are
nvidia-smi's own documentation's; any other pair of words fails with what the driver said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.smi_query import SMI_QUERY, gpus
from provisioner.model.health import Evidence, Finding, Gate, Severity

_WANTED = ("Completed", "Success")
# newer drivers add what they know of the registered link; all but these words is a fault
_HEALTHY = frozenset({"Healthy", "Full", "False", "None", "No", "N/A", "Not Supported", "OK"})


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in gpus(evidence, context):
        fabric = gpu.section("Fabric")
        if "State" not in fabric or "Status" not in fabric:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say its fabric state and status")
        found = (fabric["State"], fabric["Status"])
        if found != _WANTED:
            yield fault(
                gpu.part,
                Severity.RESTART,
                "not registered with the NVLink fabric",
                ", ".join(found),
                ", ".join(_WANTED),
            )
        for name, value in fabric.items():
            if name.startswith("Health/") and value not in _HEALTHY:
                words = f"the fabric's health: {name.removeprefix('Health/')}"
                yield fault(gpu.part, Severity.ISOLATE, words, value)


CHECK = Check("fabric_registration", Gate.A, (SMI_QUERY,), _findings, after_load=True)
