"""Change the rows of a campaign's nodes: by a decision, and by the result of a node. Pure.

The caller writes the rows of `after` before it carries out the decision, in one transaction: a
crash in between repeats the turn, and no node is admitted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    Decision,
    NodeProgress,
    Progress,
)
from provisioner.model.case import TenantNotice
from provisioner.model.outcome import Blocker
from provisioner.planning.campaigns.waves import assign_waves

_REASONS_MAX = 3  # of the nodes that a campaign left, in one sentence


def build_initial_rows(
    campaign: Campaign, facts: Sequence[CampaignNode]
) -> dict[str, NodeProgress]:
    """Return the rows of a campaign at its start, with every selected node in its wave."""
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
