"""What a node is, why it is there, what comes next and what would unblock it, in plain words. Pure.

Rule: it tells what is written down and what the plan says; it decides nothing, and what nobody
recorded is said to be unknown. Golden texts in the tests hold every sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.model.alert import Alert
from provisioner.model.base import Record
from provisioner.model.campaign import Campaign
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.node import Boots, Node, NodeKind, Placement, State
from provisioner.model.operation import LedgerEntry, Operation
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan
from provisioner.planning.lifecycle.explain_next import coming
from provisioner.planning.lifecycle.explain_words import ago, span, word
from provisioner.planning.lifecycle.journey import JOURNEY

_PLACES: Mapping[Placement, str] = {
    Placement.NONE: "Its ports are in no VRF of ours",
    Placement.MAINTENANCE: "All its ports are in the maintenance VRF, proved by read-back",
    Placement.CUSTOMER: "All its ports are proved by read-back to be in the customer VRF ",
    Placement.MIXED: "Its ports may be anywhere: a move was not confirmed on every leaf",
}
ALERTS_MAX = 5  # that are named; the others are counted


class Situation(Record):
    """All that is known of one node. `history`: rows of its journal, the newest first."""

    node: Node
    now: float
    history: tuple[Mapping[str, Any], ...] = ()
    operation: Operation | None = None  # the active one
    under_way: tuple[LedgerEntry, ...] = ()  # actions whose outcome is not known yet
    plan: Plan | None = None
    certificate: Certificate | None = None  # the one in force
    revoked: str = ""  # why it is not believed any more
    case: Case | None = None  # the open one
    campaign: Campaign | None = None  # that moves it now
    row: CampaignRow | None = None
    alerts: tuple[Alert, ...] = ()  # that stand


class Explanation(Record):
    """Sentences for a person."""

    node: str
    what: tuple[str, ...]
    why: tuple[str, ...]
    next: tuple[str, ...]
    unblock: tuple[str, ...]  # what a person can do; (): nothing needs to be done

    def lines(self) -> Iterator[str]:
        """As text, a heading above each part."""
        parts = (
            ("What it is", self.what),
            ("Why it is there", self.why),
            ("What comes next", self.next),
            ("What would unblock it", self.unblock or ("Nothing needs to be done.",)),
        )
        for heading, sentences in parts:
            yield f"{heading}:"
            yield from (f"  {sentence}" for sentence in sentences)


def explain(seen: Situation) -> Explanation:
    """The whole story of one node as it stands at `seen.now`."""
    return Explanation(
        node=seen.node.id,
        what=tuple(_what(seen)),
        why=tuple(_why(seen)),
        next=tuple(coming(seen.node, seen.now, seen.plan, seen.case, seen.campaign, seen.row)),
        unblock=tuple(_unblock(seen)),
    )


def _what(seen: Situation) -> Iterator[str]:
    node = seen.node
    kind = "switch" if node.kind is NodeKind.SWITCH else "host"
    profile = f" of profile {word(node.profile)}" if node.profile else " of a profile not yet known"
    place = word(str(node.location)) or "no known place"
    yield f"{word(node.id)} is a {kind}{profile}, at {place}."
    stage = JOURNEY[node.state]
    since = span(seen.now - node.entered_at) if node.entered_at else "an unknown time"
    yield f"Its state is {node.state}, for {since}; the work there: {stage.work}."
    if node.kind is NodeKind.HOST:
        yield f"{_PLACES[node.placement]}{word(node.vrf) if _inside(node) else ''}."
    yield from _belongs(seen)
    if node.boots is not Boots.SYSTEM:
        empty = "; no disk has a system" if node.boots is Boots.NOTHING else ""
        yield f"It runs the maintenance image, or is on its way there or back{empty}."
    yield _certificate(seen)


def _inside(node: Node) -> bool:
    return node.placement is Placement.CUSTOMER


def _belongs(seen: Situation) -> Iterator[str]:
    node = seen.node
    if node.release:
        yield f"It is to run release {word(node.release)}."
    if node.tenant and node.state is State.RELEASED:
        yield f"Tenant {word(node.tenant)} uses it."
    elif node.tenant:
        yield f"It is allocated to tenant {word(node.tenant)}, which does not have it now."
    if node.served and node.served != node.tenant:
        yield f"Data of tenant {word(node.served)} may still be in it: it is erased before use."


def _certificate(seen: Situation) -> str:
    held, now = seen.certificate, seen.now
    if held is None:
        return "It has no certificate."
    gates = f"gates {held.proved}" if held.proved else "no whole gate"
    if seen.revoked:
        return f"Its certificate was revoked: {word(seen.revoked)}."
    if now >= held.expires_at:
        return f"Its certificate expired {ago(now - held.expires_at)}."
    return f"Its certificate proves {gates} and is valid for {span(held.expires_at - now)} more."


def _why(seen: Situation) -> Iterator[str]:
    yield _last_move(seen.history, seen.node, seen.now)
    yield from _steps(seen.history, seen.now)
    asked = _newest(seen.history, "request")
    if asked is not None:
        request = word(str(asked["detail"].get("request", "something")))
        yield f"The last thing that a person asked of it: {request}, {ago(seen.now - asked['at'])}."
    yield from (f"{_blocked(b)}." for b in (*seen.node.blockers, *_waited_for(seen)))
    if seen.node.attempts:
        yield f"Automatic remedies tried since its last certificate: {seen.node.attempts}."
    if seen.case is not None:
        yield from _of_case(seen.case, seen.now)
    if seen.campaign is not None and seen.row is not None:
        yield from _of_campaign(seen.campaign, seen.row)
    named = [f"{a.id} of {a.target}" if a.target else a.id for a in seen.alerts[:ALERTS_MAX]]
    if named:
        more = len(seen.alerts) - len(named)
        rest = f" and {more} more" if more else ""
        yield f"Alerts that stand: {word(', '.join(named))}{rest}."


def _last_move(rows: Sequence[Mapping[str, Any]], node: Node, now: float) -> str:
    entered = node.state.value  # two states have entries of their own, with what was decided
    moved = next((r for r in rows if r["kind"] in ("state", entered)), None)
    if moved is not None and moved["kind"] == entered:
        return f"It became {entered} {ago(now - moved['at'])}."
    if moved is None or moved["detail"].get("to") != entered:
        return "How it came into this state is not in the part of the journal that was read."
    detail = moved["detail"]
    why = word(str(detail.get("why", ""))) or "no reason was recorded"
    return f"It came from {word(str(detail.get('from')))} {ago(now - moved['at'])}: {why}."


def _steps(rows: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    done = _newest(rows, "step")
    if done is None:
        return
    problems = done["detail"].get("problems") or ()
    ended = f"and failed: {word(str(problems[0]))}" if problems else "and went well"
    title = word(str(done["detail"].get("step", "?")))
    yield f"The last step was {title}, {ago(now - done['at'])}, {ended}."


def _of_case(case: Case, now: float) -> Iterator[str]:
    yield (
        f"Repair case {case.id} was opened {ago(now - case.opened_at)} ({case.origin}): "
        f"{word(case.reason)}. It is at stage {case.stage}."
    )
    suspect = case.suspect
    if suspect is not None:
        yield (
            f"The most likely cause is {suspect.kind} {word(suspect.part)} "
            f"({suspect.confidence:.0%}): {word(suspect.why)}."
        )
    if case.tries:
        last = case.tries[-1]
        yield (
            f"Remedies tried: {len(case.tries)}; the last was {last.remedy} on "
            f"{word(last.part)}: {last.outcome}."
        )


def _of_campaign(campaign: Campaign, row: CampaignRow) -> Iterator[str]:
    reason = f" ({word(row.progress.reason)})" if row.progress.reason else ""
    yield (
        f"Campaign {campaign.id} brings it to {word(campaign.target)}: in wave "
        f"{row.progress.wave + 1}, {row.progress.state}{reason}; the campaign is {campaign.state}."
    )


def _unblock(seen: Situation) -> Iterator[str]:
    told: set[str] = set()
    for blocker in (*seen.node.blockers, *(seen.plan.blockers if seen.plan else ())):
        if blocker.unblock not in told:
            told.add(blocker.unblock)
            yield f"{word(blocker.subject)}: {word(blocker.unblock)}."
    for blocker in _waited_for(seen):
        if blocker.unblock not in told:
            told.add(blocker.unblock)
            yield f"It waits for {word(blocker.subject)}: {word(blocker.unblock)}."
    node, limit_s = seen.node, JOURNEY[seen.node.state].limit_s
    if node.entered_at and seen.now - node.entered_at > limit_s:
        name = node.blockers[0].subject if node.blockers else (node.note or "nothing was recorded")
        yield (
            f"It is {node.state} longer than {span(limit_s)}, the limit of this state; "
            f"it hangs on: {word(name)}."
        )
    if node.state is State.QUARANTINED or node.is_parked:
        yield f"When that is done: `provisioner node retry {word(node.id)}`."
    if node.state is State.RELEASED and _worthless(seen):
        again = f"`provisioner node reclaim {word(node.id)} --for-repair`"
        yield f"Its certificate is not good any more: {again} has it certified anew."
    ticket = seen.case.ticket if seen.case is not None else None
    if ticket is not None and not ticket.closed_at:
        yield f"Work for people (ticket {word(ticket.id) or 'not taken yet'}): {word(ticket.work)}."
    stopped = seen.campaign is not None and seen.campaign.state in ("paused", "stopped")
    if seen.campaign is not None and stopped:
        reason = f" ({word(seen.campaign.reason)})" if seen.campaign.reason else ""
        yield (
            f"Campaign {seen.campaign.id} is {seen.campaign.state}{reason}: "
            f"`provisioner campaign resume {seen.campaign.id}` lets it go on."
        )
    unclear = [e for e in seen.under_way if e.status == "unclear"]
    yield from (f"Whether this happened cannot be told: {word(e.action)}." for e in unclear)


def _waited_for(seen: Situation) -> tuple[Blocker, ...]:
    """Return what the last turn failed on, if the node still waits for exactly that."""
    row = _newest(seen.history, "waits")
    if row is None:
        return ()
    found = tuple(Blocker.model_validate(b, strict=False) for b in row["detail"]["blockers"])
    return found if found and str(found[0]) == seen.node.note else ()


def _worthless(seen: Situation) -> bool:
    held = seen.certificate
    return held is None or bool(seen.revoked) or seen.now >= held.expires_at


def _blocked(blocker: Blocker) -> str:
    return f"Blocked by {blocker.reason}: {word(blocker.subject)}: {word(blocker.detail)}"


def _newest(rows: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((r for r in rows if r["kind"] == kind), None)
