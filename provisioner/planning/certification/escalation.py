"""The step that a history of Xids and SXids asks for.

Pure: events with times go in, one step per part comes out, with its rule and source. The same code
may be an accident, a repeated fault or the end of a part; the rules are data (`escalation_rules`).
The order of the events in the input is irrelevant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.checks.xid.error_codes import Family, rank_severity
from provisioner.checks.xid.sxid_table import explain_sxid
from provisioner.checks.xid.xid_events import ErrorEvent
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.base import Record
from provisioner.model.health import Severity
from provisioner.planning.certification.escalation_rules import (
    BURST_S,
    DAY_S,
    HOUR_S,
    RULES,
    Occurrence,
    Remedy,
    Rule,
    Step,
)

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
    """Return the step of the gravest single event of the last day, by the tables; None without
    one.
    """
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
    """Return the occurrences on a part that a rule counts."""
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
