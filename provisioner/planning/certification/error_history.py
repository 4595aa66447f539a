"""What a node's earlier reports say of its Xids and SXids, added to what the last one says. Pure.

A kernel log begins anew at every boot; the reports keep what was in the ones before. History ends
where parts were exchanged: a new GPU in the slot has no past.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from provisioner.checks.kernel_log import CHECK as KERNEL_LOG
from provisioner.checks.xid.xid_events import events_of
from provisioner.model.health import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.planning.certification.escalation import (
    BY_THE_TABLE,
    Escalation,
    escalate,
    occurrences,
)
from provisioner.planning.certification.escalation_rules import DAY_S, Occurrence, Remedy, Step

WINDOW_S = 7 * DAY_S  # the longest window of the rules
REPORTS_MAX = 50  # the newest; a node is validated a few times a week
_FRESH = frozenset({"new", "repaired"})  # causes after which parts may be others
_ASKS = {
    Step.RESET: Severity.RESET_GPU,
    Step.RESTART: Severity.RESTART,
    Step.DIAGNOSE: Severity.ISOLATE,
    Step.RMA: Severity.ISOLATE,
}


def since_parts_changed(reports: Sequence[HealthReport]) -> tuple[HealthReport, ...]:
    """The newest reports (given newest first) that are of the parts that are there now."""
    kept = []
    for report in reports[:REPORTS_MAX]:
        kept.append(report)
        if _FRESH & set(report.causes):
            break
    return tuple(kept)


def evidence_of(reports: Sequence[HealthReport]) -> tuple[str, ...]:
    """Digests of the kernel logs that these reports judged."""
    name = KERNEL_LOG.name
    found = [
        r.evidence
        for report in reports
        for r in report.results
        if r.evidence and (r.check == name or r.check.startswith(f"{name} after "))
    ]
    return tuple(dict.fromkeys(found))


def history(texts: Sequence[str], slots: Mapping[str, str]) -> tuple[Occurrence, ...]:
    """Every event of these evidences once; a text that cannot be read tells nothing."""
    found: dict[tuple[float, str, int, int], Occurrence] = {}
    for text in texts:
        for log in _logs(text):
            for o in occurrences(events_of(log.splitlines(), slots)):
                found[o.at, o.part, o.code, o.link] = o
    return tuple(found[key] for key in sorted(found))


def _logs(text: str) -> list[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    entries = document.values() if isinstance(document, dict) else ()
    logs = [e.get("text") for e in entries if isinstance(e, dict)]
    return [log for log in logs if isinstance(log, str)]


def remedied(reports: Sequence[HealthReport]) -> tuple[Remedy, ...]:
    """Restarts, as far as reports show them: each was made in a boot of its own, or may have been.

    A report that follows another was preceded by whatever remedy was tried in between.
    """
    return tuple(Remedy(at=r.started_at, step="restart") for r in reports[:-1])


def judged(
    report: HealthReport, past: Sequence[Occurrence], remedies: Sequence[Remedy], now: float
) -> HealthReport:
    """The report, its kernel log failed for every part whose history asks for a remedy.

    Only habits count: what a single event asks for was judged with its own log, and done since.
    """
    asked = [
        e
        for e in escalate(past, remedies, now)
        if e.step in _ASKS and e.rule != BY_THE_TABLE and e.events > 1
    ]
    if not asked:
        return report
    results = tuple(_with(r, asked) if r.check == KERNEL_LOG.name else r for r in report.results)
    return report.model_copy(update={"results": results})


def _with(result: CheckResult, asked: Sequence[Escalation]) -> CheckResult:
    known = {(f.part, f.severity) for f in result.findings}
    more = tuple(f for e in asked if ((f := _finding(e)).part, f.severity) not in known)
    if not more or result.verdict is Verdict.SKIPPED:
        return result
    findings = (*result.findings, *more)
    return result.model_copy(update={"verdict": Verdict.FAIL, "findings": findings})


def _finding(asked: Escalation) -> Finding:
    return Finding(
        part=asked.part[:80],
        severity=_ASKS[asked.step],
        detail=f"its history asks to {asked.step}: {asked.reason}"[:300],
        measured=f"{asked.events} times",
        wanted=f"rule {asked.rule!r} ({asked.source})"[:300],
    )
