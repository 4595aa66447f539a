"""E10: nothing slows a GPU's clocks down but idleness and the power cap that software sets.

Azure's health checks allow the same three states and warn of every other. The section is called
"Clocks Throttle Reasons" up to driver 535 and "Clocks Event Reasons" from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.smi_query import NOT_THERE, SMI_QUERY, gpus
from provisioner.model.health import Evidence, Finding, Gate, Severity

_ALLOWED = frozenset({"Idle", "SW Power Cap"})
_HARDWARE = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown")
_STATES = {"Active": True, "Not Active": False}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for gpu in gpus(evidence, context):
        reasons = gpu.section("Clocks Event Reasons", "Clocks Throttle Reasons")
        if "HW Slowdown" not in reasons:
            raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say what slows its clocks")
        for path, state in sorted(reasons.items()):
            name = path.rpartition("/")[2]
            if state in NOT_THERE:
                if name in _HARDWARE:
                    raise Unreadable(f"nvidia-smi -q: {gpu.pci} does not say {name}")
                continue
            if state not in _STATES:
                if name.endswith(("Counters", "us")) or state[:1].isdigit():
                    continue  # newer drivers list counters of microseconds beside the states
                raise Unreadable(f"nvidia-smi -q: {name} is {state[:40]!r}")
            if _STATES[state] and name not in _ALLOWED:
                hard = name in _HARDWARE
                severity = Severity.ISOLATE if hard else Severity.MONITOR
                yield fault(gpu.part, severity, f"the clocks are slowed: {name}", state)


CHECK = Check("clocks", Gate.A, (SMI_QUERY,), _findings, after_load=True)
