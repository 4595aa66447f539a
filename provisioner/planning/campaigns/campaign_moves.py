"""How a campaign moves one node, and how far a node has come, by its row alone. Pure.

Rule: a campaign changes the release of a node only together with the move that takes it out of
service: a certificate is for one release, and a node that serves must keep a valid one.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.campaign import SETTLED, NodeProgress, Progress
from provisioner.model.campaign_row import CampaignRow, PinScope, ReleasePin
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_progress import again
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.lifecycle.operator_requests import reclaim

DAY_S = 86_400
IN_SERVICE = frozenset({State.CERTIFIED, State.RELEASED})
LOST = frozenset({State.QUARANTINED, State.REPAIRING, State.RETIRED})


def serves(node: Node) -> bool:
    """Whether it serves, could, or is just being released: else it is out of service already."""
    return node.state in IN_SERVICE


def obstacle(node: Node, *, rolling_back: bool = False) -> Blocker | None:
    """Why a campaign cannot take this node as it stands now; None: it can."""
    if node.is_parked:
        unblock = "Look at its operation, then `provisioner node retry`."
        return _no(node.blockers[0].reason, node, "it is parked", unblock)
    if node.state in LOST:
        if rolling_back and node.state is State.QUARANTINED and _fenced(node):
            return None  # the release that it fails with is what is taken back
        unblock = "Repair it, or let it try again: `provisioner node retry`."
        return _no(Reason.PRECONDITION, node, f"it is {node.state}", unblock)
    if node.state not in IN_SERVICE:
        return _no(Reason.BUSY, node, f"it is {node.state}", "It is taken once it is in service.")
    if node.state is State.CERTIFIED and node.tenant:
        return _no(Reason.BUSY, node, "it is being released", "It is taken once it is released.")
    return None


def admitted(
    node: Node, release: str, profile: str, now: float, *, why: str, retire: bool
) -> Node | Blocker:
    """The node on its way to `release`; its tenant keeps its place unless it is retired."""
    blocker = obstacle(node, rolling_back=True)
    if blocker is not None:
        return blocker
    changes = {"release": release, "profile": profile, "blockers": (), "note": why}
    if node.state is State.RELEASED and node.kind is NodeKind.SWITCH:
        return node.moved(State.DRAINING, now, **changes)
    if node.state is State.RELEASED:
        leaving = reclaim(node, now, for_repair=not retire)
        assert isinstance(leaving, Node), leaving
        return leaving.model_copy(update=changes)
    if not may_enter(node, State.CONVERGING, node.placement):
        detail = f"it is {node.state} with its ports {node.placement}"
        unblock = "It is fenced by itself; look at its ports if it is not."
        return _no(Reason.ISOLATION, node, detail, unblock)
    return node.moved(State.CONVERGING, now, attempts=0, **changes)


def displaced(node: Node, why: str, now: float) -> Node | None:
    """A tenant's host that makes room while its leaf is down; None: it is out of the way."""
    if node.state is not State.RELEASED:
        return None
    leaving = reclaim(node, now, for_repair=True)
    assert isinstance(leaving, Node), leaving
    return leaving.model_copy(update={"note": why})


def observed(row: CampaignRow, node: Node | None, target: str, now: float) -> CampaignRow | None:
    """What became of a node that is under way; None: nothing new."""
    progress = row.progress
    if progress.state is not Progress.ADMITTED:
        return None
    if node is None or node.state in LOST:
        blockers = () if node is None else node.blockers
        why = f"{blockers[0].reason}: {blockers[0].subject}" if blockers else "it is gone"
        return _with(row, progress, state=Progress.FAILED, finished_at=now, reason=why)
    back = serves(node) and (node.state is State.RELEASED or not node.tenant)
    if not back:
        return None
    if node.release != target:  # it was under way when the campaign turned back
        return _with(row, progress, state=Progress.PENDING, admitted_at=0.0, reason="")
    return _with(row, progress, state=Progress.SOAKING, finished_at=now, reason="")


def rolled_back(rows: Sequence[CampaignRow]) -> tuple[CampaignRow, ...]:
    """The rows of a campaign that turns back: whatever was moved is to be moved again."""
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


def put_off(p: NodeProgress, until: float, most_s: float, now: float) -> NodeProgress | str:
    """A tenant's deferral, or why it is not possible."""
    if p.state not in (Progress.PENDING, Progress.NOTIFIED, Progress.DEFERRED):
        return f"it is {p.state}"
    if until <= now:
        return "that time is over already"
    if until > (p.notified_at or now) + most_s:
        return f"a deferral ends {most_s / DAY_S:g} days after the notice at the latest"
    # who asks before it was told starts the time that it has
    changes = {"deferred_until": until, "notified_at": p.notified_at or now}
    return p.model_copy(update={"state": Progress.DEFERRED, **changes})


def leave(p: NodeProgress, reason: str) -> NodeProgress | str:
    """A node that stays as it is by a person's word, or why that is not possible any more."""
    if p.state in SETTLED or p.state is Progress.ADMITTED:
        return f"it is {p.state}"
    return p.model_copy(update={"state": Progress.SKIPPED, "reason": reason})


def once_more(p: NodeProgress) -> NodeProgress | str:
    """A failed or skipped node that is tried again."""
    return again(p) if p.state in (Progress.FAILED, Progress.SKIPPED) else f"it is {p.state}"


def pin_of(node: Node, pins: Sequence[ReleasePin], now: float) -> ReleasePin | None:
    """The pin that holds for a node: its own, else its rack's, else the fleet's."""
    for scope, name in (
        (PinScope.NODE, node.id),
        (PinScope.RACK, node.location.rack),
        (PinScope.FLEET, ""),
    ):
        for pin in pins:
            if (pin.scope, pin.name) == (scope, name) and pin.holds(now):
                return pin
    return None


def target_of(
    node: Node, row: CampaignRow | None, target: str, pins: Sequence[ReleasePin], now: float
) -> str:
    """The release that a node is to run: a campaign's once it moves it, else a pin's, else its own.

    `row` and `target`: of the campaign that the node is in, if one is under way.
    """
    if row is not None and row.progress.state in (Progress.ADMITTED, Progress.SOAKING):
        return target
    pin = pin_of(node, pins, now)
    return node.release if pin is None else pin.release


def pinned_elsewhere(
    node: Node, release: str, pins: Sequence[ReleasePin], now: float
) -> Blocker | None:
    """Why a campaign leaves a node alone that somebody pinned to another release."""
    pin = pin_of(node, pins, now)
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
