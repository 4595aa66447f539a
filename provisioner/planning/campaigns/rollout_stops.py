"""When a campaign stops itself: canaries, failure budget, circuit breaker, regressions. Pure.

What a person has looked at does not stop it again: failures before `judged_from`, metrics that are
accepted by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest

from provisioner.model.campaign import Campaign, NodeProgress, Progress
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.limits import allowed
from provisioner.planning.campaigns.waves import is_canary

_UNBLOCK = "Look at the nodes that failed; then resume, roll back or abort the campaign."


def failures(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> list[NodeProgress]:
    """The failures that count, oldest first."""
    found = [
        p
        for p in progress.values()
        if p.state is Progress.FAILED and p.finished_at >= campaign.judged_from
    ]
    return sorted(found, key=lambda p: (p.finished_at, p.node))


def budget(campaign: Campaign, progress: Mapping[str, NodeProgress]) -> int:
    """How many nodes of the campaign may fail."""
    return allowed(campaign.policy.failure_budget, len(progress))


def stops(
    campaign: Campaign, progress: Mapping[str, NodeProgress], verdicts: Sequence[Blocker]
) -> tuple[Blocker, ...]:
    """Everything that speaks against going on; (): nothing."""
    policy = campaign.policy
    failed = failures(campaign, progress)
    found = [v for v in verdicts if v.subject not in campaign.accepted]
    canaries = [p for p in failed if is_canary(policy, p.wave)]
    if len(canaries) > policy.canary.failures:
        said = f"{len(canaries)} canaries failed, {policy.canary.failures} may"
        found.append(_stop(campaign, f"{said}: {_last(canaries)}"))
    most = budget(campaign, progress)
    if len(failed) > most:
        said = f"{len(failed)} of {len(progress)} nodes failed, the budget is {most}"
        found.append(_stop(campaign, f"{said}: {_last(failed)}"))
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
        said = f"{len(recent)} of the last {len(ended)} nodes failed"
        found.append(_stop(campaign, f"{said}: {_last(recent)}"))
    for reason, times in sorted(Counter(p.reason for p in recent).items()):
        if times >= policy.breaker.same_reason:
            said = f"{times} of the last {len(ended)} nodes failed in one way"
            found.append(_stop(campaign, f"{said}: {reason}"))
    return tuple(found)


def _stop(campaign: Campaign, detail: str) -> Blocker:
    return Blocker(reason=Reason.BUDGET, subject=campaign.id, detail=detail, unblock=_UNBLOCK)


def _last(failed: Sequence[NodeProgress]) -> str:
    return f"last {failed[-1].node} ({failed[-1].reason or 'no reason given'})"
