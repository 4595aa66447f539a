"""Conditions that stop a campaign: canaries, failure budget, circuit breaker, regressions. Pure.

Causes that an operator has reviewed do not stop it again: failures before `judged_from`, and
metrics accepted by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest

from provisioner.model.campaign import Campaign, NodeProgress, Progress
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.limits import count_allowed
from provisioner.planning.campaigns.waves import is_canary

_UNBLOCK = "Look at the nodes that failed; then resume, roll back or abort the campaign."


def find_failures(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> list[NodeProgress]:
    """Return the failures that count, oldest first."""
    rows = [
        p
        for p in progress.values()
        if p.state is Progress.FAILED and p.finished_at >= campaign.judged_from
    ]
    return sorted(rows, key=lambda p: (p.finished_at, p.node))


def compute_budget(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> int:
    """Return how many nodes of the campaign may fail."""
    return count_allowed(campaign.policy.failure_budget, len(progress))


def find_stops(
    campaign: Campaign, progress: Mapping[str, NodeProgress], verdicts: Sequence[Blocker]
) -> tuple[Blocker, ...]:
    """Return every reason to stop the campaign; () if there is none."""
    policy = campaign.policy
    failed = find_failures(campaign, progress)
    reasons = [v for v in verdicts if v.subject not in campaign.accepted]
    canaries = [p for p in failed if is_canary(policy, p.wave)]
    if len(canaries) > policy.canary.failures:
        summary = f"{len(canaries)} canaries failed, {policy.canary.failures} may"
        reasons.append(_stop(campaign, f"{summary}: {_last(canaries)}"))
    most = compute_budget(campaign, progress)
    if len(failed) > most:
        summary = f"{len(failed)} of {len(progress)} nodes failed, the budget is {most}"
        reasons.append(_stop(campaign, f"{summary}: {_last(failed)}"))
    ended = nlargest(
        policy.breaker.of_last,
        (
            p
            for p in progress.values()
            if p.state in (Progress.SOAKING, Progress.DONE, Progress.FAILED)
            and p.finished_at >= campaign.judged_from
        ),
        key=lambda p: (p.finished_at, p.node),
    )[::-1]
    recent = [p for p in ended if p.state is Progress.FAILED]
    if len(recent) >= policy.breaker.failures:
        summary = f"{len(recent)} of the last {len(ended)} nodes failed"
        reasons.append(_stop(campaign, f"{summary}: {_last(recent)}"))
    for reason, times in sorted(Counter(p.reason for p in recent).items()):
        if times >= policy.breaker.same_reason:
            summary = f"{times} of the last {len(ended)} nodes failed in one way"
            reasons.append(_stop(campaign, f"{summary}: {reason}"))
    return tuple(reasons)


def _stop(campaign: Campaign, detail: str) -> Blocker:
    return Blocker(reason=Reason.BUDGET, subject=campaign.id, detail=detail, unblock=_UNBLOCK)


def _last(failed: Sequence[NodeProgress]) -> str:
    return f"last {failed[-1].node} ({failed[-1].reason or 'no reason given'})"
