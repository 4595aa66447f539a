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
from provisioner.model.cohort import Sample
from provisioner.model.health import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.compared_metrics import (
    MetricRule,
    is_worse,
    rule_of,
    worse_by,
)

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
        """Return the part that measured the value."""
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
    """Return the report after each outlier was added to the result that measured it as a
    failure.
    """
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
    """Return whether this result measured this metric of a sample."""
    _, _, load = result.check.partition(AFTER)
    name, _, part = metric.partition("/")
    plain, _, after = name.partition(AFTER)
    return load == after and f"{plain}/{part}" in result.measured


def block_outlier(outlier: Outlier) -> Blocker:
    """Return an outlier as a blocker that keeps a node from its tenant."""
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
