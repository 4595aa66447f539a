"""Comparison of nodes before and after a change, node by node. Pure.

Each node is its own control: the relative difference of its two measurements. The median is the
effect, and an exact sign test (binomial) is its certainty. A metric stops a wave if it is worse
both by an effect that matters and beyond chance; a wave that is too small for a result is
`NOT_TOLD`, never good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import exp, lgamma, log
from statistics import median

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, Progress
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.compared_metrics import rule_of

_NOTHING = 1e-17  # terms below this share do not change the sum


class Effect(StrEnum):
    """The result of a comparison."""

    BETTER_OR_SAME = "better_or_same"
    WORSE = "worse"
    NOT_TOLD = "not_told"  # too few nodes were measured before and after


class RegressionPolicy(Record):
    """Thresholds; proposals, to be tuned. The effect that matters is half of the effect that
    makes one node an outlier, because a whole cohort does not move by chance.
    """

    nodes_min: int = 5  # the fewest with which a sign test can reach p < 0.05
    effect_part: float = 0.5  # of the metric's own effect
    p_max: float = 0.05


class Comparison(Record):
    """One metric before and after. `change`: median relative change, negative is worse."""

    metric: str
    nodes: int
    change: float
    p: float  # probability of so many worse nodes without a change
    effect: Effect


def compare_metrics(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    policy: RegressionPolicy,
) -> tuple[Comparison, ...]:
    """Compare every metric that nodes measured both before and after (node -> metric -> value)."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for node in sorted(before.keys() & after.keys()):
        mine: dict[str, list[tuple[float, float]]] = {}
        for metric in sorted(before[node].keys() & after[node].keys()):
            pair = (before[node][metric], after[node][metric])
            mine.setdefault(metric.partition("/")[0], []).append(pair)
        for name, values in mine.items():  # a node with eight GPUs counts once
            pairs.setdefault(name, []).append(
                values[0]
                if len(values) == 1
                else (median(a for a, _ in values), median(b for _, b in values))
            )
    return tuple(
        _compared(name, values, policy)
        for name, values in sorted(pairs.items())
        if rule_of(name) is not None
    )


def _compared(
    name: str, pairs: Sequence[tuple[float, float]], policy: RegressionPolicy
) -> Comparison:
    rule = rule_of(name)
    assert rule is not None
    gains = [rule.sign * (b - a) for a, b in pairs]
    size = median(abs(a) for a, _ in pairs)
    change = median(gains)
    moved = [g for g in gains if g != 0]
    worse = sum(g < 0 for g in moved)
    p = _tail(len(moved), worse)
    least = policy.effect_part * max(rule.relative * size, rule.absolute)
    if len(pairs) < policy.nodes_min:
        effect = Effect.NOT_TOLD
    else:
        effect = Effect.WORSE if -change > least and p < policy.p_max else Effect.BETTER_OR_SAME
    relative = change / size if size else change
    return Comparison(metric=name, nodes=len(pairs), change=relative, p=p, effect=effect)


def _tail(tosses: int, heads: int) -> float:
    """Return the probability of at least so many heads.

    Each term is computed from the one before, and the first in logarithms, because exact terms of
    thousands of nodes have thousands of digits.
    """
    if 2 * heads <= tosses:
        return 1.0 if heads == 0 else 1.0 - _tail(tosses, tosses - heads + 1)
    ways = lgamma(tosses + 1) - lgamma(heads + 1) - lgamma(tosses - heads + 1)
    term = total = exp(ways - tosses * log(2))
    for k in range(heads, tosses):
        term *= (tosses - k) / (k + 1)
        total += term
        if term < total * _NOTHING:
            break
    return total


def judge_wave(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    policy: RegressionPolicy,
) -> tuple[Blocker, ...]:
    """Return why the waves after this one must not start; () if no metric is worse."""
    return tuple(
        Blocker(
            reason=Reason.CHECK_FAILED,
            subject=c.metric,
            detail=f"{c.nodes} nodes are {-c.change:.1%} worse than before (p = {c.p:.2g})",
            unblock="Roll the wave back, or accept the change with a reason.",
        )
        for c in compare_metrics(before, after, policy)
        if c.effect is Effect.WORSE
    )


def judge_campaign(
    campaign: Campaign, rows: Mapping[str, CampaignRow], policy: RegressionPolicy
) -> tuple[Blocker, ...]:
    """Return the metrics that became worse, by profile."""
    if campaign.going_back:
        return ()
    judged = [r for r in rows.values() if r.progress.state in (Progress.SOAKING, Progress.DONE)]
    regressions: list[Blocker] = []
    for profile in sorted({r.facts.profile for r in judged}):
        mine = [r for r in judged if r.facts.profile == profile and r.before and r.after]
        before = {r.node: r.before for r in mine}
        after = {r.node: r.after for r in mine}
        regressions += judge_wave(before, after, policy)
    return tuple(b for b in regressions if b.subject not in campaign.accepted)
