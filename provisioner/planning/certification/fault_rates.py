"""Which version, place or part makes nodes fail: rates of faults compared as they come in. Pure.

At each fault the nodes that could have failed are compared: how many of them had the suspect, and
did the one that failed have it? That is Cox's partial likelihood (Journal of the Royal Statistical
Society B 34, 1972): whatever else changes the rate at that time changes it for all of them. The
likelihood ratio against "no effect", mixed over several rate ratios above one, is a martingale if
there is no effect, so that it may be looked at after every fault: it ever reaches 1/α with a
probability of at most α (Ville's inequality). Among many suspects e-BH (Wang and Ramdas, Journal of
the Royal Statistical Society B 84, 2022) bounds the share of false accusations, also of suspects
that depend on each other.

Nodes are not assigned to waves by lot: a rack that is bad for another reason and was upgraded
first is accused here. The verdict holds a campaign and asks; it changes no node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import exp, fsum, log, sqrt
from typing import NamedTuple

from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignRow
from provisioner.model.inventory import ListedVersion
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.certification import DAY_S

ALPHA_HOLD = 1e-4  # that a campaign without an effect is ever held
FALSE_SHARE = 0.05  # of the accused: e-BH's bound
# rate ratios that are looked for, and how much each is believed beforehand; proposals, tuned by
# `make bench NAME=regressions`
RATIOS = ((1.25, 0.15), (1.5, 0.40), (2.0, 0.20), (3.0, 0.15), (6.0, 0.10))
FAULT_RATE = "fault rate"  # the subject of the blocker that holds a campaign
MARKS_MAX = 32  # groups of marks that are weighed: a large site has some thousand racks
PINS_SHOWN = 6  # of the versions that a campaign brought
SETS_MAX = 12  # sets of versions that are compared with each other as they are
_STEPS = 60  # at most, to find a rate ratio
_NEAR = 1e-7  # of its natural logarithm: far below any precision that matters
_WIDEST = 12.0  # natural logarithm of the largest rate ratio that is told apart


class Interval(NamedTuple):
    """A time in which one node served or was free, and could have failed."""

    begins_at: float
    ends_at: float
    failed: bool  # it ended with a fault
    suspect: bool  # the node had what is judged
    stratum: str = ""  # only nodes of the same one are compared


class Stay(NamedTuple):
    """A time at risk of a node under one set of versions."""

    node: str
    begins_at: float
    ends_at: float
    failed: bool
    versions: str  # digest of the set; empty: unknown


class FaultEvidence(Record):
    """What the faults so far say of one suspect."""

    faults_with: int
    faults_without: int
    days_with: float  # node-days
    days_without: float
    ratio: float | None  # most likely rate ratio; None: nothing could be compared
    low: float | None  # 95 % interval by the likelihood, for one look
    high: float | None
    log_e: float  # natural logarithm of the evidence; 0: nothing is known


class FaultSuspect(Record):
    """A version or a mark, or several that always come together, with the evidence."""

    what: tuple[str, ...]  # "hgx.gpu.driver=580.95"; more than one: they cannot be told apart
    evidence: FaultEvidence
    accused: bool
    decided_by: tuple[str, ...] = ()  # versions to run on some nodes to tell several apart


class _Choice(NamedTuple):
    """One fault: whether the node had the suspect, and how many at risk had it or not."""

    suspect: bool
    having: int
    others: int


def weigh_faults(intervals: Iterable[Interval]) -> FaultEvidence:
    """Return the evidence of all faults; times are seconds, and need not be sorted."""
    found = list(intervals)
    choices = _list_choices(found)
    logs = [log(weight) for _, weight in RATIOS]
    for choice in choices:
        for place, (ratio, _) in enumerate(RATIOS):
            logs[place] += _log_share(choice, ratio) - _log_share(choice, 1.0)
    best, low, high = _estimate(choices)
    with_days = fsum(i.ends_at - i.begins_at for i in found if i.suspect) / DAY_S
    without_days = fsum(i.ends_at - i.begins_at for i in found if not i.suspect) / DAY_S
    return FaultEvidence(
        faults_with=sum(i.failed and i.suspect for i in found),
        faults_without=sum(i.failed and not i.suspect for i in found),
        days_with=with_days,
        days_without=without_days,
        ratio=best,
        low=low,
        high=high,
        log_e=_log_sum(logs) if choices else 0.0,
    )


def _list_choices(intervals: Sequence[Interval]) -> list[_Choice]:
    """Return each fault with those at risk just before it; faults without a choice tell nothing.

    At risk are who began before that moment and did not end before it, who fails then included.
    """
    begins: dict[tuple[str, bool], list[float]] = defaultdict(list)
    ends: dict[tuple[str, bool], list[float]] = defaultdict(list)
    faults: list[tuple[float, str, bool]] = []
    for interval in intervals:
        if interval.ends_at > interval.begins_at:
            side = interval.stratum, interval.suspect
            begins[side].append(interval.begins_at)
            ends[side].append(interval.ends_at)
            if interval.failed:
                faults.append((interval.ends_at, *side))
    for times in (*begins.values(), *ends.values()):
        times.sort()

    def count(at: float, stratum: str, *, suspect: bool) -> int:
        side = stratum, suspect
        return bisect_left(begins[side], at) - bisect_left(ends[side], at)

    choices = []
    for at, stratum, suspect in sorted(faults):
        having = count(at, stratum, suspect=True)
        others = count(at, stratum, suspect=False)
        if having and others:
            choices.append(_Choice(suspect, having, others))
    return choices


def _log_share(choice: _Choice, ratio: float) -> float:
    """Return the logarithm of how likely this fault hit the side that it hit."""
    whole = choice.having * ratio + choice.others
    return log((choice.having * ratio if choice.suspect else choice.others) / whole)


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + log(sum(exp(each - most) for each in logs))


def _estimate(choices: Sequence[_Choice]) -> tuple[float | None, float | None, float | None]:
    """Return the most likely rate ratio and its 95 % interval."""
    if not choices:
        return None, None, None
    hits = sum(choice.suspect for choice in choices)

    def slope(at: float) -> tuple[float, float]:
        ratio = exp(at)
        shares = [c.having * ratio / (c.having * ratio + c.others) for c in choices]
        return hits - fsum(shares), -fsum(share * (1.0 - share) for share in shares)

    def likelihood(at: float) -> float:
        ratio = exp(at)
        return fsum(_log_share(choice, ratio) for choice in choices)

    best = _find_fall(slope, -_WIDEST, _WIDEST)
    floor = likelihood(best) - 1.9207  # half of the 95th percentile of chi-squared(1)
    low = _find_fall(lambda at: (floor - likelihood(at), -slope(at)[0]), -_WIDEST, best)
    high = _find_fall(lambda at: (likelihood(at) - floor, slope(at)[0]), best, _WIDEST)
    return exp(best), exp(low), exp(high)


def _find_fall(falls: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return where a function that falls from above zero to below it is zero.

    It tells its value and its derivative: Newton's method, halving where that leads astray.
    """
    at = (low + high) / 2
    for _ in range(_STEPS):
        value, rises = falls(at)
        if value > 0.0:
            low = at
        else:
            high = at
        before = at
        at = at - value / rises if rises < 0.0 else low
        if not low < at < high:
            at = (low + high) / 2
        if abs(at - before) < _NEAR:
            break
    return at


# ------------------------------------------------------------------------------
# A campaign: nodes that it brought to its release against those that wait.


def weigh_campaign(stays: Iterable[Stay], rows: Mapping[str, CampaignRow]) -> FaultEvidence:
    """Return what faults say of a campaign's release; `stays` begin with the campaign."""
    intervals: list[Interval] = []
    for stay in stays:
        row = rows.get(stay.node)
        if row is not None:
            since = row.progress.finished_at or float("inf")
            intervals += _cut(stay, since, row.facts.profile)
    return weigh_faults(intervals)


def _cut(stay: Stay, since: float, stratum: str) -> list[Interval]:
    if stay.ends_at <= since or stay.begins_at >= since:
        after = stay.begins_at >= since
        return [Interval(stay.begins_at, stay.ends_at, stay.failed, after, stratum)]
    whole = Interval(stay.begins_at, stay.ends_at, stay.failed, suspect=True, stratum=stratum)
    before = whole._replace(ends_at=since, failed=False, suspect=False)
    return [before, whole._replace(begins_at=since)]


def is_held_by(evidence: FaultEvidence) -> bool:
    return evidence.ratio is not None and evidence.log_e >= -log(ALPHA_HOLD)


def find_brought(
    stays: Iterable[Stay],
    rows: Mapping[str, CampaignRow],
    sets: Mapping[str, Mapping[str, str]],
) -> tuple[str, ...]:
    """Return the versions that all nodes run since a campaign was done with them, and none before.

    Together they are what the campaign is held for: no faults tell them apart.
    """
    before: set[str] = set()  # digests
    after: set[str] = set()
    for stay in stays:
        row = rows.get(stay.node)
        if row is None or stay.versions not in sets:
            continue
        if stay.begins_at >= (row.progress.finished_at or float("inf")):
            after.add(stay.versions)
        elif stay.begins_at < (row.progress.admitted_at or float("inf")):
            before.add(stay.versions)
    pins = {d: {f"{c}={v}" for c, v in sets[d].items()} for d in before | after}
    common = set.intersection(*(pins[digest] for digest in after)) if after else set[str]()
    return tuple(sorted(common.difference(*(pins[digest] for digest in before))))


def judge_fault_rate(
    campaign: Campaign, evidence: FaultEvidence, brought: Sequence[str] = ()
) -> tuple[Blocker, ...]:
    """Return why a campaign must not go on; () while its nodes do not fail more often.

    `brought`: the versions that it brought, to be named.
    """
    if campaign.going_back or FAULT_RATE in campaign.accepted or not is_held_by(evidence):
        return ()
    named = f" with {', '.join(brought[:PINS_SHOWN])}" if brought else ""
    named += f" and {len(brought) - PINS_SHOWN} more" if len(brought) > PINS_SHOWN else ""
    times = f"{evidence.ratio:.1f}" if evidence.faults_without else f"over {evidence.low:.1f}"
    with_it = f"{evidence.faults_with} faults in {evidence.days_with:.0f} node-days after it"
    without = f"{evidence.faults_without} in {evidence.days_without:.0f} before"
    return (
        Blocker(
            reason=Reason.CHECK_FAILED,
            subject=FAULT_RATE,
            detail=f"nodes fail {times} times as often{named}: {with_it}, {without}",
            unblock="Roll the campaign back, or accept the change with a reason; "
            "`provisioner cohort suspects` names the versions.",
        ),
    )


# ------------------------------------------------------------------------------
# The fleet: each version against the same nodes with another one.


def name_versions(versions: Iterable[ListedVersion]) -> dict[str, str]:
    """Return the versions of each kind of part in one text, the same for the same set."""
    kinds: dict[str, set[str]] = {}
    for one in versions:
        kinds.setdefault(one.kind, set()).add(one.version or "?")
    return {kind: "+".join(sorted(found)) for kind, found in kinds.items()}


def find_suspects(
    stays: Sequence[Stay],
    sets: Mapping[str, Mapping[str, str]],
    marks: Mapping[str, Collection[str]],
) -> tuple[FaultSuspect, ...]:
    """Return every suspect that can be judged, the strongest evidence first.

    `sets` has the version of each component by the digest of a set, `marks` what each node has
    beside its versions: "rack=r07", "tag=lot-7". Marks are compared among nodes of equal versions.
    """
    known = [stay for stay in stays if stay.versions in sets]
    used = {stay.versions for stay in known}
    judged: list[tuple[tuple[str, ...], FaultEvidence, tuple[str, ...]]] = []
    for group in _group_pins({digest: sets[digest] for digest in used}):
        components = {pin.partition("=")[0] for pin in group}
        holding = {d for d in used if _has(sets[d], group[0])}
        strata = {d: _describe_others(sets[d], components) for d in used}
        intervals = [
            Interval(s.begins_at, s.ends_at, s.failed, s.versions in holding, strata[s.versions])
            for s in known
        ]
        judged.append((group, weigh_faults(intervals), _tell_apart(group, sets, used)))
    alone = {pin for group, evidence, _ in judged if evidence.ratio is not None for pin in group}
    for mine, other in _list_pairs(known, sets):
        pins = (f"{c}={v}" for c, v in sets[mine].items() if sets[other].get(c) != v)
        group = tuple(sorted(pins))
        if set(group) <= alone:
            continue  # each is judged by nodes that differ in nothing else
        intervals = [
            Interval(s.begins_at, s.ends_at, s.failed, s.versions == mine)
            for s in known
            if s.versions in (mine, other)
        ]
        judged.append((group, weigh_faults(intervals), _tell_apart(group, sets, (mine, other))))
    groups = _group_marks(known, marks)
    for group, nodes in groups[:MARKS_MAX]:
        intervals = [
            Interval(s.begins_at, s.ends_at, s.failed, s.node in nodes, s.versions) for s in known
        ]
        judged.append((group, weigh_faults(intervals), ()))
    compared = [each for each in judged if each[1].ratio is not None]
    left_out = max(0, len(groups) - MARKS_MAX)
    bar = find_bar([evidence.log_e for _, evidence, _ in compared], left_out)
    suspects = [
        FaultSuspect(what=what, evidence=evidence, accused=evidence.log_e >= bar, decided_by=apart)
        for what, evidence, apart in compared
    ]
    return tuple(sorted(suspects, key=lambda s: (-s.evidence.log_e, s.what)))


def find_bar(logs: Collection[float], left_out: int = 0) -> float:
    """Return the least evidence that accuses, by e-BH; infinite: nothing is accused.

    `left_out`: suspects that were not weighed, and count as without any evidence.
    """
    count = len(logs) + left_out
    for rank, value in reversed(list(enumerate(sorted(logs, reverse=True), 1))):
        if value >= log(count / (FALSE_SHARE * rank)):
            return value
    return float("inf")


def _group_pins(sets: Mapping[str, Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Return the pins that some sets have and others have not, those of the same sets together."""
    holders: dict[str, set[str]] = defaultdict(set)
    for digest, versions in sets.items():
        for component, version in versions.items():
            holders[f"{component}={version}"].add(digest)
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for pin, digests in holders.items():
        if len(digests) < len(sets):
            groups[frozenset(digests)].append(pin)
    return sorted(tuple(sorted(pins)) for pins in groups.values())


def _group_marks(
    known: Sequence[Stay], marks: Mapping[str, Collection[str]]
) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """Return the marks that some nodes have and others have not, and these nodes.

    Marks of the same nodes are together. Those with most faults beyond their time's part are first.
    """
    faults = Counter[str]()
    time_s: dict[str, float] = defaultdict(float)
    for stay in known:
        faults[stay.node] += stay.failed
        time_s[stay.node] += stay.ends_at - stay.begins_at
    holders: dict[str, set[str]] = defaultdict(set)
    for node in time_s:
        for mark in marks.get(node, ()):
            holders[mark].add(node)
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for mark, nodes in holders.items():
        if len(nodes) < len(time_s):
            groups[frozenset(nodes)].append(mark)
    rate = faults.total() / max(1.0, fsum(time_s.values()))

    def excess(nodes: frozenset[str]) -> float:
        expected = rate * fsum(time_s[node] for node in nodes)
        return (sum(faults[node] for node in nodes) - expected) / sqrt(expected or 1.0)

    found = [(tuple(sorted(group)), nodes) for nodes, group in groups.items()]
    return sorted(found, key=lambda group: (-excess(group[1]), group[0]))


def _list_pairs(
    known: Sequence[Stay], sets: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """Return sets of versions that differ in several components, those with most time first.

    Where no nodes differ in one version alone, two sets are compared as they are.
    """
    time_s: dict[str, float] = defaultdict(float)
    for stay in known:
        time_s[stay.versions] += stay.ends_at - stay.begins_at
    most = sorted(time_s, key=lambda digest: (-time_s[digest], digest))[:SETS_MAX]
    return [
        (mine, other)
        for mine in most
        for other in most
        if sum(sets[mine].get(c) != v for c, v in sets[other].items()) > 1
    ]


def _has(versions: Mapping[str, str], pin: str) -> bool:
    component, _, version = pin.partition("=")
    return versions.get(component) == version


def _describe_others(versions: Mapping[str, str], without: Collection[str]) -> str:
    return "\n".join(f"{c}={v}" for c, v in sorted(versions.items()) if c not in without)


def _tell_apart(
    group: Sequence[str], sets: Mapping[str, Mapping[str, str]], used: Collection[str]
) -> tuple[str, ...]:
    """Return the versions that some nodes would have to run to tell a group's pins apart.

    The first pin as it is, the others as they are on nodes without the group.
    """
    if len(group) < 2:
        return ()
    others = [sets[digest] for digest in sorted(used) if not _has(sets[digest], group[0])]
    told = [group[0]]
    for pin in group[1:]:
        component = pin.partition("=")[0]
        version = next((o[component] for o in others if component in o), "")
        told.append(f"{component}={version or 'another version'}")
    return tuple(told)
