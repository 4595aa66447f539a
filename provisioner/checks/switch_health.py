"""The only check of a switch itself: its own health report says OK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, fault
from provisioner.checks.readers.tool_output import parse_json, read_output, require_object
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.node import NodeKind

HEALTH = Command(name="system_health", line="health report of the switch", limit_s=30.0)


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    health = require_object(parse_json(read_output(evidence, HEALTH), "health"), "health")
    issues = require_object(health.get("issues", {}), "issues")
    for name, issue in issues.items():
        issue_text = issue.get("issue", issue) if isinstance(issue, dict) else issue
        yield fault(name, Severity.MONITOR, "the switch reports an issue", issue_text)
    if health.get("status") != "OK" and not issues:
        yield fault("switch", Severity.MONITOR, "not healthy", health.get("status"), "OK")


CHECK = Check("switch_health", Gate.A, (HEALTH,), _findings, kind=NodeKind.SWITCH)
