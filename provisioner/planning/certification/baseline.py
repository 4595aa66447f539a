"""Floors learned from a fleet, for metrics without a published floor. Pure.

A fault makes a part slow and never fast, so the best level that enough nodes of enough racks share
is the capability of the hardware, even if most nodes are below it: a faulty majority cannot lower
it. A few implausibly high values are below the quorum. A learned level moves only a little at a
time and never far below its anchor, so that a fleet cannot drift downwards unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from provisioner.model.base import Record
from provisioner.model.cohort import Baseline, Sample
from provisioner.planning.certification.cohort import group_of
from provisioner.planning.certification.compared_metrics import MetricRule, rule_of


class LearningPolicy(Record):
    """Quorums for learning, and limits on the movement of a level. Proposals, to be tuned."""

    nodes_min: int = 8
    share_min: float = 0.1  # of the sound nodes
    racks_min: int = 2
    window: float = 0.05  # one level: values this close together (SuperBench's variance rule)
    margin: float = 0.05  # a floor is this much below the level (SuperBench's variance rule)
    step_max: float = 0.01  # how far one learning may lower a level
    drift_max: float = 0.03  # how far all learnings together may lower it below the anchor
    rise_max: float = 0.10  # a larger rise is a changed measurement, not a better fleet


class NotLearned(Record):
    """The reason why no level was learned, and the condition that would allow it."""

    metric: str
    why: str
    unblock: str


def learn_baseline(
    metric: str,
    samples: Sequence[Sample],
    *,
    previous: Baseline | None,
    published: float | None,
    policy: LearningPolicy,
    now: float,
) -> Baseline | NotLearned:
    """Return the level of one metric group of one cohort, or the reason against it.

    Only samples of sound nodes contribute.
    """
    rule = rule_of(metric)
    if rule is None:
        return _not(metric, "it is not compared", "Add its unit to the rules of metrics.")
    taught = [(s, v) for s in samples if s.sound for v in _typical(s, metric)]
    cohorts = {(s.profile, s.versions) for s, _ in taught}
    if len(cohorts) > 1:
        return _not(metric, "the samples are of several cohorts", "Learn each by itself.")
    quorum = max(policy.nodes_min, round(policy.share_min * len(taught)))
    best = _best_level(taught, rule, quorum, policy)
    if best is None:
        return _not(
            metric,
            f"no level is shared by {quorum} sound nodes in {policy.racks_min} racks "
            f"({len(taught)} measured it)",
            "Let more nodes be checked, or approve a provisional floor.",
        )
    level = median(v for _, v in best)
    anchor = published if published is not None else previous.anchor if previous else level
    refusal = _moved_too_far(metric, level, anchor, previous, rule, policy)
    if refusal is not None:
        return refusal
    floor = level * (1 - rule.sign * policy.margin)
    profile, versions = cohorts.pop()
    return Baseline(
        metric=metric,
        profile=profile,
        versions=versions,
        level=level,
        floor=floor,
        anchor=anchor,
        nodes=len({s.node for s, _ in best}),
        racks=len({s.rack for s, _ in best}),
        below=sum(rule.sign * (v - floor) < 0 for _, v in taught),
        learned_at=now,
    )


def _typical(sample: Sample, metric: str) -> list[float]:
    """Return the node's own median of a group, so that a node with many parts counts once."""
    mine = [v for name, v in sample.measured.items() if group_of(name) == metric]
    return [median(mine)] if mine else []


def _best_level(
    taught: Sequence[tuple[Sample, float]], rule: MetricRule, quorum: int, policy: LearningPolicy
) -> list[tuple[Sample, float]] | None:
    """Return the best window of values that enough nodes in enough racks share, or None."""
    ordered = sorted(taught, key=lambda pair: -rule.sign * pair[1])
    end = 0
    for start, (_, best) in enumerate(ordered):
        end = max(end, start)
        while end < len(ordered) and abs(ordered[end][1] - best) <= policy.window * abs(best):
            end += 1
        shared = ordered[start:end]
        if len(shared) >= quorum and len({s.rack for s, _ in shared}) >= policy.racks_min:
            return shared
    return None


def _moved_too_far(
    metric: str,
    level: float,
    anchor: float,
    previous: Baseline | None,
    rule: MetricRule,
    policy: LearningPolicy,
) -> NotLearned | None:
    def worse_than(than: float) -> float:
        return rule.sign * (than - level) / abs(than) if than else 0.0

    if worse_than(anchor) > policy.drift_max:
        return _not(
            metric,
            f"the fleet's level {level:.6g} is {worse_than(anchor):.0%} worse than its anchor "
            f"{anchor:.6g}",
            "Find the change; approve a new anchor only if the hardware did.",
        )
    if previous is None:
        return None
    if worse_than(previous.level) > policy.step_max:
        return _not(
            metric,
            f"{level:.6g} is {worse_than(previous.level):.1%} worse than the level learned before, "
            f"{previous.level:.6g}",
            "Compare before and after the last version change.",
        )
    if -worse_than(previous.level) > policy.rise_max:
        return _not(
            metric,
            f"{level:.6g} is {-worse_than(previous.level):.0%} better than before: the measurement "
            "itself has changed",
            "Approve a new anchor for the new measurement.",
        )
    return None


def _not(metric: str, why: str, unblock: str) -> NotLearned:
    return NotLearned(metric=metric, why=why, unblock=unblock)
