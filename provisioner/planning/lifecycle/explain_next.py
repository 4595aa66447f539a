"""What comes next for a node, as the lifecycle table will have it; a part of `explain`. Pure.

Rule: it follows `lifecycle.decide`, and never says a thing of which that would do the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.model.campaign import Campaign, Progress
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.case import Case, Service
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.plan import Plan
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.explain_words import span, word

STEPS_MAX = 5  # of a plan that are named


def coming(
    node: Node,
    now: float,
    plan: Plan | None,
    case: Case | None,
    campaign: Campaign | None,
    row: CampaignRow | None,
) -> Iterator[str]:
    """Sentences on what the daemon does next, or what it waits for."""
    if node.is_parked:
        why = "after a fault of the provisioner's own"
        if any(b.reason is Reason.DAMAGED_ROW for b in node.blockers):
            why = "because a stored row of it cannot be read"
        yield f"Nothing by itself: it was parked {why}."
        return
    yield from _of_state(node, plan)
    if node.note and node.state not in (State.QUARANTINED, State.RETIRED):
        yield f"Now: {word(node.note)}."
    if case is not None:
        yield from _of_case(case, now)
    if campaign is not None and row is not None:
        yield from _of_campaign(campaign, row, now)


def _of_state(node: Node, plan: Plan | None) -> Iterator[str]:
    host = node.kind is NodeKind.HOST
    if node.state is State.DISCOVERED:
        yield "It is identified (vendor, credentials, parts, cards), then compared with the plan."
    elif node.state is State.INTAKE:
        fence = "Its ports are moved into the maintenance VRF; then" if host else "Then"
        yield f"{fence} every component is brought to its pin."
    elif node.state is State.CONVERGING:
        if host and node.placement is not Placement.MAINTENANCE:
            yield "Its ports are moved into the maintenance VRF before anything else."
        yield from _plan(plan)
    elif node.state is State.VALIDATING:
        yield "The health checks run; if all pass it gets a certificate, else it is quarantined."
    elif node.state is State.CERTIFIED:
        yield from _certified(node)
    elif node.state is State.RELEASED:
        yield "It is watched for drift, faults and the age of its certificate."
    elif node.state is State.DRAINING:
        yield "It is fenced into the maintenance VRF, erased, and converges anew."
    elif node.state is State.QUARANTINED:
        yield from _quarantined(node)
    elif node.state is State.REPAIRING:
        yield "Its repair case says what is tried next; only a certificate brings it back."
    else:
        yield "Nothing: it is retired."


def _plan(plan: Plan | None) -> Iterator[str]:
    if plan is None:
        yield "What is to be done is not known: it has no inventory that a plan could be made of."
    elif plan.blockers:
        yield f"There is no path to {word(plan.release)} now, so it will be quarantined."
    elif plan.in_flight:
        yield f"It waits for what is being written: {word(', '.join(plan.in_flight[:3]))}."
    elif not plan.steps:
        yield "Every component runs its pin: the health checks come next."
    else:
        minutes = plan.duration_s / 60
        yield (
            f"Steps to {word(plan.release)}: {len(plan.steps)}; resets: {plan.resets}; "
            f"about {minutes:.0f} minutes:"
        )
        for number, step in enumerate(plan.steps[:STEPS_MAX], 1):
            yield f"  {number}. {word(step.title)}: {word(step.reason)}."
        if len(plan.steps) > STEPS_MAX:
            yield f"  and {len(plan.steps) - STEPS_MAX} more."


def _certified(node: Node) -> Iterator[str]:
    if node.kind is NodeKind.SWITCH:
        yield "It goes back into service."
    elif node.tenant:
        yield f"It is released into the VRF of {word(node.tenant)}, with proof, and watched there."
    else:
        yield "It waits for a tenant that wants a node; nothing is wrong with it."


def _quarantined(node: Node) -> Iterator[str]:
    passing = bool(node.blockers) and all(b.reason in PASSING for b in node.blockers)
    if passing and node.placement is Placement.MAINTENANCE:
        yield "The cause may pass by itself: it is tried again after a pause, a few times."
    else:
        yield "Nothing by itself: a person, or a repair case, has to take the cause away."


def _of_case(case: Case, now: float) -> Iterator[str]:
    if case.service is Service.DRAIN and case.drain_at > now:
        yield f"Case {case.id}: it is taken from its tenant in {span(case.drain_at - now)}."
    elif case.service is Service.KEEP:
        yield f"Case {case.id}: its tenant keeps it meanwhile."
    if case.next_at > now:
        yield f"Case {case.id}: nothing is tried in the next {span(case.next_at - now)}."
    if case.note:
        yield f"Case {case.id} waits for: {word(case.note)}."


def _of_campaign(campaign: Campaign, row: CampaignRow, now: float) -> Iterator[str]:
    of, name = row.progress, f"Campaign {campaign.id}"
    if of.state is Progress.NOTIFIED and of.earliest_at > now:
        yield f"{name}: its tenant has notice; it may begin in {span(of.earliest_at - now)}."
    elif of.state is Progress.DEFERRED:
        yield f"{name}: its tenant put it off for {span(of.deferred_until - now)} more."
    elif of.state in (Progress.PENDING, Progress.NOTIFIED):
        yield f"{name}: it waits for its turn within the campaign's limits."
    elif of.state is Progress.SOAKING:
        yield f"{name}: it has the release, and is watched before it counts as done."
