"""Move one node for a campaign, and derive its progress from its row alone. Pure.

A campaign changes the release of a node only together with the move that takes it out of service: a
certificate is valid for one release, and a serving node must keep a valid one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.campaign import (
    SETTLED,
    UNDER_WAY,
    Campaign,
    CampaignNode,
    CampaignRow,
    Decision,
    NodeProgress,
    PinScope,
    Progress,
    ReleasePin,
)
from provisioner.model.campaign import CampaignState as S
from provisioner.model.case import TenantNotice
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.waves import assign_waves
from provisioner.planning.lifecycle.journey import enter_state, may_enter
from provisioner.planning.lifecycle.operator_requests import reclaim_node

# ------------------------------------------------------------------------------
# Change the rows of a campaign's nodes: by a decision, and by the result of a node. Pure.
#
# The caller writes the rows of `after` before it carries out the decision, in one transaction: a
# crash in between repeats the turn, and no node is admitted twice.


_REASONS_MAX = 3  # of the nodes that a campaign left, in one sentence


def build_initial_rows(
    campaign: Campaign, facts: Sequence[CampaignNode]
) -> dict[str, NodeProgress]:
    waves = assign_waves(campaign, facts)
    return {name: NodeProgress(node=name, wave=wave) for name, wave in sorted(waves.items())}


def apply_decision(
    decision: Decision, progress: Mapping[str, NodeProgress], now: float
) -> dict[str, NodeProgress]:
    """Return the rows that a decision changes, in their new form."""
    changed: dict[str, NodeProgress] = {}

    def change_row(node: str, **what: object) -> None:
        changed[node] = changed.get(node, progress[node]).model_copy(update=what)

    for notice in decision.notices:
        was = changed.get(notice.node, progress[notice.node])
        state = Progress.NOTIFIED if was.state is Progress.PENDING else was.state
        change_row(
            notice.node,
            state=state,
            notified_at=was.notified_at or now,
            told=tuple(sorted({*was.told, notice.tenant})),
            earliest_at=max(was.earliest_at, notice.earliest_at),
        )
    for name in decision.done:
        change_row(name, state=Progress.DONE)
    for name, reason in decision.fail.items():
        change_row(name, state=Progress.FAILED, reason=reason, finished_at=now)
    for name, reason in decision.skip.items():
        change_row(name, state=Progress.SKIPPED, reason=reason)
    for admit in decision.admit:
        change_row(admit.node, state=Progress.ADMITTED, admitted_at=now, retire=admit.retire)
    return changed


def build_notices(campaign: Campaign, decision: Decision, now: float) -> tuple[TenantNotice, ...]:
    """Return the notices of a decision as stored records; equal notices have equal ids."""
    return tuple(
        TenantNotice(
            id=f"{campaign.id}/{n.node}/{n.tenant}",
            tenant=n.tenant,
            node=n.node,
            kind="maintenance",
            text=n.text,
            at=now,
            effective_at=n.earliest_at,
        )
        for n in decision.notices
    )


def summarize_left(progress: Iterable[NodeProgress]) -> str:
    """Return how many nodes a finished campaign left as they were, and why; "" if none."""
    left = [p for p in progress if p.state is Progress.SKIPPED]
    if not left:
        return ""
    reasons = Counter(p.reason for p in left).most_common(_REASONS_MAX)
    summary = "; ".join(f"{count} because {why}" for why, count in reasons)
    return f"{len(left)} left: {summary}"


def start_soak(progress: NodeProgress, now: float) -> NodeProgress:
    """Return the progress of a node that serves again with the new release: its soak begins."""
    assert progress.state is Progress.ADMITTED, progress
    return progress.model_copy(update={"state": Progress.SOAKING, "finished_at": now})


def record_failure(progress: NodeProgress, why: Blocker, now: float) -> NodeProgress:
    """Return the progress of a node that did not come back.

    The reason includes its subject, so that equal failures can be counted.
    """
    assert progress.state in (Progress.ADMITTED, Progress.SOAKING), progress
    reason = f"{why.reason}: {why.subject}"
    return progress.model_copy(
        update={"state": Progress.FAILED, "finished_at": now, "reason": reason}
    )


def reset_progress(progress: NodeProgress) -> NodeProgress:
    """Return the progress of a failed or skipped node that an operator tries again."""
    assert progress.state in (Progress.FAILED, Progress.SKIPPED), progress
    return NodeProgress(
        node=progress.node,
        wave=progress.wave,
        notified_at=progress.notified_at,
        told=progress.told,
        earliest_at=progress.earliest_at,
    )


# ------------------------------------------------------------------------------
# The effects of a pause, a resumption or an abort on a campaign's nodes, in sentences. Pure.


# the states in which each request is possible
POSSIBLE_IN: Mapping[str, tuple[S, ...]] = {
    "pause": (S.STARTED, S.ROLLING_BACK),
    "resume": (S.PAUSED, S.STOPPED),
    "abort": (S.DRAFT, S.STARTED, S.PAUSED, S.STOPPED, S.ROLLING_BACK),
    "accept": (S.STARTED, S.PAUSED, S.STOPPED),  # a metric that got worse
}


def describe_effects(word: str, campaign: Campaign, rows: Sequence[CampaignRow]) -> tuple[str, ...]:
    """Return what the request would do to the campaign's nodes; `word`: pause, resume or abort."""
    states = [row.progress.state for row in rows]
    under_way = sum(s in UNDER_WAY for s in states)
    begun = {*SETTLED, *UNDER_WAY, Progress.SOAKING}
    waiting = sum(s not in begun for s in states)
    if word == "abort" and campaign.state is S.DRAFT:
        return ("It has touched no node. It cannot be started any more.",)
    ends = f"{_count(under_way)} under way: each is finished."
    match word:
        case "pause":
            return (ends, f"{_count(waiting)} not begun: none begins until it is resumed.")
        case "abort":
            return (ends, f"{_count(waiting)} not begun: they stay as they are, for good.")
    lines = (f"{_count(waiting)} may begin, within its limits and windows.",)
    failed = states.count(Progress.FAILED)
    if campaign.state is S.STOPPED and failed:
        return (*lines, f"{_count(failed)} failed so far: no reason to stop it again.")
    return lines


def _count(nodes: int) -> str:
    return f"{nodes} node" if nodes == 1 else f"{nodes} nodes"


DAY_S = 86_400
IN_SERVICE = frozenset({State.CERTIFIED, State.RELEASED})
LOST = frozenset({State.QUARANTINED, State.REPAIRING, State.RETIRED})


def is_in_service(node: Node) -> bool:
    """Return whether the node is certified or released; any other state is out of service."""
    return node.state in IN_SERVICE


def find_obstacle(node: Node, *, rolling_back: bool = False) -> Blocker | None:
    """Return why a campaign cannot take this node in its current state; None if it can."""
    if node.is_parked:
        unblock = "Look at its operation, then `provisioner node retry`."
        return _no(node.blockers[0].reason, node, "it is parked", unblock)
    if node.state in LOST:
        if rolling_back and node.state is State.QUARANTINED and _fenced(node):
            return None  # the rollback removes the release that it fails with
        unblock = "Repair it, or let it try again: `provisioner node retry`."
        return _no(Reason.PRECONDITION, node, f"it is {node.state}", unblock)
    if node.state not in IN_SERVICE:
        return _no(Reason.BUSY, node, f"it is {node.state}", "It is taken once it is in service.")
    if node.state is State.CERTIFIED and node.tenant:
        return _no(Reason.BUSY, node, "it is being released", "It is taken once it is released.")
    if node.state is State.CERTIFIED and not may_enter(node, State.CONVERGING, node.placement):
        detail = f"it is {node.state} with its ports {node.placement}"
        unblock = "It is fenced by itself; look at its ports if it is not."
        return _no(Reason.ISOLATION, node, detail, unblock)
    return None


def admit_node(
    node: Node, release: str, profile: str, now: float, *, why: str, retire: bool
) -> Node | Blocker:
    """Return the node on its way to `release`, or why it cannot be moved.

    A tenant keeps its node unless `retire` is set.
    """
    blocker = find_obstacle(node, rolling_back=True)
    if blocker is not None:
        return blocker
    changes: dict[str, object] = {"release": release, "profile": profile, "blockers": ()}
    if node.state is State.RELEASED and node.kind is NodeKind.SWITCH:
        return enter_state(node, State.DRAINING, why, now, changes)
    if node.state is State.RELEASED:
        leaving = reclaim_node(node, now, for_repair=not retire)
        assert isinstance(leaving, Node), leaving
        return leaving.model_copy(update={**changes, "note": why})
    return enter_state(node, State.CONVERGING, why, now, {**changes, "attempts": 0})


def displace_host(node: Node, why: str, now: float) -> Node | None:
    """Return a tenant's host as it leaves service for its leaf; None if it is not released."""
    if node.state is not State.RELEASED:
        return None
    leaving = reclaim_node(node, now, for_repair=True)
    assert isinstance(leaving, Node), leaving
    return leaving.model_copy(update={"note": why})


def update_progress(
    row: CampaignRow, node: Node | None, target: str, now: float
) -> CampaignRow | None:
    """Return the changed row of a node under way; None if its progress is unchanged."""
    progress = row.progress
    if progress.state is not Progress.ADMITTED:
        return None
    if node is None or node.state in LOST:
        blockers = () if node is None else node.blockers
        why = f"{blockers[0].reason}: {blockers[0].subject}" if blockers else "it is gone"
        return _with(row, progress, state=Progress.FAILED, finished_at=now, reason=why)
    back = is_in_service(node) and (node.state is State.RELEASED or not node.tenant)
    if not back:
        return None
    if node.release != target:  # it was under way when the rollback began
        return _with(row, progress, state=Progress.PENDING, admitted_at=0.0, reason="")
    return _with(row, progress, state=Progress.SOAKING, finished_at=now, reason="")


def build_rollback_rows(rows: Sequence[CampaignRow]) -> tuple[CampaignRow, ...]:
    """Return the rows of a campaign at the start of its rollback: moved nodes are moved again."""
    result = []
    for row in rows:
        p = row.progress
        if p.state in (Progress.SOAKING, Progress.DONE, Progress.FAILED):
            fresh = NodeProgress(node=p.node, wave=p.wave)
            result.append(row.model_copy(update={"progress": fresh, "rolled_back": True}))
        elif p.state is Progress.ADMITTED:
            result.append(row.model_copy(update={"rolled_back": True}))
        elif p.state is not Progress.SKIPPED:
            result.append(_with(row, p, state=Progress.SKIPPED, reason="it was never moved"))
    return tuple(result)


def defer_node(p: NodeProgress, until: float, most_s: float, now: float) -> NodeProgress | str:
    """Return the progress with a tenant's deferral, or why the deferral is not possible."""
    if p.state not in (Progress.PENDING, Progress.NOTIFIED, Progress.DEFERRED):
        return f"it is {p.state}"
    if until <= now:
        return "that time is over already"
    if until > (p.notified_at or now) + most_s:
        return f"a deferral ends {most_s / DAY_S:g} days after the notice at the latest"
    # a deferral before the notice starts the period of the notice
    changes = {"deferred_until": until, "notified_at": p.notified_at or now}
    return p.model_copy(update={"state": Progress.DEFERRED, **changes})


def skip_node(p: NodeProgress, reason: str) -> NodeProgress | str:
    """Return the progress of a node that an operator skips, or why that is no longer possible."""
    if p.state in SETTLED or p.state is Progress.ADMITTED:
        return f"it is {p.state}"
    return p.model_copy(update={"state": Progress.SKIPPED, "reason": reason})


def retry_progress(p: NodeProgress) -> NodeProgress | str:
    """Return the progress of a failed or skipped node that is tried again, or why it cannot be."""
    return (
        reset_progress(p) if p.state in (Progress.FAILED, Progress.SKIPPED) else f"it is {p.state}"
    )


def find_pin(node: Node, pins: Sequence[ReleasePin], now: float) -> ReleasePin | None:
    """Return the pin that applies to a node: its own, else its rack's, else the fleet's."""
    return find_pin_of(node.id, node.location.rack, pins, now)


def find_pin_of(node: str, rack: str, pins: Sequence[ReleasePin], now: float) -> ReleasePin | None:
    """Return the pin that applies to a node of a rack."""
    for scope, name in ((PinScope.NODE, node), (PinScope.RACK, rack), (PinScope.FLEET, "")):
        for pin in pins:
            if (pin.scope, pin.name) == (scope, name) and pin.is_in_force(now):
                return pin
    return None


def find_target(
    node: Node, row: CampaignRow | None, target: str, pins: Sequence[ReleasePin], now: float
) -> str:
    """Return the target release of a node: its moving campaign's, else a pin's, else its own.

    `row` and `target` belong to the campaign in progress that has the node, if there is one.
    """
    return find_target_of(node.id, node.location.rack, node.release, row, target, pins, now)


def find_target_of(
    node: str,
    rack: str,
    release: str,
    row: CampaignRow | None,
    target: str,
    pins: Sequence[ReleasePin],
    now: float,
) -> str:
    """Return the same of a node with this rack and release."""
    if row is not None and row.progress.state in (Progress.ADMITTED, Progress.SOAKING):
        return target
    pin = find_pin_of(node, rack, pins, now) if pins else None
    return release if pin is None else pin.release


def find_pin_conflict(
    node: Node, release: str, pins: Sequence[ReleasePin], now: float
) -> Blocker | None:
    """Return why a campaign skips a node that is pinned to another release; None if it is not."""
    pin = find_pin(node, pins, now)
    if pin is None or pin.scope is PinScope.FLEET or pin.release == release:
        return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node.id,
        detail=f"{pin.scope} {pin.name} is pinned to {pin.release}: {pin.reason}",
        unblock=f"Take the pin away: `provisioner pin remove {pin.scope} {pin.name}`.",
    )


def _with(row: CampaignRow, progress: NodeProgress, **changes: object) -> CampaignRow:
    return row.model_copy(update={"progress": progress.model_copy(update=changes)})


def _fenced(node: Node) -> bool:
    return node.kind is NodeKind.SWITCH or node.placement is Placement.MAINTENANCE


def _no(reason: Reason, node: Node, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=node.id, detail=detail, unblock=unblock)
