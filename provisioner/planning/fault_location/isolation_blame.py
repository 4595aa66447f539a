"""Derivation of blame from the fitted failure rates: condemned, in doubt, or only suspicious.

A part is condemned if noise is excluded as the cause of its failures, if they happened with at
least three other nodes, and if no other part explains them as well; else it stays under suspicion,
and its cells are tested further. In both cases its failures accuse no smaller part. More blame at
once than is plausible for a site has a common cause (a bad image, a power cut, a switch
configuration); then no part is condemned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from math import exp, inf, log
from statistics import median

from provisioner.planning.fault_location.isolation_trials import CountedTrials, Trial, Trials
from provisioner.planning.fault_location.isolation_words import (
    PART_ORDER,
    PATHS,
    POD_PATHS,
    Blame,
    Cell,
    Culprit,
    Fabric,
    Part,
)
from provisioner.planning.fault_location.rate_fit import (
    RATES,
    Fit,
    bound_noise,
    count_trials,
    weigh_result,
)

# ------------------------------------------------------------------------------
# Cells that are proved good: their passes exclude the failure rate that is looked for. Pure.


_LINK = PART_ORDER.index(Culprit.LINK)


class Clearance:
    """The odds that a cell fails at `rate_min`, beside the parts that explain its failures.

    The share of wrong results is that of all trials that no part explains.
    """

    def __init__(self, fit: Fit, remaining: Trials) -> None:
        self._fit = fit
        self._remaining = remaining
        self._policy = remaining.policy
        tests, failures = fit.count_unexplained()
        self.noise = bound_noise(self._policy, failures / tests if tests else 0.0)

    def is_clear(self, cell: Cell, *, far: bool) -> bool:
        """Return whether a cell is proved good.

        It passed often enough to exclude a failure rate of `rate_min`, with no corrupted data.

        `far`: one pass must have been with another leaf, because a bad path there would stay
        hidden.
        """
        rate = self._policy.rate_min
        enough = log(self._policy.miss_risk)
        odds = self._fit.weigh(Part(_LINK, *cell), rate, self.noise)
        mine = self._remaining.by_cell.get(cell, ())
        raw = self._remaining.raw
        if odds > enough and raw[cell] >= 0:
            far_ends = [trial.get_far_end(cell) for trial in mine if trial.failed]
            excused = sum(raw[far_end] < 0 for far_end in far_ends)  # it fails with most partners
            odds -= excused * weigh_result(self.noise, 1.0, rate)[0]
        if odds > enough or (self._fit.trials.any_corrupt and any(t.corrupt for t in mine)):
            return False
        return not far or self._remaining.passed_far(cell)


# ------------------------------------------------------------------------------
# Parts that explain the results, each with a failure rate of its own, and what else could. Pure.
#
# Each hypothesis is one part: a node, a link, a leaf, a leaf's uplinks, or a cause that many share
# (a line card, the spines of a rail, a rail, a rack, a power feed). The hypothesis that raises the
# likelihood of all results most is taken with its best rate; then the others are compared for what
# it leaves unexplained, until none is worth a look. So a leaf that fails in four of ten tests
# accuses none of its links, and a link is not accused for its leaf. A part that contains others (a
# leaf its links) is taken only if these, one by one, do not explain the same results better: three
# bad links on one rail are no bad rail. Each part costs the logarithm of the number of parts of its
# kind.
#
# Then each part is tried again: without it, any other parts may explain the results. If they do so
# better, they take its place. Else the difference of both explanations is the part's margin: the
# logarithm of the odds that it is at fault, and not these others.
#
# The gain of a hypothesis is a logarithm of odds (natural). The chance that noise alone gives any
# cell of the fabric a gain of g or more is below cells * exp(-g) (Wald), times the number of rates
# tried.


_CHOICES_MAX = 64  # parts that are considered for one explanation, the strongest first
_EXCHANGES_MAX = 8  # explanations that give place to better ones, in one comparison
_Gains = dict[Part, tuple[float, float]]  # gain and best rate


@dataclass(frozen=True, slots=True)
class Explanation:
    """A part with the rate that explains the results best, and its evidence."""

    part: Part
    rate: float
    gain: float  # beside all other explanations
    failures: tuple[Trial, ...]  # that no other part explains
    passes: int
    margin: float  # of its odds, over the best explanation without it
    rivals: tuple[tuple[Part, float], ...] = ()  # the parts of that one, with their rates


def find_explanations(
    trials: CountedTrials, gain_min: float, margin_min: float
) -> tuple[list[Explanation], Fit]:
    """Return the parts that explain the results, the strongest first, with at least this gain.

    Their margins are exact up to `margin_min`, and else at least that.
    """
    fit = count_trials(trials)
    gains = {part: fit.find_rate(part) for part in fit.counts}
    while (best := _choose(fit, gains)) is not None and gains[best][0] >= gain_min:
        _take(fit, gains, best, gains[best][1])
    explanations: list[Explanation] = []
    exchanges = 0
    waiting = list(fit.taken)
    while waiting:
        part = waiting.pop(0)
        was = fit.taken[part]
        beside = _put_back(fit, gains, part)
        gain, rate = gains[part]
        if gain < gain_min:
            continue
        worth = gain - fit.costs[part.kind]
        rivals, total = _explain_without(fit, gains, part, worth - margin_min)
        if total > worth + 1e-6 and exchanges < _EXCHANGES_MAX:
            exchanges += 1
            for rival, rival_rate in rivals:
                _take(fit, gains, rival, rival_rate)
            explanations = []
            waiting = sorted(fit.taken)
            continue
        explanations.append(_explain(fit, part, (gain, rate, worth - total), rivals))
        _take(fit, gains, part, rate, beside if rate == was else None)
    explanations = [e for e in explanations if e.part in fit.taken]
    return sorted(explanations, key=lambda e: (-round(e.gain, 6), e.part)), fit


def _take(fit: Fit, gains: _Gains, part: Part, rate: float, beside: _Gains | None = None) -> None:
    """`beside`: the gains of the other parts then, where they are known."""
    changed = fit.take(part, rate)
    gains.pop(part, None)
    if beside is None:
        beside = {p: fit.find_rate(p) for p in changed if p not in fit.taken}
    gains.update(beside)


def _put_back(fit: Fit, gains: _Gains, part: Part) -> _Gains:
    """Return the gains that changed, as they were beside this part."""
    changed = {p for p in fit.put_back(part) if p not in fit.taken}
    beside = {p: gains[p] for p in changed - {part}}
    gains.update((p, fit.find_rate(p)) for p in {*changed, part})
    return beside


def _explain(
    fit: Fit, part: Part, weight: tuple[float, float, float], rivals: tuple[tuple[Part, float], ...]
) -> Explanation:
    gain, rate, margin = weight
    listed = fit.trials.listed
    mine = fit.trials.numbers_of[part]
    failed = [n for n in mine if listed[n].failed]
    crossing = fit.find_crossing(part)
    return Explanation(
        part=part,
        rate=rate,
        gain=gain,
        failures=tuple(listed[n] for n in failed if n not in crossing),
        passes=len(mine) - len(failed),
        margin=margin,
        rivals=rivals,
    )


def _explain_without(
    fit: Fit, gains: _Gains, part: Part, enough: float
) -> tuple[tuple[tuple[Part, float], ...], float]:
    """Return the best other explanation of what a part explains, and its worth.

    It need not be found if it is worth less than `enough`.
    """
    mine = set(fit.trials.count_together(part)[0])
    others = mine - _find_same(fit, part, mine) - fit.taken.keys()
    return _take_best(fit, gains, others, enough)


def _take_best(
    fit: Fit, gains: _Gains, parts: Iterable[Part], enough: float, most: float = inf
) -> tuple[tuple[tuple[Part, float], ...], float]:
    """Return those of the parts that explain most, one after the other, and their worth.

    It ends where they cannot be worth more than `enough`, or are worth more than `most`.
    """
    costs = fit.costs
    worth: _Gains = {}
    for part in parts:
        gain, rate = gains.get(part, (0.0, 0.0))
        if gain > costs[part.kind]:
            worth[part] = gain - costs[part.kind], rate
    counts = {p: {at: [*both] for at, both in fit.counts[p].items()} for p in worth}
    taken: list[tuple[Part, float]] = []
    total = 0.0
    while worth and total <= most and total + sum(w for w, _ in worth.values()) > enough:
        best = min(worth, key=lambda p: (-round(worth[p][0], 6), p))
        gained, rate = worth.pop(best)
        total += gained
        taken.append((best, rate))
        for other in fit.take(best, rate, counts) & worth.keys():
            gain, rate = fit.fit_rate(counts[other])
            worth[other] = gain - costs[other.kind], rate
            if worth[other][0] <= 0.0:
                del worth[other]
    for other, _ in taken:
        del fit.taken[other]
    return tuple(taken), total


def _find_same(fit: Fit, part: Part, others: set[Part]) -> set[Part]:
    """Return the part, and those that no test distinguishes from it, of which it is the least."""
    fabric = fit.trials.fabric
    cells = fabric.find_cells(part)
    return {part} | {
        other
        for other in others
        if other.kind is not part.kind
        and (other.kind in PATHS) == (part.kind in PATHS)
        and fabric.find_cells(other) >= cells
        and not can_distinguish(fabric, part, other)
    }


def can_distinguish(fabric: Fabric, one: Part, other: Part) -> bool:
    """Return whether a test is possible that crosses one of these parts alone."""
    paths = (one.kind in PATHS) + (other.kind in PATHS)
    cells = fabric.find_cells(one)
    if paths == 0:
        return cells != fabric.find_cells(other)
    both = cells | fabric.find_cells(other)
    leaves = {fabric.leaf_of[cell] for cell in both}
    if paths == 1:  # a test within a leaf crosses no path
        return any(len(fabric.cells_of_leaf[leaf]) > 1 for leaf in leaves)
    for rail in sorted({rail for _, rail in both}):
        ends = combinations(fabric.leaves_of_rail[rail].values(), 2)
        if any((one in way) != (other in way) for way in (fabric.find_way(a, b) for a, b in ends)):
            return True
    return False


def find_alike(fabric: Fabric, part: Part) -> tuple[Part, ...]:
    """Return the other paths that each test crosses with this one: none shows which is at fault.

    Where one leaf of a pod is tested, its uplinks, the pod's spines and their uplinks are one path.
    A rail's spines are whatever joins its leaves, so that nothing else is named beside them.
    """
    if part.kind not in PATHS or part.kind is Culprit.SPINE:
        return ()
    above = fabric.parts_of[min(fabric.find_cells(part))]
    return tuple(
        other
        for other in sorted(above.paths | above.pod_paths)
        if other != part
        and other.kind is not Culprit.SPINE
        and not can_distinguish(fabric, part, other)
    )


def _choose(fit: Fit, gains: _Gains) -> Part | None:
    """Return the part with the largest gain that is not better explained by parts within it."""
    ordered = sorted(
        (part for part, (gain, _) in gains.items() if gain > 0.0),
        key=lambda part: (-round(gains[part][0], 6), part),
    )
    costs = fit.costs
    for part in ordered[:_CHOICES_MAX]:
        if part.kind is Culprit.LINK:
            return part
        worth = gains[part][0] - costs[part.kind]
        if worth <= 0.0 or _sum_of_parts(fit, gains, part, worth) <= worth:
            return part
    return ordered[0] if ordered else None


def _sum_of_parts(fit: Fit, gains: _Gains, whole: Part, enough: float) -> float:
    """Return what the parts within another one explain together, up to a little over `enough`."""
    within = fit.trials.fabric.find_parts_within(whole)
    return _take_best(fit, gains, within, enough, enough)[1]


EVIDENCE_MAX = 32  # names of tests and partners in one blame
HELD_MIN = 3  # so many parts may be condemned in any fabric, however small
_SINGLE = frozenset({Culprit.NODE, Culprit.LINK})
# parts that are proved only by so many of their own nodes
_OF_MANY = frozenset(
    {Culprit.CARD, Culprit.LEAF, Culprit.UPLINK, Culprit.POD_SPINE, Culprit.POD_UPLINK}
)


@dataclass(frozen=True)
class Doubt:
    """Two explanations of the same results, of which tests must show the right one."""

    part: Part
    rates: Mapping[Part, float]  # of all parts at fault, if this one is
    others: Mapping[Part, float]  # of all parts at fault, if it is not
    cells: frozenset[Cell]

    @property
    def has_rivals(self) -> bool:
        """Return whether other parts are in question, and not noise alone."""
        return not self.others.keys() <= self.rates.keys()

    def find_difference(self, way: frozenset[Part]) -> float:
        """Return how far the chances differ that a test on this way fails."""
        return self._difference_of(way & self._parts)

    @cached_property
    def _parts(self) -> frozenset[Part]:
        return frozenset((*self.rates, *self.others))

    @cached_property
    def _difference_of(self) -> Callable[[frozenset[Part]], float]:
        return cache(
            lambda way: abs(_find_chance(self.rates, way) - _find_chance(self.others, way))
        )


def _find_chance(rates: Mapping[Part, float], way: frozenset[Part]) -> float:
    survives = 1.0
    for part in way & rates.keys():
        survives *= 1 - rates[part]
    return 1 - survives


@dataclass(frozen=True)
class Judgement:
    """The blame, the cells that it explains, and the remaining trials."""

    blames: tuple[Blame, ...]
    explained: frozenset[Cell]  # cells of condemned nodes, links and leaves
    remaining: Trials
    clearance: Clearance
    # parts that explain failures as well as others do, so that the faulty one is not determined
    doubtful: tuple[Blame, ...] = ()
    doubts: tuple[Doubt, ...] = ()  # that tests can decide
    suspicious: frozenset[Cell] = frozenset()  # cells of parts that are not condemned yet
    cut: frozenset[str] = frozenset()  # leaves with no usable path out: condemned, or in doubt
    apart: frozenset[str] = frozenset()  # pods with no usable path to others: likewise
    held: str = ""

    @cached_property
    def in_doubt(self) -> frozenset[Cell]:
        """Return the cells whose tests decide between two explanations."""
        return frozenset().union(*(doubt.cells for doubt in self.doubts if doubt.has_rivals))


def judge_trials(trials: CountedTrials) -> Judgement:
    blames: list[Blame] = []
    doubtful: list[Blame] = []
    doubts: list[Doubt] = []
    explained: set[Cell] = set()
    suspicious: set[Cell] = set()
    shut: list[Part] = []  # paths that are to blame, proved or never to be decided
    margin_min = log(1 / trials.policy.innocent_risk)
    explanations, fit = find_explanations(trials, trials.suspect_at, margin_min)
    find_cells = trials.fabric.find_cells
    for explanation in explanations:
        part = explanation.part
        proved = _is_proved(trials, explanation)
        alike = find_alike(trials.fabric, part) if proved else ()
        if proved and explanation.margin >= margin_min and not alike:
            blames.append(_blame(trials, explanation, part, sure=True))
            if part.kind in PATHS:
                shut.append(part)
            else:
                explained.update(find_cells(part))
            continue
        named = tuple(dict.fromkeys((part, *alike, *(rival for rival, _ in explanation.rivals))))
        if proved:
            doubtful += [_blame(trials, explanation, p, sure=False) for p in named]
            decidable = all(can_distinguish(trials.fabric, part, other) for other in named[1:])
            if part.kind in PATHS and not decidable:
                shut += (p for p in named if p.kind in PATHS)
                continue
        else:
            named = named[:1]
        cells = frozenset().union(*(find_cells(p) for p in named))
        suspicious.update(cells)
        rates = dict(fit.taken)
        others = {p: r for p, r in rates.items() if p != part} | dict(explanation.rivals)
        doubts.append(Doubt(part, rates, others, cells))
    cut, apart = _list_shut(trials.fabric, shut)
    remaining = trials.leave_out(explained, shut)
    # a path that is in doubt still is no node that fell
    paths = {e.part for e in explanations if e.part.kind in PATHS}
    known = remaining if paths <= set(shut) else trials.leave_out(explained, paths)
    down = _fallen(known, explained)
    return Judgement(
        blames=tuple(blames),
        explained=frozenset(explained),
        remaining=remaining,
        clearance=Clearance(fit, remaining),
        doubtful=tuple(doubtful),
        doubts=tuple(doubts),
        suspicious=frozenset(suspicious - explained),
        cut=cut | {b.leaf for b in blames if b.culprit is Culprit.LEAF},
        apart=apart,
        held=_held(trials, blames, down),
    )


def _list_shut(fabric: Fabric, paths: Iterable[Part]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the leaves without a path to others, and the pods, where these paths fail."""
    leaves: set[str] = set()
    pods: set[str] = set()
    for part in paths:
        above = {fabric.leaf_of[cell] for cell in fabric.find_cells(part)}
        if part.kind in POD_PATHS:
            pods |= {fabric.pod_of_leaf[leaf] for leaf in above}
        else:
            leaves |= above
    return frozenset(leaves), frozenset(pods)


def _is_proved(trials: Trials, explanation: Explanation) -> bool:
    """Return whether noise is excluded as the cause, and enough nodes were part of the failures."""
    part = explanation.part
    failures = explanation.failures
    enough = trials.policy.partners_min
    ends = {c for t in failures for c in (t.one, t.other)}
    partners = {c[0] for c in ends} - {part.name}
    if part.kind in _OF_MANY:
        cells = trials.fabric.find_cells(part) & ends
        if len({c[0] for c in cells}) < enough:
            return False
    if part.kind is Culprit.RAIL:
        leaves = {trials.fabric.leaf_of[c] for c in ends}
        if len(leaves) < 2:  # one leaf is all of the rail that was tested
            return False
    return len(partners) >= enough and explanation.gain >= trials.condemn_at + _rate_cost(
        explanation
    )


def _rate_cost(explanation: Explanation) -> float:
    """Return the cost of choosing a rate: even odds for 1, and for all others together."""
    return log(2) if explanation.rate == 1.0 else log(2 * (len(RATES) - 1))


def _fallen(trials: Trials, explained: Iterable[Cell] = ()) -> set[str]:
    """Return nodes that fail on most of their rails, which their leaves cannot cause."""
    explained_cells = frozenset(explained)
    open_rails = {
        name: [r for r in rails if (name, r) not in explained_cells]
        for name, rails in trials.fabric.rails_of.items()
    }
    return {
        name
        for name, rails in open_rails.items()
        if len(rails) > 1 and 2 * sum(trials.raw[name, r] < 0 for r in rails) > len(rails)
    }


def _blame(trials: Trials, explanation: Explanation, part: Part, *, sure: bool) -> Blame:
    """Return the blame of a part, with its evidence in a fixed order."""
    failures = explanation.failures
    node = part.name if part.kind in _SINGLE else ""
    names = {c[0] for t in failures for c in (t.one, t.other)} - {node}
    slow = _slow_ratio(failures)
    verb = "were slow" if slow is not None else "failed"
    chance = len(trials.fabric.leaf_of) * exp(_rate_cost(explanation) - explanation.gain)
    counted = f"{len(failures)} results with {len(names)} nodes {verb}, {explanation.passes} passed"
    symptom = _describe(trials, explanation, part)
    if not sure:
        symptom = f"{symptom}, or another part on the same path"
    return Blame(
        culprit=part.kind,
        node=node,
        rail=part.rail,
        leaf=_leaf_of(trials, part),
        group="" if node or part.kind in (Culprit.LEAF, Culprit.UPLINK) else part.name,
        rate=explanation.rate,
        confidence=round(max(0.0, 1.0 - chance), 9) if sure else 0.0,
        reason=f"{symptom}; {counted}",
        slow=slow,
        partners=tuple(sorted(names)[:EVIDENCE_MAX]),
        tests=tuple(sorted({t.test for t in failures})[:EVIDENCE_MAX]),
    )


def _leaf_of(trials: Trials, part: Part) -> str:
    if part.kind is Culprit.LINK:
        return trials.fabric.leaf_of[part.name, part.rail]
    return part.name if part.kind in (Culprit.LEAF, Culprit.UPLINK) else ""


def _describe(trials: Trials, explanation: Explanation, part: Part) -> str:
    ends = {c for t in explanation.failures for c in (t.one, t.other)}
    cells = trials.fabric.find_cells(part)
    bad = len(ends & cells)
    share = f"{explanation.rate:.0%} of its tests fail"
    match part.kind:
        case Culprit.NODE:
            return f"it fails on {bad} of {len(cells)} rails, {share}"
        case Culprit.LINK:
            return f"its node's other rails do not explain it, {share}"
        case Culprit.UPLINK:
            return f"its nodes reach one another, and {bad} do not reach other leaves well, {share}"
        case Culprit.SPINE:
            return f"leaves of this rail do not reach one another well, {share}"
        case Culprit.POD_SPINE:
            return f"{bad} links of their pod do not reach other leaves well, {share}"
        case Culprit.POD_UPLINK:
            return f"{bad} links of their pod do not reach other pods well, {share}"
        case Culprit.SUPERSPINE:
            return f"pods do not reach one another well, {share}"
        case _:
            return f"{bad} of {len(cells)} links that depend on it fail, with any partner, {share}"


def _slow_ratio(failures: Sequence[Trial]) -> float | None:
    """Return the median ratio, if most of the failures are slow results."""
    ratios = [t.ratio for t in failures if t.ratio is not None and t.slow]
    return median(ratios) if len(ratios) * 2 > len(failures) else None


def _held(trials: Trials, blames: Sequence[Blame], down: set[str]) -> str:
    """Return why all this blame is held back; "" if it is not.

    `down`: nodes that fail on most rails, proved or not. If many fail, there are too few good
    partners to prove a fault on any of them.
    """
    nodes = len({b.node for b in blames if b.node} | down)
    leaves = len({b.leaf for b in blames if b.culprit in (Culprit.LEAF, Culprit.UPLINK)})
    rails = len({b.group for b in blames if b.culprit in (Culprit.RAIL, Culprit.SPINE)})
    pods = len({b.group for b in blames if b.culprit in (Culprit.POD_SPINE, Culprit.POD_UPLINK)})
    for count, whole, kind in (
        (pods, len(trials.fabric.pods), "pods"),
        (rails, len({rail for _, rail in trials.fabric.leaf_of}), "rails"),
        (nodes, len(trials.fabric.nodes), "nodes"),
        (leaves, len(trials.fabric.cells_of_leaf), "leaves"),
    ):
        if count > max(HELD_MIN, trials.policy.held_share * whole):
            return f"{count} of {whole} {kind} at once: look for a common cause first"
    return ""
