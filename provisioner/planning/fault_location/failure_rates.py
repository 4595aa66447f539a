"""Fit of failure rates: which parts, each with a rate of its own, explain the results. Pure.

A test between two cells fails if a part on its way fails, or by chance (`IsolationPolicy.noise`).
Each hypothesis is one part: a node, a link, a leaf, a leaf's uplinks, or a cause that many share (a
line card, the spines of a rail, a rail, a rack, a power feed). The hypothesis that raises the
likelihood of all results most is taken with its best rate; then the others are compared for what it
leaves unexplained, until none is worth a look. So a leaf that fails in four of ten tests accuses
none of its links, and a link is not accused for its leaf. A part that contains others (a leaf its
links) is taken only if these, one by one, do not explain the same results better: three bad links
on one rail are no bad rail. Each part costs the logarithm of the number of parts of its kind.

The gain of a hypothesis is a logarithm of odds (natural). The chance that noise alone gives any
cell of the fabric a gain of g or more is below cells * exp(-g) (Wald), times the number of rates
tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, compress
from math import log
from statistics import median_low

from provisioner.planning.fault_location.isolation_trials import Trial, Trials
from provisioner.planning.fault_location.isolation_words import (
    PART_ORDER,
    Cell,
    Culprit,
    Part,
)

RATES = tuple(n / 20 for n in range(2, 21))  # the rates that are tried: 0.1 to 1
NOISE_MAX = 0.15  # more wrong results than this are no noise
_RESULTS_MIN = 32  # of a leaf, to show the share of wrong results
_LEAVES_MIN = 4
FAILURES_MIN = 2  # a part with fewer is not examined
TIE = log(20)  # two explanations whose odds differ by less are equally good
_PATHS = frozenset({Culprit.UPLINK, Culprit.SPINE})  # they contain no cells
_CHOICES_MAX = 64  # parts that are considered for one explanation, the strongest first
_Counts = dict[float, list[int]]  # chance to survive other parts -> tests, failures


@dataclass(frozen=True, slots=True)
class Explanation:
    """A part with the rate that explains the results best, and its evidence."""

    part: Part
    rate: float
    gain: float
    failures: tuple[Trial, ...]  # that no part before it explains
    passes: int
    rivals: tuple[Part, ...] = ()  # other parts that explain these failures as well


@dataclass
class _Fit:
    """The counts of every part, while explanations are taken one by one."""

    trials: Trials
    costs: Mapping[Culprit, float]  # of naming one part, by its kind
    noise: float
    listed: Sequence[Trial]
    ways: Sequence[frozenset[Part]]  # by trial: the parts on its way
    failed: list[bool]
    survives: list[float]  # by trial: the chance that no part taken so far fails it
    counts: dict[Part, _Counts] = field(default_factory=dict)
    numbers_of: dict[Cell, list[int]] = field(default_factory=dict)  # its trials, by number
    _cells: dict[Part, frozenset[Cell]] = field(default_factory=dict)
    _trials: dict[Part, list[int]] = field(default_factory=dict)

    def find_cells(self, part: Part) -> frozenset[Cell]:
        """Return the cells whose tests a part can fail, computed once."""
        if part not in self._cells:
            self._cells[part] = frozenset(list_cells(self.trials, part))
        return self._cells[part]

    def find_trials(self, part: Part) -> list[int]:
        """Return the numbers of the trials that a part can fail, computed once."""
        if part not in self._trials:
            across = part.kind in _PATHS
            numbers = {
                number
                for cell in self.find_cells(part)
                for number in self.numbers_of.get(cell, ())
                if not (across and self.listed[number].local)
            }
            self._trials[part] = sorted(numbers)
        return self._trials[part]

    def take(self, part: Part, rate: float) -> None:
        """Let a part explain its trials."""
        for number in self.find_trials(part):
            before = self.survives[number]
            after = self.survives[number] = round(before * (1 - rate), 6)
            for other in self.ways[number]:
                counts = self.counts.get(other)
                if counts is None:
                    continue
                counts[before][0] -= 1
                counts[before][1] -= self.failed[number]
                moved = counts.setdefault(after, [0, 0])
                moved[0] += 1
                moved[1] += self.failed[number]

    def find_rate(self, part: Part) -> tuple[float, float]:
        """Return the gain of a part and its best rate."""
        return self._rate(self.counts[part])

    def find_rate_with(self, part: Part, survives: Mapping[int, float]) -> tuple[float, float]:
        """Return gain and rate as they would be with other explanations taken before."""
        counts: _Counts = {}
        for number in self.find_trials(part):
            mine = counts.setdefault(survives[number], [0, 0])
            mine[0] += 1
            mine[1] += self.failed[number]
        return self._rate(counts)

    def _rate(self, counts: _Counts) -> tuple[float, float]:
        best = (0.0, 0.0)
        for rate in RATES:
            gain = 0.0
            for survives, (tests, failures) in counts.items():
                if tests:
                    by_failure, by_pass = _weights(self.noise, survives, rate)
                    gain += failures * by_failure + (tests - failures) * by_pass
            best = max(best, (gain, rate))
        return best


@lru_cache(maxsize=4096)
def _weights(noise: float, survives: float, rate: float) -> tuple[float, float]:
    """Return what a failure and a pass add to the gain of a part with this rate."""
    before = noise + (1 - 2 * noise) * (1 - survives)
    after = noise + (1 - 2 * noise) * (1 - survives * (1 - rate))
    return log(after / before), log((1 - after) / (1 - before))


def find_explanations(trials: Trials, gain_min: float) -> list[Explanation]:
    """Return the parts that explain the results, the strongest first, with at least this gain."""
    listed = list(_list_trials(trials))
    fit = _count(trials, listed)
    gains = {part: fit.find_rate(part) for part in fit.counts}
    taken: list[Explanation] = []
    while gains:
        best = _choose(fit, gains)
        gain, rate = gains[best]
        if gain < gain_min:
            break
        mine = fit.find_trials(best)
        open_failures = [n for n in mine if fit.failed[n] and fit.survives[n] > 1 - RATES[0]]
        rivals = _find_rivals(fit, gains, best, open_failures)
        taken.append(
            Explanation(
                part=best,
                rate=rate,
                gain=gain,
                failures=tuple(listed[n] for n in open_failures),
                passes=sum(not fit.failed[n] for n in mine),
                rivals=rivals,
            )
        )
        fit.take(best, rate)
        changed = {p for n in mine for p in fit.ways[n] if p in gains}
        gains.update((part, fit.find_rate(part)) for part in changed)
        for part in (best, *rivals):
            gains.pop(part, None)
    return taken


def _choose(fit: _Fit, gains: dict[Part, tuple[float, float]]) -> Part:
    """Return the part with the largest gain that is not better explained by parts within it."""
    ordered = sorted(gains, key=lambda part: (-round(gains[part][0], 6), part))
    costs = fit.costs
    for part in ordered[:_CHOICES_MAX]:
        if part.kind is Culprit.LINK:
            return part
        worth = gains[part][0] - costs[part.kind]
        if worth <= 0.0 or _sum_of_parts(fit, gains, part, worth) <= worth:
            return part
    return ordered[0]


def _sum_of_parts(
    fit: _Fit,
    gains: dict[Part, tuple[float, float]],
    whole: Part,
    enough: float,
) -> float:
    """Return what the parts within another one explain together, up to a little over `enough`."""
    costs = fit.costs
    cells = fit.find_cells(whole)
    inner = [
        part
        for part, (gain, _) in gains.items()
        if part.rank < whole.rank
        and part.kind not in _PATHS
        and gain > costs[part.kind]
        and fit.find_cells(part) < cells
    ]
    survives = dict(enumerate(fit.survives))
    total = 0.0
    while inner and total <= enough:
        rated = {part: fit.find_rate_with(part, survives) for part in inner}
        best = max(inner, key=lambda part: rated[part][0] - costs[part.kind])
        gain, rate = rated[best]
        if gain <= costs[best.kind]:
            break
        total += gain - costs[best.kind]
        for number in fit.find_trials(best):
            survives[number] = round(survives[number] * (1 - rate), 6)
        inner = [p for p in inner if p != best and rated[p][0] > costs[p.kind]]
    return total


def _count_costs(trials: Trials) -> dict[Culprit, float]:
    """Return the cost of naming one part, by its kind."""
    fabric = trials.fabric
    leaves = len(fabric.cells_of_leaf)
    counts = dict.fromkeys(PART_ORDER, max(1, len({rail for _, rail in fabric.leaf_of})))
    counts |= {Culprit.LINK: len(fabric.leaf_of), Culprit.NODE: len(fabric.nodes)}
    counts |= {Culprit.LEAF: leaves, Culprit.UPLINK: leaves}
    for part in fabric.shared:
        counts[part.kind] = sum(p.kind is part.kind for p in fabric.shared)
    return {kind: log(max(1, count) * len(RATES)) for kind, count in counts.items()}


def _find_rivals(
    fit: _Fit, gains: dict[Part, tuple[float, float]], best: Part, failures: Sequence[int]
) -> tuple[Part, ...]:
    """Return parts that explain as much of the same failures, on other tests as well."""
    shared: dict[Part, int] = {}
    for number in failures:
        for part in fit.ways[number]:
            if part != best and part in gains:
                shared[part] = shared.get(part, 0) + 1
    tests = set(fit.find_trials(best))
    rivals = []
    for part, count in shared.items():
        as_good = gains[part][0] >= gains[best][0] - TIE
        if not as_good or 2 * count <= len(failures):
            continue
        others = set(fit.find_trials(part))
        same_tests = others == tests and part.kind is not best.kind
        if not same_tests and not (others < tests):
            rivals.append(part)
    return tuple(sorted(rivals))


def _list_trials(trials: Trials) -> Iterator[Trial]:
    for cell, mine in trials.by_cell.items():
        for trial in mine:
            if trial.one == cell:
                yield trial


def _count(trials: Trials, listed: Sequence[Trial]) -> _Fit:
    """Count the tests and failures of every part that is examined, before any is explained."""
    ways = [trials.fabric.find_way(trial.one, trial.other) for trial in listed]
    failed = [trial.failed for trial in listed]
    failures = Counter(chain.from_iterable(compress(ways, failed)))
    tests = Counter(chain.from_iterable(ways))
    survives = [1.0] * len(listed)
    noise = estimate_noise(trials)
    fit = _Fit(trials, _count_costs(trials), noise, listed, ways, failed, survives)
    for number, trial in enumerate(listed):
        fit.numbers_of.setdefault(trial.one, []).append(number)
        fit.numbers_of.setdefault(trial.other, []).append(number)
    for part, count in failures.items():
        if count >= FAILURES_MIN:
            passed_groups = _count_group_passes(trials, part)
            fit.counts[part] = {1.0: [passed_groups + tests[part], count]}
    return fit


def _count_group_passes(trials: Trials, part: Part) -> int:
    """Return the passed collectives that a part took part in."""
    if part.kind in (Culprit.NODE, Culprit.LINK):
        return len(trials.groups.get(part.name, ()))
    if part.kind is Culprit.LEAF:
        cells = trials.fabric.cells_of_leaf[part.name]
        return sum(len(trials.groups.get(node, ())) for node, _ in cells)
    return 0


def estimate_noise(trials: Trials) -> float:
    """Return the share of results that are wrong by chance: the policy's, or more if it is seen.

    The middle leaf by its share of failures stands for the fabric: a bad part moves few leaves.
    """
    shares = []
    for cells in trials.fabric.cells_of_leaf.values():
        results = [t.failed for cell in cells for t in trials.by_cell.get(cell, ())]
        if len(results) >= _RESULTS_MIN:
            shares.append(sum(results) / len(results))
    usual = median_low(shares) if len(shares) >= _LEAVES_MIN else 0.0
    return min(max(trials.policy.noise, usual), NOISE_MAX)


def list_cells(trials: Trials, part: Part) -> tuple[Cell, ...]:
    """Return the cells whose tests a part can fail."""
    fabric = trials.fabric
    match part.kind:
        case Culprit.LINK:
            return ((part.name, part.rail),)
        case Culprit.NODE:
            return tuple((part.name, rail) for rail in fabric.rails_of[part.name])
        case Culprit.LEAF | Culprit.UPLINK:
            return fabric.cells_of_leaf[part.name]
        case Culprit.RAIL | Culprit.SPINE:
            rail = int(part.name.removeprefix("rail "))
            return tuple(cell for cell in fabric.leaf_of if cell[1] == rail)
        case _:
            shared = part.kind, part.name
            return tuple(cell for cell, parts in fabric.shared_by.items() if shared in parts)
