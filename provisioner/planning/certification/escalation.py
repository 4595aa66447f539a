"""What a history of Xids and SXids asks for: the same code may be an accident, a habit, or an end.

Pure: events with times in, one action per part out, with the rule and where it comes from. The
rules are data (`escalation_rules`). The order in which a history is told means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.checks.xid.error_codes import Family, rank
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
    """What one part's history asks for, and by which rule."""

    part: str
    step: Step
    codes: tuple[int, ...]
    rule: str
    reason: str
    source: str
    events: int  # bursts that count


def occurrences(events: Iterable[ErrorEvent]) -> tuple[Occurrence, ...]:
    """A log's events as history; those without a time are left out, they cannot be placed."""
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


def escalate(
    history: Iterable[Occurrence],
    remedies: Sequence[Remedy],
    now: float,
    rules: Sequence[Rule] = RULES,
) -> tuple[Escalation, ...]:
    """What every part's history asks for, gravest first. Order of the history means nothing.

    A fatal SXid beside Xid 74 blames the switch: the GPUs' 74 then asks for no more than a restart.
    """
    seen = sorted((o for o in history if o.at <= now), key=lambda o: (o.at, o.part, o.code))
    found = []
    for part in sorted({o.part for o in seen}):
        mine = [o for o in seen if o.part == part]
        best = _own(part, mine, now)
        matched = [m for rule in rules if (m := _match(rule, part, seen, remedies, now))]
        names = {m.rule for m in matched}
        for match in matched:
            if match.rule == "48 alone" and "48 with remapping" in names:
                continue
            if best is None or _STEPS.index(match.step) > _STEPS.index(best.step):
                best = match
        if best is not None:
            found.append(_root(best, mine, seen))
    return tuple(sorted(found, key=lambda e: (-_STEPS.index(e.step), e.part)))


def _own(part: str, mine: Sequence[Occurrence], now: float) -> Escalation | None:
    """What the gravest single event of the last day asks for, by the tables."""
    recent = [o for o in mine if now - o.at <= DAY_S]
    if not recent:
        return None
    top = max(recent, key=lambda o: (rank(_severity(o)), o.at))
    severity = _severity(top)
    # the workflow of 48 is a rule here: by itself it resets
    step = Step.RESET if _is(top, 48) else _OF_SEVERITY[severity]
    told = explain_sxid(top.code) if top.family is Family.SXID else explain_xid(top.code, top.words)
    return Escalation(
        part=part,
        step=step,
        codes=(top.code,),
        rule=BY_THE_TABLE,
        reason=f"{top.family} {top.code}: {told.meaning}",
        source=told.source,
        events=len(_bursts(o.at for o in recent if o.code == top.code)),
    )


def _match(
    rule: Rule, part: str, seen: Sequence[Occurrence], remedies: Sequence[Remedy], now: float
) -> Escalation | None:
    """The rule's answer for one part; None if it does not apply."""
    counted = _counted(rule, part, seen, remedies, now)
    best = _most(rule, counted)
    bursts = len(_bursts(o.at for o in best))
    if bursts < rule.count:
        return None
    if rule.alone:
        others = {o.part for o in seen} - {part}
        same = (_most(rule, _counted(rule, other, seen, remedies, now)) for other in others)
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
    """The occurrences on a part that a rule counts."""
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
        done = [
            r.at
            for r in remedies
            if r.part in ("", part) and r.step in rule.after_remedy and now - r.at <= rule.window_s
        ]
        # it was there before the remedy, and came again after it
        first = min((o.at for o in counted), default=now)
        counted = [o for o in counted if sum(first < at < o.at for at in done) >= rule.remedies_min]
    return counted


def _most(rule: Rule, counted: Sequence[Occurrence]) -> list[Occurrence]:
    """Those on the one link, or in the one place, that has most bursts."""
    things: dict[object, list[Occurrence]] = {}
    for occurrence in counted:
        key = {"link": occurrence.link, "place": occurrence.place}.get(rule.same, 0)
        if key not in ("", -1):
            things.setdefault(key, []).append(occurrence)
    return max(things.values(), key=lambda group: len(_bursts(o.at for o in group)), default=[])


def _root(found: Escalation, mine: Sequence[Occurrence], seen: Sequence[Occurrence]) -> Escalation:
    """With a fatal SXid beside it, an Xid 74 is not the GPU's fault."""
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
    return rank(_severity(occurrence)) >= rank(Severity.RESET_GPU)


def _is(occurrence: Occurrence, code: int) -> bool:
    return occurrence.family is Family.XID and occurrence.code == code


def _bursts(times: Iterable[float]) -> list[float]:
    """The beginning of each burst: what follows within `BURST_S` of its last is the same one."""
    begun: list[float] = []
    last = float("-inf")
    for at in sorted(times):
        if at - last > BURST_S:
            begun.append(at)
        last = at
    return begun
