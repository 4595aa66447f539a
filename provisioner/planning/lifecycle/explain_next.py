"""Explain the next action of a node, as the lifecycle will take it; a part of `explain`. Pure.

Rule: the sentences follow `lifecycle.decide` and never contradict it.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.model.campaign import Campaign, Progress
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.case import Case, Service
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.plan import Plan
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.explain_words import clean_text, format_span

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
