"""Comparison of a node with its cohort: robust outliers, in addition to absolute floors. Pure.

A cohort is a set of values that should be equal: one profile, one set of versions, one metric, and
one rail where the metric is a rail's. An outlier is far from the median in units of the spread
(robust z, median and MAD) *and* by an effect that matters, so that noise in a tight cohort names no
node. The seven sibling GPUs of a GPU are its closest cohort. A cohort below the minimum size yields
no outliers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist, median

from provisioner.model.base import Record
from provisioner.model.cohort import (
    Baseline,
    CheckResult,
    Finding,
    HealthReport,
    Sample,
    Severity,
    Verdict,
)
from provisioner.model.inventory import Inventory
from provisioner.model.outcome import Blocker, Reason

# ------------------------------------------------------------------------------
# The rules by which measurements are compared: the better direction, and the difference that
# matters. Pure data.
#
# A measurement's name ends with its unit, "busbw_gb_s/host" (`CheckResult.measured`). A name
# without a rule is stored and shown, and never judged.


class MetricRule(Record):
    """The rule for one kind of measurement. `sign` +1: more is better; -1: less is better.

    A difference matters if it is larger than `relative` of the reference and than `absolute`.
    """

    sign: int
    relative: float
    absolute: float
    source: str


_Z = "a proposal, to be tuned: no source gives one"
# Ends of names. A bandwidth that differs by 3 % is a difference (robust z with an effect floor);
# SuperBench calls 5 % below its baseline defective.
RULES: dict[str, MetricRule] = {
    "_gb_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_gbit_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_mb_s": MetricRule(sign=1, relative=0.03, absolute=0.0, source="robust z and effect: " + _Z),
    "_gflop_s": MetricRule(
        sign=1, relative=0.05, absolute=0.0, source="a GPU within 5 % of its node's median: burn"
    ),
    "_iops": MetricRule(sign=1, relative=0.10, absolute=0.0, source="SuperBench: 10 % for random"),
    "_us": MetricRule(sign=-1, relative=0.05, absolute=0.2, source=_Z),
    "_ms": MetricRule(sign=-1, relative=0.05, absolute=0.0, source="SuperBench: latency 5 %"),
    "_per_s": MetricRule(sign=-1, relative=0.50, absolute=1.0, source=_Z),
    # other temperatures depend more on the room and on the load a minute ago than on the part
    "gpu_temperature_c": MetricRule(sign=-1, relative=0.0, absolute=15.0, source=_Z),
    "optic_temperature_c": MetricRule(sign=-1, relative=0.0, absolute=15.0, source=_Z),
    "_dbm": MetricRule(sign=1, relative=0.0, absolute=2.0, source=_Z),
}


@lru_cache(maxsize=16_384)
def rule_of(name: str) -> MetricRule | None:
    """The rule of "name/part", "name after load/part" or "name"; None: it is not compared."""
    metric = name.partition("/")[0].partition(" after ")[0]
    for ending in sorted(RULES, key=len, reverse=True):
        if metric.endswith(ending):
            return RULES[ending]
    return None


def is_worse(rule: MetricRule, value: float, reference: float) -> bool:
    """Return whether `value` is worse than `reference` by more than the rule's effect."""
    return rule.sign * (reference - value) > worse_by(rule, reference)


def worse_by(rule: MetricRule, reference: float) -> float:
    """Return how much worse than `reference` a value may be without significance."""
    return max(rule.relative * abs(reference), rule.absolute)


_RAIL = re.compile(r"rail ?[0-9]+")
MEMBERS_MAX = 512  # the newest samples that a node is compared with; more add no information
AFTER = " after "  # as `checks.after` names results of checks repeated after a load test
SIBLINGS_MIN = 4  # parts of one node that are compared with one another


class Policy(Record):
    """Thresholds for outliers. The numbers are proposals, to be tuned."""

    members_min: int = 8  # nodes; smaller cohorts yield no outliers
    z_max: float = 3.5  # Iglewicz and Hoaglin's limit for the modified z-score
    chance: float = 0.01  # probability that a whole cohort without a fault has any outlier


class Outlier(Record):
    """One value that is worse than its cohort."""

    node: str
    metric: str  # "busbw_gb_s/GPU 3"
    value: float
    typical: float
    z: float  # in multiples of the spread; negative is worse
    among: str  # "40 nodes of its cohort"

    @property
    def part(self) -> str:
        return self.metric.partition("/")[2] or "host"


def sample_of(report: HealthReport, inventory: Inventory, profile: str, rack: str) -> Sample:
    """Return a report's measurements as a sample. A value after a load test is a metric of its own.

    A check that was skipped because there is no floor does not make a node unsound, because the
    sample may be what establishes that floor. A check skipped after a failure has that failure
    beside it.
    """
    measured: dict[str, float] = {}
    for result in report.results:
        _, _, load = result.check.partition(AFTER)
        for metric, value in result.measured.items():
            name, _, part = metric.partition("/")
            measured[f"{name}{AFTER}{load}/{part}" if load else metric] = value
    return Sample(
        node=report.node,
        rack=rack,
        profile=profile,
        versions=version_set(inventory),
        measured=measured,
        sound=all(r.verdict is not Verdict.FAIL for r in report.results),
        taken_at=report.ended_at,
    )


def version_set(inventory: Inventory) -> str:
    """Return the digest of the running versions, independent of the number of parts with each."""
    pairs = sorted({(c.kind, c.version or "") for c in inventory.components})
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def find_outliers(samples: Sequence[Sample], policy: Policy) -> tuple[Outlier, ...]:
    """Return every outlier of all cohorts that these samples form, the worst first."""
    cohorts: dict[tuple[str, str, str], list[tuple[str, str, float]]] = defaultdict(list)
    for sample in samples:
        for metric, value in sample.measured.items():
            if rule_of(metric) is not None:
                key = (sample.profile, sample.versions, group_of(metric))
                cohorts[key].append((sample.node, metric, value))
    far_out: list[Outlier] = []
    for (_, _, group), members in cohorts.items():
        rule = rule_of(group)
        assert rule is not None
        far_out += _worse(members, rule, policy)
    return tuple(sorted(far_out, key=lambda o: (o.z, o.node, o.metric)))


@lru_cache(maxsize=16_384)  # a node has some 2,000 figures, and others of its profile the same
def group_of(metric: str) -> str:
    """Return the comparison group of a metric: its name, with the rail where the part is one."""
    name, _, part = metric.partition("/")
    return f"{name}/{part}" if _RAIL.fullmatch(part) else name


def _worse(
    members: Sequence[tuple[str, str, float]], rule: MetricRule, policy: Policy
) -> Iterable[Outlier]:
    nodes = {node for node, _, _ in members}
    if len(nodes) < policy.members_min:
        return
    typical, spread = _centre([value for _, _, value in members])
    # among thousands of values one is always far out: the limit grows with the number of members
    z_max = max(policy.z_max, NormalDist().inv_cdf(1 - policy.chance / len(members)))
    effect = worse_by(rule, typical)
    for node, metric, value in members:
        if rule.sign * (typical - value) <= effect:
            continue
        z = rule.sign * (value - typical) / spread if spread else float("-inf")
        if z < -z_max:
            among = f"{len(nodes)} nodes of its cohort"
            yield Outlier(node=node, metric=metric, value=value, typical=typical, z=z, among=among)


def _centre(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the spread, scaled to a standard deviation (MAD / 0.6745)."""
    typical = median(values)
    return typical, median(abs(v - typical) for v in values) / 0.6745


def find_odd_siblings(sample: Sample) -> tuple[Outlier, ...]:
    """Return the parts of one node that are worse than the others of their kind in it."""
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for metric, value in sample.measured.items():
        name, _, part = metric.partition("/")
        if part.partition(" ")[0] == "GPU" and rule_of(metric) is not None:
            groups[name].append((metric, value))
    odd = []
    for name, members in sorted(groups.items()):
        rule = rule_of(name)
        assert rule is not None
        if len(members) < SIBLINGS_MIN:
            continue
        typical = median(v for _, v in members)
        # twice the effect: siblings are few, and one hot corner of a chassis is no fault
        strict = rule.model_copy(
            update={"relative": 2 * rule.relative, "absolute": 2 * rule.absolute}
        )
        spread = _centre([v for _, v in members])[1]
        for m, v in members:
            if is_worse(strict, v, typical):
                z = rule.sign * (v - typical) / spread if spread else float("-inf")
                among = f"the {len(members)} of its node"
                odd.append(
                    Outlier(node=sample.node, metric=m, value=v, typical=typical, z=z, among=among)
                )
    return tuple(odd)


def judge_cohort(members: Sequence[Sample], policy: Policy) -> Mapping[str, tuple[Outlier, ...]]:
    """Return the outliers by node of one cohort: as `judge` of each, at the cost of one."""
    far: dict[str, list[Outlier]] = defaultdict(list)
    for outlier in find_outliers([s for s in members if s.sound], policy):
        far[outlier.node].append(outlier)
    by_node = {}
    for member in members:
        if member.sound:
            by_node[member.node] = _with_siblings(member, far.get(member.node, ()))
        else:  # it does not contribute to the comparison, but is compared with the sound nodes
            by_node[member.node] = judge_node(member, members, policy)
    return {node: worst for node, worst in by_node.items() if worst}


def judge_node(sample: Sample, others: Sequence[Sample], policy: Policy) -> tuple[Outlier, ...]:
    """Return the outliers of one node, compared with the sound nodes of its cohort.

    Only sound nodes are the reference: a node in doubt must not decide about others.
    """
    like = [
        s
        for s in others
        if s.sound
        and s.node != sample.node
        and (s.profile, s.versions) == (sample.profile, sample.versions)
    ]
    far = find_outliers([*like, sample], policy)
    return _with_siblings(sample, [o for o in far if o.node == sample.node])


def _with_siblings(sample: Sample, found: Sequence[Outlier]) -> tuple[Outlier, ...]:
    listed = {o.metric for o in found}
    return (*found, *(o for o in find_odd_siblings(sample) if o.metric not in listed))


def add_outliers(report: HealthReport, found: Sequence[Outlier]) -> HealthReport:
    """The report after each outlier was added to the result that measured it as a failure."""
    results = []
    for result in report.results:
        mine = tuple(_finding(o) for o in found if _gave(result, o.metric))
        if mine:
            verdict = Verdict.FAIL if result.verdict is Verdict.PASS else result.verdict
            changes = {"verdict": verdict, "findings": (*result.findings, *mine)}
            results.append(result.model_copy(update=changes))
        else:
            results.append(result)
    return report.model_copy(update={"results": tuple(results)})


def _gave(result: CheckResult, metric: str) -> bool:
    _, _, load = result.check.partition(AFTER)
    name, _, part = metric.partition("/")
    plain, _, after = name.partition(AFTER)
    return load == after and f"{plain}/{part}" in result.measured


def block_outlier(outlier: Outlier) -> Blocker:
    return Blocker(
        reason=Reason.CHECK_FAILED,
        subject=outlier.metric,
        detail=f"{outlier.value:.6g} is an outlier among {outlier.among}, "
        f"which measure about {outlier.typical:.6g}",
        unblock="It is checked again automatically; then examine the part.",
    )


def _finding(outlier: Outlier) -> Finding:
    return Finding(
        part=outlier.part,
        severity=Severity.ISOLATE,
        detail=f"{outlier.metric.partition('/')[0]} is an outlier among {outlier.among}",
        measured=f"{outlier.value:.6g}",
        wanted=f"about {outlier.typical:.6g}",
    )


# ------------------------------------------------------------------------------
# Floors learned from a fleet, for metrics without a published floor. Pure.
#
# A fault makes a part slow and never fast, so the best level that enough nodes of enough racks
# share is the capability of the hardware, even if most nodes are below it: a faulty majority cannot
# lower it. A few implausibly high values are below the quorum. A learned level moves only a little
# at a time and never far below its anchor, so that a fleet cannot drift downwards unnoticed.


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


# ------------------------------------------------------------------------------
# The distribution of each measured value over the fleet, with the floor that was learned. Pure.


BINS = 16


class Spread(Record):
    """One metric of one profile over the nodes. `bins`: counts between `least` and `most`."""

    profile: str
    metric: str
    values: int
    nodes: int
    least: float
    tenth: float  # a tenth of the values are smaller
    median: float
    most: float
    bins: tuple[int, ...]
    floor: float | None  # learned; None: none yet


def describe_spreads(
    samples: Sequence[Sample], baselines: Sequence[Baseline]
) -> tuple[Spread, ...]:
    """Return the distribution of every metric, by profile and name."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sample in samples:
        for metric, value in sample.measured.items():
            key = sample.profile, group_of(metric)
            values[key].append(value)
            nodes[key].add(sample.node)
    floors = {(b.profile, b.metric): b.floor for b in baselines}
    return tuple(
        _describe(key, sorted(values[key]), len(nodes[key]), floors.get(key))
        for key in sorted(values)
    )


def _describe(
    key: tuple[str, str], ordered: list[float], nodes: int, floor: float | None
) -> Spread:
    least = ordered[0]
    most = ordered[-1]
    bins = [0] * BINS
    width = (most - least) / BINS
    for value in ordered:
        bins[min(BINS - 1, int((value - least) / width)) if width else 0] += 1
    return Spread(
        profile=key[0],
        metric=key[1],
        values=len(ordered),
        nodes=nodes,
        least=least,
        tenth=ordered[len(ordered) // 10],
        median=ordered[len(ordered) // 2],
        most=most,
        bins=tuple(bins),
        floor=floor,
    )
