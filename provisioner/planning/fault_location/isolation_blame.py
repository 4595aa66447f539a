"""Derivation of blame from the fitted failure rates: condemned, in doubt, or only suspicious.

A part is condemned if noise is excluded as the cause of its failures, if they happened with at
least three other nodes, and if no other part explains them as well; else it stays under suspicion,
and its cells are tested further. In both cases its failures accuse no smaller part. More blame at
once than is plausible for a site has a common cause (a bad image, a power cut, a switch
configuration); then no part is condemned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from statistics import median

from provisioner.planning.fault_location.clearance import Clearance
from provisioner.planning.fault_location.failure_rates import (
    Explanation,
    can_distinguish,
    find_explanations,
)
from provisioner.planning.fault_location.isolation_trials import CountedTrials, Trial, Trials
from provisioner.planning.fault_location.isolation_words import PATHS, Blame, Cell, Culprit, Part
from provisioner.planning.fault_location.rate_fit import RATES

EVIDENCE_MAX = 32  # names of tests and partners in one blame
HELD_MIN = 3  # so many parts may be condemned in any fabric, however small
_SINGLE = frozenset({Culprit.NODE, Culprit.LINK})


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
        return abs(_find_chance(self.rates, way) - _find_chance(self.others, way))


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
    held: str = ""

    @cached_property
    def in_doubt(self) -> frozenset[Cell]:
        """Return the cells whose tests decide between two explanations."""
        return frozenset().union(*(doubt.cells for doubt in self.doubts if doubt.has_rivals))


def judge_trials(trials: CountedTrials) -> Judgement:
    """Return all blame that the trials prove."""
    blames: list[Blame] = []
    doubtful: list[Blame] = []
    doubts: list[Doubt] = []
    explained: set[Cell] = set()
    suspicious: set[Cell] = set()
    shut: list[Blame] = []  # blame of paths, proved or never to be decided
    margin_min = log(1 / trials.policy.innocent_risk)
    explanations, fit = find_explanations(trials, trials.suspect_at, margin_min)
    find_cells = trials.fabric.find_cells
    for explanation in explanations:
        part = explanation.part
        proved = _is_proved(trials, explanation)
        if proved and explanation.margin >= margin_min:
            blame = _blame(trials, explanation, part, sure=True)
            blames.append(blame)
            if part.kind in PATHS:
                shut.append(blame)
            else:
                explained.update(find_cells(part))
            continue
        named = (part, *(rival for rival, _ in explanation.rivals))
        if proved:
            either = [_blame(trials, explanation, p, sure=False) for p in named]
            doubtful += either
            decidable = all(can_distinguish(trials.fabric, part, other) for other in named[1:])
            if part.kind in PATHS and not decidable:
                shut += either
                continue
        else:
            named = named[:1]
        cells = frozenset().union(*(find_cells(p) for p in named))
        suspicious.update(cells)
        rates = dict(fit.taken)
        others = {p: r for p, r in rates.items() if p != part} | dict(explanation.rivals)
        doubts.append(Doubt(part, rates, others, cells))
    cut = {b.leaf for b in shut if b.culprit is Culprit.UPLINK} | {
        leaf
        for (_, rail), leaf in trials.fabric.leaf_of.items()
        if f"rail {rail}" in {b.group for b in shut if b.culprit is Culprit.SPINE}
    }
    remaining = trials.leave_out(explained, cut)
    down = _fallen(remaining, explained)
    return Judgement(
        blames=tuple(blames),
        explained=frozenset(explained),
        remaining=remaining,
        clearance=Clearance(fit, remaining),
        doubtful=tuple(doubtful),
        doubts=tuple(doubts),
        suspicious=frozenset(suspicious - explained),
        cut=frozenset(cut | {b.leaf for b in blames if b.culprit is Culprit.LEAF}),
        held=_held(trials, blames, down),
    )


def _is_proved(trials: Trials, explanation: Explanation) -> bool:
    """Return whether noise is excluded as the cause, and enough nodes were part of the failures."""
    part = explanation.part
    failures = explanation.failures
    enough = trials.policy.partners_min
    ends = {c for t in failures for c in (t.one, t.other)}
    partners = {c[0] for c in ends} - {part.name}
    if part.kind in (Culprit.CARD, Culprit.LEAF, Culprit.UPLINK):
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
    """Return the symptom by which a kind of part is known."""
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
    for count, whole, kind in (
        (rails, len({rail for _, rail in trials.fabric.leaf_of}), "rails"),
        (nodes, len(trials.fabric.nodes), "nodes"),
        (leaves, len(trials.fabric.cells_of_leaf), "leaves"),
    ):
        if count > max(HELD_MIN, trials.policy.held_share * whole):
            return f"{count} of {whole} {kind} at once: look for a common cause first"
    return ""
