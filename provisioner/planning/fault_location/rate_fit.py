"""Counts of tests and failures by part, while some parts explain results, and the best rates. Pure.

A test between two cells fails if a part on its way fails, or by chance. The gain of a part is what
it adds to the logarithm of the likelihood of all results (natural), beside the parts that are taken
as explanations already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import log, prod
from statistics import median_low

from provisioner.planning.fault_location.isolation_trials import CountedTrials
from provisioner.planning.fault_location.isolation_words import (
    PART_ORDER,
    Culprit,
    IsolationPolicy,
    Part,
)

RATES = tuple(n / 20 for n in range(2, 21))  # the rates that are tried: 0.1 to 1
NOISE_MAX = 0.15  # more wrong results than this are no noise
FAILURES_MIN = 2  # a part with fewer is not examined
# one more part at fault is so many times less likely: the spines of three leaves that reach no
# other are not in doubt because the uplinks of two of them could have failed instead
_FAULTS_RARE = 10
_RESULTS_MIN = 32  # of a leaf, to show the share of wrong results
_LEAVES_MIN = 4
_Counts = dict[float, list[int]]  # chance to survive other parts -> tests, failures


@dataclass
class Fit:
    """The counts of every part, while explanations are taken and put back."""

    trials: CountedTrials
    costs: Mapping[Culprit, float]  # of naming one part, by its kind
    noise: float
    counts: dict[Part, _Counts] = field(default_factory=dict)
    taken: dict[Part, float] = field(default_factory=dict)  # parts that explain, with their rates
    least: float = 0.0  # parts whose gain is certainly less have none: they explain too little
    few: float = 0.0  # failures that are certainly worth less than that

    def take(self, part: Part, rate: float, counts: dict[Part, _Counts] | None = None) -> set[Part]:
        """Let a part explain its trials; return the parts whose counts (or all) changed."""
        changed = self._move(part, rate, self.counts if counts is None else counts, taking=True)
        self.taken[part] = rate
        return changed

    def put_back(self, part: Part) -> set[Part]:
        """Let a part explain nothing any more; return the parts whose counts changed."""
        return self._move(part, self.taken.pop(part), self.counts, taking=False)

    def find_crossing(self, part: Part) -> set[int]:
        """Return the trials of a part that other parts, which are taken, can fail too."""
        numbers_of = self.trials.numbers_of
        mine = set(numbers_of.get(part, ()))
        return set().union(*(mine.intersection(numbers_of[other]) for other in self.taken))

    def _move(
        self, part: Part, rate: float, counts: dict[Part, _Counts], *, taking: bool
    ) -> set[Part]:
        """Count the trials of a part, which is not among the taken, by what is left unexplained."""
        trials = self.trials
        ends = (1.0, _survive([rate])) if taking else (_survive([rate]), 1.0)
        changed = _shift(counts, trials.count_together(part), *ends)
        for explained, counted in trials.count_crossing(part, frozenset(self.taken)).items():
            rates = [self.taken[other] for other in explained]
            both = _survive(rates), _survive([*rates, rate])
            _shift(counts, counted, *ends[::-1])  # they were not all unexplained before
            _shift(counts, counted, *(both if taking else both[::-1]))
        return changed

    def find_rate(self, part: Part) -> tuple[float, float]:
        return self.fit_rate(self.counts[part])

    def fit_rate(self, counts: _Counts) -> tuple[float, float]:
        """Return gain and rate; (0.0, 0.0) where it certainly explains less than `least`."""
        if len(counts) > 1:
            return self._rate(counts)
        ((survives, (tests, failures)),) = counts.items()
        worth = failures > self.few
        return _fit_rate(self.noise, survives, tests, failures) if worth else (0.0, 0.0)

    def weigh(self, part: Part, rate: float, noise: float) -> float:
        """Return the gain of a part with this rate, which may be negative."""
        counts = self.counts.get(part) or {1.0: [_count_group_passes(self.trials, part), 0]}
        total = 0.0
        for survives, (tests, failures) in counts.items():
            if tests:
                by_failure, by_pass = weigh_result(noise, survives, rate)
                total += failures * by_failure + (tests - failures) * by_pass
        return total

    def count_unexplained(self) -> tuple[int, int]:
        """Return the trials that no taken part explains, and how many of them failed."""
        listed = self.trials.listed
        explained = set().union(*(self.trials.numbers_of[part] for part in self.taken))
        failed = sum(listed[n].failed for n in explained)
        return len(listed) - len(explained), self.trials.failed_count - failed

    def _rate(self, counts: _Counts) -> tuple[float, float]:
        listed = [(s, tests, failures) for s, (tests, failures) in counts.items() if tests]
        if len(listed) == 1:
            return _fit_rate(self.noise, *listed[0])
        most = sum(_fit_rate(self.noise, *counted)[0] for counted in listed)
        if most < self.least:
            return (0.0, 0.0)
        gains = [0.0] * len(RATES)
        for survives, tests, failures in listed:
            passes = tests - failures
            for i, (by_failure, by_pass) in enumerate(_weigh_rates(self.noise, survives)):
                gains[i] += failures * by_failure + passes * by_pass
        return max((0.0, 0.0), max(zip(gains, RATES, strict=True)))


def _shift(
    counts: dict[Part, _Counts],
    counted: tuple[Mapping[Part, int], Mapping[Part, int]],
    source: float,
    target: float,
) -> set[Part]:
    """Count these tests and failures at another chance to survive; return the parts that change."""
    tests, failures = counted
    changed = tests.keys() & counts.keys()
    for part in changed:
        mine = counts[part]
        for chance, sign in ((source, -1), (target, 1)):
            at = mine.setdefault(chance, [0, 0])
            at[0] += sign * tests[part]
            at[1] += sign * failures.get(part, 0)
            if not any(at):  # what is left of a chance may be negative for a moment
                del mine[chance]
    return changed


def _survive(rates: Iterable[float]) -> float:
    """Return the chance that a trial survives parts with these rates, in any order."""
    return round(prod((1 - rate for rate in sorted(rates)), start=1.0), 6)


@lru_cache(maxsize=2**18)
def _fit_rate(noise: float, survives: float, tests: int, failures: int) -> tuple[float, float]:
    """Return the best gain and its rate of a part whose tests all survive others as often."""
    passes = tests - failures
    if failures <= (noise + (1 - 2 * noise) * (1 - survives)) * tests:
        return 0.0, 0.0  # it fails no oftener than without this part
    gains = (
        (failures * by_failure + passes * by_pass, rate)
        for rate, (by_failure, by_pass) in zip(RATES, _weigh_rates(noise, survives), strict=True)
    )
    return max((0.0, 0.0), *gains)


@lru_cache(maxsize=4096)
def _weigh_rates(noise: float, survives: float) -> tuple[tuple[float, float], ...]:
    """Return what a failure and a pass add to the gain of a part with each of `RATES`."""
    return tuple(weigh_result(noise, survives, rate) for rate in RATES)


@lru_cache(maxsize=4096)
def weigh_result(noise: float, survives: float, rate: float) -> tuple[float, float]:
    """Return what a failure and a pass add to the gain of a part with this rate."""
    before = noise + (1 - 2 * noise) * (1 - survives)
    after = noise + (1 - 2 * noise) * (1 - survives * (1 - rate))
    return log(after / before), log((1 - after) / (1 - before))


def tell_by_test(noise: float, rate: float) -> float:
    """Return what one test adds on average to the gain of a part that fails at this rate."""
    by_failure, by_pass = weigh_result(noise, 1.0, rate)
    failing = noise + (1 - 2 * noise) * rate
    return failing * by_failure + (1 - failing) * by_pass


def count_costs(trials: CountedTrials) -> dict[Culprit, float]:
    """Return the cost of naming one part, by its kind."""
    fabric = trials.fabric
    leaves = len(fabric.cells_of_leaf)
    counts = dict.fromkeys(PART_ORDER, max(1, len({rail for _, rail in fabric.leaf_of})))
    counts |= {Culprit.LINK: len(fabric.leaf_of), Culprit.NODE: len(fabric.nodes)}
    counts |= {Culprit.LEAF: leaves, Culprit.UPLINK: leaves}
    if fabric.pods:
        counts |= dict.fromkeys((Culprit.POD_SPINE, Culprit.POD_UPLINK), len(fabric.pods))
        counts[Culprit.SUPERSPINE] = 1
    for part in fabric.shared:
        counts[part.kind] = sum(p.kind is part.kind for p in fabric.shared)
    return {k: log(max(1, count) * len(RATES) * _FAULTS_RARE) for k, count in counts.items()}


def count_trials(trials: CountedTrials) -> Fit:
    """Count the tests and failures of every part that is examined, before any is explained.

    A link is counted even without failures, because it must be cleared.
    """
    costs = count_costs(trials)
    fit = Fit(trials, costs, estimate_noise(trials))
    fit.least = min(trials.suspect_at, *costs.values())
    fit.few = fit.least / log(1 / fit.noise)  # no failure adds more than this logarithm
    for part, numbers in trials.numbers_of.items():
        count = trials.failures[part]
        if count >= FAILURES_MIN or part.kind is Culprit.LINK:
            passed_groups = _count_group_passes(trials, part) if trials.groups else 0
            fit.counts[part] = {1.0: [passed_groups + len(numbers), count]}
    return fit


def _count_group_passes(trials: CountedTrials, part: Part) -> int:
    if not trials.groups:
        return 0
    if part.kind in (Culprit.NODE, Culprit.LINK):
        return len(trials.groups.get(part.name, ()))
    if part.kind is Culprit.LEAF:
        cells = trials.fabric.find_cells(part)
        return sum(len(trials.groups.get(node, ())) for node, _ in cells)
    return 0


def estimate_noise(trials: CountedTrials) -> float:
    """Return the share of results that are wrong by chance: the policy's, or more if it is seen.

    The middle leaf by its share of failures stands for the fabric: a bad part moves few leaves.
    """
    shares = [
        failed / results for results, failed in trials.of_leaf.values() if results >= _RESULTS_MIN
    ]
    usual = median_low(shares) if len(shares) >= _LEAVES_MIN else 0.0
    return bound_noise(trials.policy, usual)


def bound_noise(policy: IsolationPolicy, share: float) -> float:
    """Return the share of wrong results to assume where this share was seen."""
    return min(max(policy.noise, round(share, 3)), NOISE_MAX)
