"""Fabric Manager and the persistence daemon are active."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import SERVICES
from provisioner.checks.readers.tool_output import read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

UNITS = ("nvidia-fabricmanager", "nvidia-persistenced")


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    # the exit code is 3 when a service is not active; the output shows which
    states = [line.strip() for line in split_lines(read_output(evidence, SERVICES, any_exit=True))]
    if len(states) != len(UNITS):
        raise Unreadable(f"systemctl: {len(states)} answers for {len(UNITS)} services")
    for unit, state in zip(UNITS, states, strict=True):
        if state != "active":
            yield fault(unit, Severity.CONFIG, "the service is not active", state, "active")


CHECK = Check("services", Gate.A, (SERVICES,), _findings)
