"""How a node's row in a campaign changes: by a decision, and by what became of the node. Pure.

The caller writes the rows that `after` gives before it acts on the decision, in one transaction: a
crash in between repeats the turn, and admits nobody twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    Decision,
    NodeProgress,
    Progress,
)
from provisioner.model.case import Notice as TenantNotice
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns.waves import assign


def begin(campaign: Campaign, facts: Sequence[CampaignNode]) -> dict[str, NodeProgress]:
    """The rows of a campaign at its start: every selected node in its wave."""
    waves = assign(campaign, facts)
    return {name: NodeProgress(node=name, wave=wave) for name, wave in sorted(waves.items())}


def after(
    decision: Decision, progress: Mapping[str, NodeProgress], now: float
) -> dict[str, NodeProgress]:
    """The rows that a decision changes, as they are to be written."""
    changed: dict[str, NodeProgress] = {}

    def change(node: str, **what: object) -> None:
        changed[node] = changed.get(node, progress[node]).model_copy(update=what)

    for notice in decision.notices:
        was = changed.get(notice.node, progress[notice.node])
        state = Progress.NOTIFIED if was.state is Progress.PENDING else was.state
        change(
            notice.node,
            state=state,
            notified_at=was.notified_at or now,
            told=tuple(sorted({*was.told, notice.tenant})),
            earliest_at=max(was.earliest_at, notice.earliest_at),
        )
    for name in decision.done:
        change(name, state=Progress.DONE)
    for name, reason in decision.fail.items():
        change(name, state=Progress.FAILED, reason=reason, finished_at=now)
    for name, reason in decision.skip.items():
        change(name, state=Progress.SKIPPED, reason=reason)
    for admit in decision.admit:
        change(admit.node, state=Progress.ADMITTED, admitted_at=now, retire=admit.retire)
    return changed


def told_of(campaign: Campaign, decision: Decision, now: float) -> tuple[TenantNotice, ...]:
    """The notices of a decision as they are kept: the same one has the same id."""
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


def came_back(progress: NodeProgress, now: float) -> NodeProgress:
    """It runs the release and serves again: now it is watched."""
    assert progress.state is Progress.ADMITTED, progress
    return progress.model_copy(update={"state": Progress.SOAKING, "finished_at": now})


def failed(progress: NodeProgress, why: Blocker, now: float) -> NodeProgress:
    """It did not come back. The reason is told with its subject, so that like ones are counted."""
    assert progress.state in (Progress.ADMITTED, Progress.SOAKING), progress
    reason = f"{why.reason}: {why.subject}"
    return progress.model_copy(
        update={"state": Progress.FAILED, "finished_at": now, "reason": reason}
    )


def again(progress: NodeProgress) -> NodeProgress:
    """A node that failed or was skipped is tried again: a person asked for it."""
    assert progress.state in (Progress.FAILED, Progress.SKIPPED), progress
    return NodeProgress(
        node=progress.node,
        wave=progress.wave,
        notified_at=progress.notified_at,
        told=progress.told,
        earliest_at=progress.earliest_at,
    )
