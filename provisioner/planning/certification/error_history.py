"""The Xids and SXids of a node's earlier reports, added to the judgement of the last one. Pure.

A kernel log begins anew at every boot; the reports preserve the events of earlier boots. The
history ends where parts were exchanged, because a new GPU in the slot has no past.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from provisioner.checks.kernel_log import CHECK as KERNEL_LOG
from provisioner.checks.xid.xid_events import find_events
from provisioner.model.health import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.planning.certification.escalation import (
    BY_THE_TABLE,
    Escalation,
    find_escalations,
    list_occurrences,
)
from provisioner.planning.certification.escalation_rules import DAY_S, Occurrence, Remedy, Step

WINDOW_S = 7 * DAY_S  # the longest window of the rules
REPORTS_MAX = 50  # the newest; a node is validated a few times a week
_FRESH = frozenset({"new", "repaired"})  # causes after which parts may have been exchanged
_ASKS = {
    Step.RESET: Severity.RESET_GPU,
    Step.RESTART: Severity.RESTART,
    Step.DIAGNOSE: Severity.ISOLATE,
    Step.RMA: Severity.ISOLATE,
}


def select_since_parts_changed(reports: Sequence[HealthReport]) -> tuple[HealthReport, ...]:
    """Return the newest reports (passed newest first) that are of the present parts."""
    newest = []
    for report in reports[:REPORTS_MAX]:
        newest.append(report)
        if _FRESH & set(report.causes):
            break
    return tuple(newest)


def evidence_of(reports: Sequence[HealthReport]) -> tuple[str, ...]:
    """Return the digests of the kernel logs that these reports judged."""
    name = KERNEL_LOG.name
    digests = [
        r.evidence
        for report in reports
        for r in report.results
        if r.evidence and (r.check == name or r.check.startswith(f"{name} after "))
    ]
    return tuple(dict.fromkeys(digests))


def read_history(texts: Sequence[str], slots: Mapping[str, str]) -> tuple[Occurrence, ...]:
    """Return every event of these texts once, in order; a text that cannot be parsed has none."""
    by_identity: dict[tuple[float, str, int, int], Occurrence] = {}
    for text in texts:
        for log in _logs(text):
            for o in list_occurrences(find_events(log.splitlines(), slots)):
                by_identity[o.at, o.part, o.code, o.link] = o
    return tuple(by_identity[key] for key in sorted(by_identity))


def _logs(text: str) -> list[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    entries = document.values() if isinstance(document, dict) else ()
    logs = [e.get("text") for e in entries if isinstance(e, dict)]
    return [log for log in logs if isinstance(log, str)]


def list_restarts(reports: Sequence[HealthReport]) -> tuple[Remedy, ...]:
    """Return the restarts that reports imply: each report may have been made in a boot of its own.

    A report that follows another was preceded by the remedy that was tried in between.
    """
    return tuple(Remedy(at=r.started_at, step="restart") for r in reports[:-1])


def judge_history(
    report: HealthReport, past: Sequence[Occurrence], remedies: Sequence[Remedy], now: float
) -> HealthReport:
    """Return the report with its kernel log failed for every part whose history asks for a remedy.

    Only repeated events count: a single event was judged with its own log, and its remedy was done.
    """
    demands = [
        e
        for e in find_escalations(past, remedies, now)
        if e.step in _ASKS and e.rule != BY_THE_TABLE and e.events > 1
    ]
    if not demands:
        return report
    results = tuple(
        _fail_result(r, demands) if r.check == KERNEL_LOG.name else r for r in report.results
    )
    return report.model_copy(update={"results": results})


def _fail_result(result: CheckResult, demands: Sequence[Escalation]) -> CheckResult:
    present = {(f.part, f.severity) for f in result.findings}
    more = tuple(f for e in demands if ((f := _finding(e)).part, f.severity) not in present)
    if not more or result.verdict is Verdict.SKIPPED:
        return result
    findings = (*result.findings, *more)
    return result.model_copy(update={"verdict": Verdict.FAIL, "findings": findings})


def _finding(demand: Escalation) -> Finding:
    return Finding(
        part=demand.part[:80],
        severity=_ASKS[demand.step],
        detail=f"its history asks to {demand.step}: {demand.reason}"[:300],
        measured=f"{demand.events} times",
        wanted=f"rule {demand.rule!r} ({demand.source})"[:300],
    )
