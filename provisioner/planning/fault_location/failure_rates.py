"""Parts that explain the results, each with a failure rate of its own, and what else could. Pure.

Each hypothesis is one part: a node, a link, a leaf, a leaf's uplinks, or a cause that many share (a
line card, the spines of a rail, a rail, a rack, a power feed). The hypothesis that raises the
likelihood of all results most is taken with its best rate; then the others are compared for what it
leaves unexplained, until none is worth a look. So a leaf that fails in four of ten tests accuses
none of its links, and a link is not accused for its leaf. A part that contains others (a leaf its
links) is taken only if these, one by one, do not explain the same results better: three bad links
on one rail are no bad rail. Each part costs the logarithm of the number of parts of its kind.

Then each part is tried again: without it, any other parts may explain the results. If they do so
better, they take its place. Else the difference of both explanations is the part's margin: the
logarithm of the odds that it is at fault, and not these others.

The gain of a hypothesis is a logarithm of odds (natural). The chance that noise alone gives any
cell of the fabric a gain of g or more is below cells * exp(-g) (Wald), times the number of rates
tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from provisioner.planning.fault_location.isolation_trials import CountedTrials, Trial
from provisioner.planning.fault_location.isolation_words import PATHS, Culprit, Fabric, Part
from provisioner.planning.fault_location.rate_fit import RATES, Fit, count_trials

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
        _put_back(fit, gains, part)
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
        _take(fit, gains, part, rate)
    explanations = [e for e in explanations if e.part in fit.taken]
    return sorted(explanations, key=lambda e: (-round(e.gain, 6), e.part)), fit


def _take(fit: Fit, gains: _Gains, part: Part, rate: float) -> None:
    changed = fit.take(part, rate)
    gains.pop(part, None)
    gains.update((p, fit.find_rate(p)) for p in changed if p not in fit.taken)


def _put_back(fit: Fit, gains: _Gains, part: Part) -> None:
    changed = fit.put_back(part)
    gains.update((p, fit.find_rate(p)) for p in {*changed, part} if p not in fit.taken)


def _explain(
    fit: Fit,
    part: Part,
    weight: tuple[float, float, float],
    rivals: tuple[tuple[Part, float], ...],
) -> Explanation:
    """Return the explanation by a part, beside the others that are taken."""
    gain, rate, margin = weight
    listed = fit.trials.listed
    mine = fit.find_trials(part)
    failed = [n for n in mine if listed[n].failed]
    return Explanation(
        part=part,
        rate=rate,
        gain=gain,
        failures=tuple(listed[n] for n in failed if fit.survives.get(n, 1.0) > 1 - RATES[0]),
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
    costs = fit.costs
    ways = fit.trials.ways
    mine = set(chain.from_iterable(ways[number] for number in fit.find_trials(part)))
    same = _find_same(fit, part, mine)
    worth: _Gains = {}
    for other in mine - same - fit.taken.keys():
        gain, rate = gains.get(other, (0.0, 0.0))
        if gain > costs[other.kind]:
            worth[other] = gain - costs[other.kind], rate
    taken: list[tuple[Part, float]] = []
    total = 0.0
    while worth and total + sum(w for w, _ in worth.values()) > enough:
        best = min(worth, key=lambda p: (-round(worth[p][0], 6), p))
        gained, rate = worth.pop(best)
        total += gained
        taken.append((best, rate))
        for other in fit.take(best, rate) & worth.keys():
            gain, rate = fit.find_rate(other)
            worth[other] = gain - costs[other.kind], rate
            if worth[other][0] <= 0.0:
                del worth[other]
    for other, _ in reversed(taken):
        fit.put_back(other)
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
    rails = {rail for _, rail in both}
    return len(rails) > 1 or len(fabric.leaves_of_rail[min(rails)]) > 2


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
    costs = fit.costs
    worth: _Gains = {}  # of the parts within
    bound = 0.0
    for part in fit.trials.fabric.find_parts_within(whole):
        gain, rate = gains.get(part, (0.0, 0.0))
        if gain > costs[part.kind]:
            worth[part] = gain, rate
            bound += gain - costs[part.kind]
    if bound <= enough:  # together they explain no more than one by one
        return bound
    survives: dict[int, float] = {}
    total = 0.0
    while worth and total <= enough:
        best = max(worth, key=lambda part: worth[part][0] - costs[part.kind])
        gain, rate = worth.pop(best)
        total += gain - costs[best.kind]
        changed: set[Part] = set()
        for number in fit.find_trials(best):
            before = survives.get(number, fit.survives.get(number, 1.0))
            survives[number] = round(before * (1 - rate), 6)
            changed |= fit.trials.ways[number]
        for part in changed & worth.keys():
            worth[part] = fit.find_rate_with(part, survives)
            if worth[part][0] <= costs[part.kind]:
                del worth[part]
    return total
