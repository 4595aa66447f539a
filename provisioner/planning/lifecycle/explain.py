"""Explain one node in plain sentences: its state, the cause, the next action and the remedy. Pure.

The text uses recorded facts and the plan only; it takes no decisions, and a fact that was not
recorded is reported as unknown. Golden texts in the tests hold every sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.model.alert import Alert
from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignRow, Progress
from provisioner.model.case import Case, Service
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Finding
from provisioner.model.node import Boots, Node, NodeKind, Origin, Placement, State
from provisioner.model.operation import LedgerEntry, Operation
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.journey import JOURNEY
from provisioner.planning.lifecycle.next_step import (
    NextStep,
    describe_next_step,
    find_next_step,
    settle_blockers,
)

# ------------------------------------------------------------------------------
# Durations and foreign text, formatted for `explain` and the watch views. Pure.


WORD_MAX = 300  # characters of text from a device or a person
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def format_span(seconds: float) -> str:
    """Return a duration by its two largest units: "2 d 3 h", "5 min", "12 s"."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    for index, (unit_s, name) in enumerate(_UNITS):
        if seconds < unit_s:
            continue
        whole, remainder = divmod(seconds, unit_s)
        if index + 1 < len(_UNITS):
            small_s, small = _UNITS[index + 1]
            if remainder >= small_s:
                return f"{int(whole)} {name} {int(remainder // small_s)} {small}"
        return f"{int(whole)} {name}"
    raise AssertionError(seconds)


def format_age(seconds: float) -> str:
    """Return the time since an event as text; a negative one (a clock set back) counts as now."""
    return f"{format_span(seconds)} ago" if seconds >= 1 else "just now"


def clean_text(text: str) -> str:
    """Return foreign text in one bounded line, without characters that move a terminal's cursor."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    clean = clean.rstrip(".") if clean.endswith(".") and not clean.endswith("..") else clean
    return clean if len(clean) <= WORD_MAX else f"{clean[: WORD_MAX - 1]}…"


# ------------------------------------------------------------------------------
# Explain the next action of a node, as the lifecycle will take it; a part of `explain`. Pure.
#
# Rule: the sentences follow `lifecycle.decide` and never contradict it.


STEPS_MAX = 5  # steps of a plan that are listed


def explain_next(
    node: Node,
    now: float,
    plan: Plan | None,
    case: Case | None,
    campaign: Campaign | None,
    row: CampaignRow | None,
) -> Iterator[str]:
    """Yield sentences on the daemon's next action, or on the reason why it waits."""
    if node.is_parked:
        why = "after a fault of the provisioner's own"
        if any(b.reason is Reason.DAMAGED_ROW for b in node.blockers):
            why = "because a stored row of it cannot be read"
        yield f"Nothing by itself: it was parked {why}."
        return
    if case is not None and case.open:
        yield describe_next_step(case)
    if case is None or node.state not in (State.QUARANTINED, State.REPAIRING):
        yield from _explain_state(node, plan)
    if node.note and node.state not in (State.QUARANTINED, State.RETIRED):
        yield f"Now: {clean_text(node.note)}."
    if case is not None:
        yield from _explain_case(case, now)
    if campaign is not None and row is not None:
        yield from _explain_campaign(campaign, row, now)


def _explain_state(node: Node, plan: Plan | None) -> Iterator[str]:
    host = node.kind is NodeKind.HOST
    if node.state is State.DISCOVERED:
        yield "It is identified (vendor, credentials, parts, cards), then compared with the plan."
    elif node.state is State.INTAKE:
        fence = "Its ports are moved into the maintenance VRF; then" if host else "Then"
        yield f"{fence} every component is brought to its pin."
    elif node.state is State.CONVERGING:
        if host and node.placement is not Placement.MAINTENANCE:
            yield "Its ports are moved into the maintenance VRF before anything else."
        yield from _explain_plan(plan)
    elif node.state is State.VALIDATING:
        yield "The health checks run; if all pass it gets a certificate, else it is quarantined."
    elif node.state is State.CERTIFIED:
        yield from _explain_certified(node)
    elif node.state is State.RELEASED:
        yield "It is watched for drift, faults and the age of its certificate."
    elif node.state is State.DRAINING:
        yield "It is fenced into the maintenance VRF, erased, and converges anew."
    elif node.state is State.QUARANTINED:
        yield from _explain_quarantined(node)
    elif node.state is State.REPAIRING:
        yield "Its repair case names the next remedy; only a certificate returns it to service."
    elif node.origin is Origin.DETACHED:
        yield "Nothing: another system has it. `provisioner adopt` takes it in again."
    else:
        yield "Nothing: it is retired."


def _explain_plan(plan: Plan | None) -> Iterator[str]:
    if plan is None:
        yield "The next step is unknown: the node has no inventory to plan from."
    elif plan.blockers:
        yield f"There is no path to {clean_text(plan.release)} now, so it will be quarantined."
    elif plan.in_flight:
        listed = clean_text(", ".join(plan.in_flight[:3]))
        yield f"It waits for writes that are under way: {listed}."
    elif not plan.steps:
        yield "Every component runs its pin: the health checks come next."
    else:
        minutes = plan.duration_s / 60
        yield (
            f"Steps to {clean_text(plan.release)}: {len(plan.steps)}; resets: {plan.resets}; "
            f"about {minutes:.0f} minutes:"
        )
        for number, step in enumerate(plan.steps[:STEPS_MAX], 1):
            yield f"  {number}. {clean_text(step.title)}: {clean_text(step.reason)}."
        if len(plan.steps) > STEPS_MAX:
            yield f"  and {len(plan.steps) - STEPS_MAX} more."


def _explain_certified(node: Node) -> Iterator[str]:
    if node.kind is NodeKind.SWITCH:
        yield "It goes back into service."
    elif node.tenant:
        tenant = clean_text(node.tenant)
        yield f"It is released into the VRF of {tenant}, with proof, and watched there."
    else:
        yield "It waits for a tenant that wants a node; nothing is wrong with it."


def _explain_quarantined(node: Node) -> Iterator[str]:
    passing = bool(node.blockers) and all(b.reason in PASSING for b in node.blockers)
    if passing and node.placement is Placement.MAINTENANCE:
        yield "The cause may pass by itself: it is tried again after a pause, a few times."
    else:
        yield "Nothing by itself: a person, or a repair case, has to take the cause away."


def _explain_case(case: Case, now: float) -> Iterator[str]:
    if case.service is Service.DRAIN and case.drain_at > now:
        yield f"Case {case.id}: it is taken from its tenant in {format_span(case.drain_at - now)}."
    elif case.service is Service.KEEP:
        yield f"Case {case.id}: its tenant keeps it meanwhile."
    if case.next_at > now:
        yield f"Case {case.id}: nothing is tried in the next {format_span(case.next_at - now)}."
    if case.note:
        yield f"Case {case.id} waits for: {clean_text(case.note)}."


def _explain_campaign(campaign: Campaign, row: CampaignRow, now: float) -> Iterator[str]:
    progress = row.progress
    name = f"Campaign {campaign.id}"
    if progress.state is Progress.NOTIFIED and progress.earliest_at > now:
        wait = format_span(progress.earliest_at - now)
        yield f"{name}: its tenant has notice; it may begin in {wait}."
    elif progress.state is Progress.DEFERRED:
        wait = format_span(progress.deferred_until - now)
        yield f"{name}: its tenant put it off for {wait} more."
    elif progress.state in (Progress.PENDING, Progress.NOTIFIED):
        yield f"{name}: it waits for its turn within the campaign's limits."
    elif progress.state is Progress.SOAKING:
        yield f"{name}: it has the release, and is watched before it counts as done."


_PLACES: Mapping[Placement, str] = {
    Placement.NONE: "Its ports are in no VRF of ours",
    Placement.MAINTENANCE: "All its ports are in the maintenance VRF, proved by read-back",
    Placement.CUSTOMER: "All its ports are proved by read-back to be in the customer VRF ",
    Placement.MIXED: "Its ports may be anywhere: a move was not confirmed on every leaf",
}
ALERTS_MAX = 5  # alerts listed by name; the others are counted


class Situation(Record):
    """All recorded facts of one node. `history`: rows of its journal, the newest first."""

    node: Node
    now: float
    history: tuple[Mapping[str, Any], ...] = ()
    operation: Operation | None = None  # the active one
    under_way: tuple[LedgerEntry, ...] = ()  # actions without a recorded outcome
    plan: Plan | None = None
    certificate: Certificate | None = None  # the one in force
    revoked: str = ""  # why the certificate was revoked
    case: Case | None = None  # the open one
    campaign: Campaign | None = None  # the campaign that moves it now
    row: CampaignRow | None = None
    alerts: tuple[Alert, ...] = ()  # the open ones
    evidence: tuple[Finding, ...] = ()  # differences of signed evidence, of the last validation


class Explanation(Record):
    node: str
    what: tuple[str, ...]
    why: tuple[str, ...]
    next: tuple[str, ...]
    unblock: tuple[str, ...]  # actions for an operator; () if none is needed
    step: NextStep  # the same, in one sentence each: as every page shows it

    def format_lines(self) -> Iterator[str]:
        """Yield the explanation as text, with a heading above each part."""
        parts = (
            ("What it is", self.what),
            ("Why it is there", self.why),
            ("What comes next", self.next),
            ("What would unblock it", self.unblock or ("Nothing needs to be done.",)),
        )
        for heading, sentences in parts:
            yield f"{heading}:"
            yield from (f"  {sentence}" for sentence in sentences)


def explain(seen: Situation, confidence_min: float = 0.0) -> Explanation:
    """Return the explanation of one node at the time `now` of its situation."""
    step = find_next_step(seen.node, seen.case, seen.now, confidence_min)
    blockers = settle_blockers(seen.node.blockers, step)
    own = {(b.reason, b.subject) for b in blockers}
    plan = seen.plan and seen.plan.model_copy(
        update={
            "blockers": tuple(
                settle_blockers((b,), step)[0] if (b.reason, b.subject) in own else b
                for b in seen.plan.blockers
            )
        }
    )
    node = seen.node.model_copy(update={"blockers": blockers})
    seen = seen.model_copy(update={"node": node, "plan": plan})
    return Explanation(
        node=seen.node.id,
        what=tuple(_explain_state_explain(seen)),
        why=tuple(_explain_cause(seen)),
        next=tuple(
            explain_next(seen.node, seen.now, seen.plan, seen.case, seen.campaign, seen.row)
        ),
        unblock=tuple(_explain_remedy(seen)),
        step=step,
    )


def _explain_state_explain(seen: Situation) -> Iterator[str]:
    node = seen.node
    kind = "switch" if node.kind is NodeKind.SWITCH else "host"
    profile = (
        f" of profile {clean_text(node.profile)}" if node.profile else " of a profile not yet known"
    )
    place = clean_text(str(node.location)) or "no known place"
    yield f"{clean_text(node.id)} is a {kind}{profile}, at {place}."
    stage = JOURNEY[node.state]
    since = format_span(seen.now - node.entered_at) if node.entered_at else "an unknown time"
    work = "none, it is detached" if node.origin is Origin.DETACHED else stage.work
    yield f"Its state is {node.state}, for {since}; the work there: {work}."
    if node.kind is NodeKind.HOST:
        vrf = clean_text(node.vrf) if _is_in_customer_vrf(node) else ""
        yield f"{_PLACES[node.placement]}{vrf}."
    yield from _explain_tenant(seen)
    if node.boots is Boots.HANDED_OVER:
        yield "The daemon's login was removed from its system: only its BMCs are read."
    elif node.boots is not Boots.SYSTEM:
        empty = "; no disk has a system" if node.boots is Boots.NOTHING else ""
        yield f"It runs the maintenance image, or is on its way there or back{empty}."
    yield _explain_certificate(seen)
    if node.origin is Origin.ADOPTED:
        yield "It was adopted while it served: only acts that people granted are sent to it."
    elif node.origin is Origin.DETACHED:
        yield "It was given back to another system as it stood: nothing is sent to it."


def _is_in_customer_vrf(node: Node) -> bool:
    return node.placement is Placement.CUSTOMER


def _explain_tenant(seen: Situation) -> Iterator[str]:
    node = seen.node
    if node.release:
        yield f"It is to run release {clean_text(node.release)}."
    if node.tenant and node.state is State.RELEASED:
        yield f"Tenant {clean_text(node.tenant)} uses it."
    elif node.tenant and node.origin is Origin.DETACHED:
        yield f"Tenant {clean_text(node.tenant)} used it when it was detached."
    elif node.tenant:
        yield f"It is allocated to tenant {clean_text(node.tenant)}, which does not have it now."
    if node.served and node.served != node.tenant:
        tenant = clean_text(node.served)
        yield f"Data of tenant {tenant} may still be in it: it is erased before use."


def _explain_certificate(seen: Situation) -> str:
    held = seen.certificate
    now = seen.now
    if held is None:
        return "It has no certificate."
    gates = f"gates {held.proved}" if held.proved else "no whole gate"
    if seen.revoked:
        return f"Its certificate was revoked: {clean_text(seen.revoked)}."
    if now >= held.expires_at:
        return f"Its certificate expired {format_age(now - held.expires_at)}."
    remaining = format_span(held.expires_at - now)
    return f"Its certificate proves {gates} and is valid for {remaining} more."


def _explain_cause(seen: Situation) -> Iterator[str]:
    yield _explain_last_move(seen.history, seen.node, seen.now)
    yield from _explain_last_step(seen.history, seen.now)
    request_row = _find_newest(seen.history, "request")
    if request_row is not None:
        request = clean_text(str(request_row["detail"].get("request", "something")))
        age = format_age(seen.now - request_row["at"])
        yield f"The last thing that a person asked of it: {request}, {age}."
    yield from (
        f"{_format_blocker(b)}." for b in (*seen.node.blockers, *_read_waiting_blockers(seen))
    )
    yield from _explain_withheld(seen)
    if seen.node.attempts:
        yield f"Automatic remedies tried since its last certificate: {seen.node.attempts}."
    yield from _explain_evidence(seen.evidence)
    if seen.case is not None:
        yield from _explain_case_explain(seen.case, seen.now)
    if seen.campaign is not None and seen.row is not None:
        yield from _explain_campaign_explain(seen.campaign, seen.row)
    named = [f"{a.id} of {a.target}" if a.target else a.id for a in seen.alerts[:ALERTS_MAX]]
    if named:
        more = len(seen.alerts) - len(named)
        suffix = f" and {more} more" if more else ""
        yield f"Alerts that stand: {clean_text(', '.join(named))}{suffix}."


def _explain_last_move(rows: Sequence[Mapping[str, Any]], node: Node, now: float) -> str:
    entered = node.state.value  # two states have journal entries of their own kind
    moved = next((r for r in rows if r["kind"] in ("state", entered)), None)
    if moved is not None and moved["kind"] == entered:
        return f"It became {entered} {format_age(now - moved['at'])}."
    if moved is None or moved["detail"].get("to") != entered:
        return "How it came into this state is not in the part of the journal that was read."
    detail = moved["detail"]
    why = clean_text(str(detail.get("why", ""))) or "no reason was recorded"
    origin = clean_text(str(detail.get("from")))
    return f"It came from {origin} {format_age(now - moved['at'])}: {why}."


def _explain_last_step(rows: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    step_row = _find_newest(rows, "step")
    if step_row is None:
        return
    problems = step_row["detail"].get("problems") or ()
    ended = f"and failed: {clean_text(str(problems[0]))}" if problems else "and went well"
    title = clean_text(str(step_row["detail"].get("step", "?")))
    yield f"The last step was {title}, {format_age(now - step_row['at'])}, {ended}."


def _explain_withheld(seen: Situation) -> Iterator[str]:
    """Say which acts would have been sent to an adopted node, the newest first."""
    listed: set[str] = set()
    for row in (r for r in seen.history if r["kind"] == "would"):
        act = clean_text(str(row["detail"].get("act", "?")))
        if act not in listed and len(listed) < ALERTS_MAX:
            listed.add(act)
            why = clean_text(str(row["detail"].get("why", "")))
            yield f"It would {format_age(seen.now - row['at'])}: {act}; not sent, because {why}."


def _explain_evidence(findings: Sequence[Finding]) -> Iterator[str]:
    """Name each difference of signed evidence, with the value that was found and the golden one."""
    for finding in findings[:ALERTS_MAX]:
        text = f"{clean_text(finding.part)}: {clean_text(finding.detail)}"
        if finding.measured:
            text += f"; found {clean_text(finding.measured)}"
        if finding.wanted:
            text += f"; golden {clean_text(finding.wanted)}"
        yield f"Signed evidence of the last validation: {text}."
    if len(findings) > ALERTS_MAX:
        yield f"Signed evidence differs in {len(findings) - ALERTS_MAX} more places."


def _explain_case_explain(case: Case, now: float) -> Iterator[str]:
    yield (
        f"Repair case {case.id} was opened {format_age(now - case.opened_at)} ({case.origin}): "
        f"{clean_text(case.reason)}. It is at stage {case.stage}."
    )
    suspect = case.suspect
    if suspect is not None:
        yield (
            f"The most likely cause is {suspect.kind} {clean_text(suspect.part)} "
            f"({suspect.confidence:.0%}): {clean_text(suspect.why)}."
        )
    if case.tries:
        last = case.tries[-1]
        yield (
            f"Remedies tried: {len(case.tries)}; the last was {last.remedy} on "
            f"{clean_text(last.part)}: {last.outcome}."
        )


def _explain_campaign_explain(campaign: Campaign, row: CampaignRow) -> Iterator[str]:
    reason = f" ({clean_text(row.progress.reason)})" if row.progress.reason else ""
    yield (
        f"Campaign {campaign.id} brings it to {clean_text(campaign.target)}: in wave "
        f"{row.progress.wave + 1}, {row.progress.state}{reason}; the campaign is {campaign.state}."
    )


def _explain_remedy(seen: Situation) -> Iterator[str]:
    listed: set[str] = set()
    for blocker in (*seen.node.blockers, *(seen.plan.blockers if seen.plan else ())):
        if blocker.unblock not in listed:
            listed.add(blocker.unblock)
            yield f"{clean_text(blocker.subject)}: {clean_text(blocker.unblock)}."
    for blocker in _read_waiting_blockers(seen):
        if blocker.unblock not in listed:
            listed.add(blocker.unblock)
            yield f"It waits for {clean_text(blocker.subject)}: {clean_text(blocker.unblock)}."
    node = seen.node
    limit_s = JOURNEY[seen.node.state].limit_s
    if node.entered_at and seen.now - node.entered_at > limit_s:
        name = node.blockers[0].subject if node.blockers else (node.note or "nothing was recorded")
        yield (
            f"It is {node.state} longer than {format_span(limit_s)}, the limit of this state; "
            f"it hangs on: {clean_text(name)}."
        )
    stands = node.state is State.QUARANTINED and seen.case is None
    if stands or node.is_parked:
        yield f"When that is done: `provisioner node retry {clean_text(node.id)}`."
    if node.state is State.RELEASED and _has_invalid_certificate(seen):
        again = f"`provisioner node reclaim {clean_text(node.id)} --for-repair`"
        yield f"Its certificate is not good any more: {again} has it certified anew."
    ticket = seen.case.ticket if seen.case is not None else None
    if ticket is not None and not ticket.closed_at:
        number = clean_text(ticket.id) or "not taken yet"
        yield f"Work for people (ticket {number}): {clean_text(ticket.work).rstrip('.')}."
    stopped = seen.campaign is not None and seen.campaign.state in ("paused", "stopped")
    if seen.campaign is not None and stopped:
        reason = f" ({clean_text(seen.campaign.reason)})" if seen.campaign.reason else ""
        yield (
            f"Campaign {seen.campaign.id} is {seen.campaign.state}{reason}: "
            f"`provisioner campaign resume {seen.campaign.id}` lets it go on."
        )
    unclear = [e for e in seen.under_way if e.status == "unclear"]
    yield from (f"It is unknown whether this happened: {clean_text(e.action)}." for e in unclear)


def _read_waiting_blockers(seen: Situation) -> tuple[Blocker, ...]:
    """Return the blockers of the last turn, if the node still waits for exactly these."""
    row = _find_newest(seen.history, "waits")
    if row is None:
        return ()
    blockers = tuple(Blocker.model_validate(b, strict=False) for b in row["detail"]["blockers"])
    return blockers if blockers and str(blockers[0]) == seen.node.note else ()


def _has_invalid_certificate(seen: Situation) -> bool:
    held = seen.certificate
    return held is None or bool(seen.revoked) or seen.now >= held.expires_at


def _format_blocker(blocker: Blocker) -> str:
    return (
        f"Blocked by {blocker.reason}: {clean_text(blocker.subject)}: {clean_text(blocker.detail)}"
    )


def _find_newest(rows: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((r for r in rows if r["kind"] == kind), None)
