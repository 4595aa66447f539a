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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from statistics import median_low

from provisioner.planning.fault_location.isolation_trials import CountedTrials, Trial
from provisioner.planning.fault_location.isolation_words import (
    PART_ORDER,
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

    trials: CountedTrials
    costs: Mapping[Culprit, float]  # of naming one part, by its kind
    noise: float
    # by trial, if it is below 1: the chance that no part taken so far fails it
    survives: dict[int, float] = field(default_factory=dict)
    counts: dict[Part, _Counts] = field(default_factory=dict)
    _trials: dict[Part, list[int]] = field(default_factory=dict)

    def find_trials(self, part: Part) -> list[int]:
        """Return the numbers of the trials that a part can fail, computed once."""
        if part not in self._trials:
            cells = self.trials.fabric.find_cells(part)
            numbers_of = self.trials.numbers_of
            numbers = {number for cell in cells for number in numbers_of.get(cell, ())}
            if part.kind in _PATHS:
                listed = self.trials.listed
                numbers = {number for number in numbers if not listed[number].local}
            self._trials[part] = sorted(numbers)
        return self._trials[part]

    def take(self, part: Part, rate: float) -> set[Part]:
        """Let a part explain its trials; return the parts whose counts changed."""
        changed: set[Part] = set()
        for number in self.find_trials(part):
            before = self.survives.get(number, 1.0)
            after = self.survives[number] = round(before * (1 - rate), 6)
            failed = self.trials.listed[number].failed
            for other in self.trials.ways[number]:
                counts = self.counts.get(other)
                if counts is None:
                    continue
                changed.add(other)
                mine = counts[before]
                mine[0] -= 1
                mine[1] -= failed
                moved = counts.get(after)
                if moved is None:
                    moved = counts[after] = [0, 0]
                moved[0] += 1
                moved[1] += failed
        return changed

    def find_rate(self, part: Part) -> tuple[float, float]:
        """Return the gain of a part and its best rate."""
        return self._rate(self.counts[part])

    def find_rate_with(self, part: Part, survives: Mapping[int, float]) -> tuple[float, float]:
        """Return gain and rate as they would be with other explanations taken before."""
        counts: _Counts = {}
        for number in self.find_trials(part):
            before = survives.get(number)
            if before is None:
                before = self.survives.get(number, 1.0)
            mine = counts.get(before)
            if mine is None:
                mine = counts[before] = [0, 0]
            mine[0] += 1
            mine[1] += self.trials.listed[number].failed
        return self._rate(counts)

    def _rate(self, counts: _Counts) -> tuple[float, float]:
        listed = [(s, tests, failures) for s, (tests, failures) in counts.items() if tests]
        if len(listed) == 1:
            return _fit_rate(self.noise, *listed[0])
        gains = [0.0] * len(RATES)
        for survives, tests, failures in listed:
            passes = tests - failures
            for i, (by_failure, by_pass) in enumerate(_weigh_rates(self.noise, survives)):
                gains[i] += failures * by_failure + passes * by_pass
        return max((0.0, 0.0), max(zip(gains, RATES, strict=True)))


@lru_cache(maxsize=65536)
def _fit_rate(noise: float, survives: float, tests: int, failures: int) -> tuple[float, float]:
    """Return the best gain and its rate of a part whose tests all survive others as often."""
    passes = tests - failures
    gains = (
        (failures * by_failure + passes * by_pass, rate)
        for rate, (by_failure, by_pass) in zip(RATES, _weigh_rates(noise, survives), strict=True)
    )
    return max((0.0, 0.0), *gains)


@lru_cache(maxsize=4096)
def _weigh_rates(noise: float, survives: float) -> tuple[tuple[float, float], ...]:
    """Return what a failure and a pass add to the gain of a part with each of `RATES`."""
    before = noise + (1 - 2 * noise) * (1 - survives)
    weights = []
    for rate in RATES:
        after = noise + (1 - 2 * noise) * (1 - survives * (1 - rate))
        weights.append((log(after / before), log((1 - after) / (1 - before))))
    return tuple(weights)


def find_explanations(trials: CountedTrials, gain_min: float) -> list[Explanation]:
    """Return the parts that explain the results, the strongest first, with at least this gain."""
    listed = trials.listed
    fit = _count(trials)
    gains = {part: fit.find_rate(part) for part in fit.counts}
    taken: list[Explanation] = []
    while gains:
        best = _choose(fit, gains)
        gain, rate = gains[best]
        if gain < gain_min:
            break
        mine = fit.find_trials(best)
        failed = [n for n in mine if listed[n].failed]
        open_failures = [n for n in failed if fit.survives.get(n, 1.0) > 1 - RATES[0]]
        rivals = _find_rivals(fit, gains, best, open_failures)
        taken.append(
            Explanation(
                part=best,
                rate=rate,
                gain=gain,
                failures=tuple(listed[n] for n in open_failures),
                passes=len(mine) - len(failed),
                rivals=rivals,
            )
        )
        changed = fit.take(best, rate)
        gains.update((part, fit.find_rate(part)) for part in changed if part in gains)
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
    worth: dict[Part, tuple[float, float]] = {}  # gain and rate of the parts within
    for part in fit.trials.fabric.find_parts_within(whole):
        gain, rate = gains.get(part, (0.0, 0.0))
        if gain > costs[part.kind]:
            worth[part] = gain, rate
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


def _count_costs(trials: CountedTrials) -> dict[Culprit, float]:
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
        for part in fit.trials.ways[number]:
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


def _count(trials: CountedTrials) -> _Fit:
    """Count the tests and failures of every part that is examined, before any is explained."""
    fit = _Fit(trials, _count_costs(trials), estimate_noise(trials))
    for part, count in trials.failures.items():
        if count >= FAILURES_MIN:
            passed_groups = _count_group_passes(trials, part)
            fit.counts[part] = {1.0: [passed_groups + trials.tests[part], count]}
    return fit


def _count_group_passes(trials: CountedTrials, part: Part) -> int:
    """Return the passed collectives that a part took part in."""
    if part.kind in (Culprit.NODE, Culprit.LINK):
        return len(trials.groups.get(part.name, ()))
    if part.kind is Culprit.LEAF:
        cells = trials.fabric.cells_of_leaf[part.name]
        return sum(len(trials.groups.get(node, ())) for node, _ in cells)
    return 0


def estimate_noise(trials: CountedTrials) -> float:
    """Return the share of results that are wrong by chance: the policy's, or more if it is seen.

    The middle leaf by its share of failures stands for the fabric: a bad part moves few leaves.
    """
    shares = []
    for cells in trials.fabric.cells_of_leaf.values():
        results = sum(len(trials.by_cell.get(cell, ())) for cell in cells)
        if results >= _RESULTS_MIN:
            shares.append(sum(trials.failed[cell] for cell in cells) / results)
    usual = median_low(shares) if len(shares) >= _LEAVES_MIN else 0.0
    return min(max(trials.policy.noise, usual), NOISE_MAX)
