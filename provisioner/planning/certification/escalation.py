"""The step that a history of Xids and SXids asks for.

Pure: events with times go in, one step per part comes out, with its rule and source. The same code
may be an accident, a repeated fault or the end of a part; its rules are escalation_rules.csv.
The order of the events in the input is irrelevant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

from pydantic import Field

from provisioner.checks.kernel_log import CHECK as KERNEL_LOG
from provisioner.checks.xid.error_codes import Family, explain_sxid, rank_severity
from provisioner.checks.xid.xid_events import ErrorEvent, find_events
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.model.shipped_tables import read_table

# ------------------------------------------------------------------------------
# Rules for histories of Xids and SXids that ask for more than the last event does. Pure data.
#
# Each rule has its source. No rule condemns a part by itself: RMA means "collect the evidence and
# ask the vendor", as the catalogue's CONTACT_SUPPORT and RUN_FIELDDIAG do.


HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
BURST_S = 180.0  # NVSentinel merges events within 3 minutes into one


class Step(StrEnum):
    """The next step, from none to returning the part; a later one includes the earlier."""

    IGNORE = "ignore"
    MONITOR = "monitor"  # the application's fault, or to be observed further
    RESET = "reset"  # drain, reset the GPU, judge again
    RESTART = "restart"  # drain, restart the node, judge again
    DIAGNOSE = "diagnose"  # DCGM's extended diagnosis, then the vendor's field diagnosis
    RMA = "rma"  # evidence to the vendor: a candidate for return


class Occurrence(Record):
    """One Xid or SXid of a node. `part` is a serial or a slot, which does not change."""

    at: float  # Unix seconds
    family: Family = Family.XID
    code: int
    part: str
    link: int = -1
    place: str = ""  # "GPC 8, TPC 5"
    words: str = ""


class Remedy(Record):
    """A remedy that was carried out on a part, or on the node ("")."""

    at: float
    part: str = ""
    step: Literal["reset", "restart"]


Same = Literal["part", "link", "place"]


class Rule(Record):
    """A rule: so many bursts of these codes within a window, on the same object, ask for a step.

    `codes` empty: every code that asks for a reset or more by itself (a fatal one). `alone`: no
    other GPU of the node has as many; otherwise the application is at fault. `beside`: the part had
    one of these within `BURST_S` too. `after_remedy`: only events that recurred after one of these
    remedies count, with at least `remedies_min` remedies within the window.
    """

    name: str
    family: Family = Family.XID
    codes: tuple[int, ...] = ()
    count: int = Field(default=1, ge=1)
    window_s: float
    same: Same = "part"
    beside: tuple[int, ...] = ()
    after_remedy: tuple[Literal["reset", "restart"], ...] = ()
    remedies_min: int = Field(default=1, ge=1)
    alone: bool = False
    step: Step
    why: str
    source: str


def _load() -> tuple[Rule, ...]:
    return tuple(
        Rule.model_validate(
            row
            | {name: row[name].split() for name in ("codes", "beside", "after_remedy")}
            | {"alone": row["alone"] == "yes"}
        )
        for row in read_table("provisioner.planning.certification", "escalation_rules.csv")
    )


RULES = _load()
BY_THE_TABLE = "by the table"  # the rule of a single event
_STEPS = tuple(Step)
_OF_SEVERITY: dict[Severity | None, Step] = {
    None: Step.IGNORE,
    Severity.CONFIG: Step.MONITOR,
    Severity.MONITOR: Step.MONITOR,
    Severity.RESET_GPU: Step.RESET,
    Severity.RESTART: Step.RESTART,
    Severity.POWER_CYCLE: Step.RESTART,
    Severity.ISOLATE: Step.DIAGNOSE,
}


class Escalation(Record):
    """The step that one part's history asks for, and the rule behind it."""

    part: str
    step: Step
    codes: tuple[int, ...]
    rule: str
    reason: str
    source: str
    events: int  # number of bursts that count


def list_occurrences(events: Iterable[ErrorEvent]) -> tuple[Occurrence, ...]:
    """Return a log's events as history; events without a time cannot be placed and are left out."""
    return tuple(
        Occurrence(
            at=event.last_at,
            family=event.family,
            code=event.code,
            part=event.part,
            link=event.link,
            place=event.place,
            words=event.words,
        )
        for event in events
        if event.last_at is not None
    )


def find_escalations(
    history: Iterable[Occurrence],
    remedies: Sequence[Remedy],
    now: float,
    rules: Sequence[Rule] = RULES,
) -> tuple[Escalation, ...]:
    """Return the step for every part with a history, gravest first.

    A fatal SXid beside Xid 74 blames the switch: the GPUs' 74 then asks for no more than a restart.
    """
    past = sorted((o for o in history if o.at <= now), key=lambda o: (o.at, o.part, o.code))
    escalations = []
    for part in sorted({o.part for o in past}):
        mine = [o for o in past if o.part == part]
        best = _own(part, mine, now)
        matched = [m for rule in rules if (m := _match(rule, part, past, remedies, now))]
        names = {m.rule for m in matched}
        for match in matched:
            if match.rule == "48 alone" and "48 with remapping" in names:
                continue
            if best is None or _STEPS.index(match.step) > _STEPS.index(best.step):
                best = match
        if best is not None:
            escalations.append(_root(best, mine, past))
    return tuple(sorted(escalations, key=lambda e: (-_STEPS.index(e.step), e.part)))


def _own(part: str, mine: Sequence[Occurrence], now: float) -> Escalation | None:
    """The step of the gravest single event of the last day, by the tables; None without one."""
    recent = [o for o in mine if now - o.at <= DAY_S]
    if not recent:
        return None
    top = max(recent, key=lambda o: (rank_severity(_severity(o)), o.at))
    severity = _severity(top)
    # a rule above has the workflow of 48: a single event asks for a reset
    step = Step.RESET if _is(top, 48) else _OF_SEVERITY[severity]
    explanation = (
        explain_sxid(top.code) if top.family is Family.SXID else explain_xid(top.code, top.words)
    )
    return Escalation(
        part=part,
        step=step,
        codes=(top.code,),
        rule=BY_THE_TABLE,
        reason=f"{top.family} {top.code}: {explanation.meaning}",
        source=explanation.source,
        events=len(_bursts(o.at for o in recent if o.code == top.code)),
    )


def _match(
    rule: Rule, part: str, seen: Sequence[Occurrence], remedies: Sequence[Remedy], now: float
) -> Escalation | None:
    """Return the rule's step for one part; None if the rule does not apply."""
    counted = _counted(rule, part, seen, remedies, now)
    best = _most(rule, counted)
    bursts = len(_bursts(o.at for o in best))
    if bursts < rule.count:
        return None
    if rule.alone:
        further_parts = {o.part for o in seen} - {part}
        same = (_most(rule, _counted(rule, other, seen, remedies, now)) for other in further_parts)
        if any(len(_bursts(o.at for o in group)) >= rule.count for group in same):
            return None
    return Escalation(
        part=part,
        step=rule.step,
        codes=tuple(sorted({o.code for o in best})),
        rule=rule.name,
        reason=f"{rule.why} ({bursts} within {rule.window_s / HOUR_S:g} h)",
        source=rule.source,
        events=bursts,
    )


def _counted(
    rule: Rule, part: str, seen: Sequence[Occurrence], remedies: Sequence[Remedy], now: float
) -> list[Occurrence]:
    recent = [
        o
        for o in seen
        if o.part == part and now - o.at <= rule.window_s and o.family is rule.family
    ]
    counted = [o for o in recent if o.code in rule.codes or (not rule.codes and _fatal(o))]
    if rule.beside:
        near = [o.at for o in recent if o.code in rule.beside]
        counted = [o for o in counted if any(abs(o.at - at) <= BURST_S for at in near)]
    if rule.after_remedy:
        remedy_times = [
            r.at
            for r in remedies
            if r.part in ("", part) and r.step in rule.after_remedy and now - r.at <= rule.window_s
        ]
        # it occurred before the remedy, and again after it
        first = min((o.at for o in counted), default=now)
        counted = [
            o for o in counted if sum(first < at < o.at for at in remedy_times) >= rule.remedies_min
        ]
    return counted


def _most(rule: Rule, counted: Sequence[Occurrence]) -> list[Occurrence]:
    """Return the occurrences on the one link, or in the one place, that has most bursts."""
    things: dict[object, list[Occurrence]] = {}
    for occurrence in counted:
        key = {"link": occurrence.link, "place": occurrence.place}.get(rule.same, 0)
        if key not in ("", -1):
            things.setdefault(key, []).append(occurrence)
    return max(things.values(), key=lambda group: len(_bursts(o.at for o in group)), default=[])


def _root(found: Escalation, mine: Sequence[Occurrence], seen: Sequence[Occurrence]) -> Escalation:
    """Blame the switch instead of the GPU for an Xid 74 that has a fatal SXid beside it."""
    switch = [o for o in seen if o.family is Family.SXID and _fatal(o)]
    ours = [o for o in mine if _is(o, 74)]
    beside = any(abs(s.at - o.at) <= BURST_S for s in switch for o in ours)
    if not beside or set(found.codes) != {74}:
        return found
    reason = f"Xid 74 beside {switch[-1].part}'s SXid {switch[-1].code}: the switch is the cause"
    return found.model_copy(
        update={
            "step": Step.RESTART,
            "rule": "switch beside 74",
            "reason": reason,
            "source": "Fabric Manager guide; AWS",
        }
    )


def _severity(occurrence: Occurrence) -> Severity | None:
    if occurrence.family is Family.SXID:
        return explain_sxid(occurrence.code).severity
    return explain_xid(occurrence.code, occurrence.words).severity


def _fatal(occurrence: Occurrence) -> bool:
    return rank_severity(_severity(occurrence)) >= rank_severity(Severity.RESET_GPU)


def _is(occurrence: Occurrence, code: int) -> bool:
    return occurrence.family is Family.XID and occurrence.code == code


def _bursts(times: Iterable[float]) -> list[float]:
    """Return the begin of each burst: an event within `BURST_S` of the last one is in its burst."""
    begun: list[float] = []
    last = float("-inf")
    for at in sorted(times):
        if at - last > BURST_S:
            begun.append(at)
        last = at
    return begun


# ------------------------------------------------------------------------------
# The Xids and SXids of a node's earlier reports, added to the judgement of the last one. Pure.
#
# A kernel log begins anew at every boot; the reports preserve the events of earlier boots. The
# history ends where parts were exchanged, because a new GPU in the slot has no past.


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
