"""Take a node apart: tracks that share no rule, edge or carry are planned apart.

A rule or condition couples tracks only if it can be broken by versions that they can reach. What
carries and what is carried always stay together. Where a part is large, some of its kinds become
its hub, so that the tracks that depend on nothing but the hub are leaves of it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from math import prod

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation, conditions
from provisioner.planning.path.clusters import Effort
from provisioner.planning.path.distances import (
    NOTHING,
    Distances,
    RemainingCost,
    join_bounds,
    total_of,
)
from provisioner.planning.path.parts import Letter, Part
from provisioner.planning.path.tracks import Cost, Problem, cost_of_reset

# ------------------------------------------------------------------------------
# Find the cheapest plan of a whole node: the parts are planned apart, and resets are shared.
#
# Cost is (outages, resets, seconds), compared in this order. A plan is a sequence of resets;
# between two of them each part stages whatever serves it best, whatever the others do. So the
# search is one over sequences of resets, and each part answers only with its frontier after them.
# Two sequences that leave all parts in the same frontiers are one state.
#
# A reset is used only if a version waits for exactly that reset; it then activates every version
# that it covers. If no plan exists under this condition, a reset that covers a waiting version is
# enough: only an AC cycle activates a BMC's and a host's versions at the same moment.


# (number of the part's shape, number of its frontier) -> how many parts are in this situation
Fronts = tuple[tuple[tuple[int, int], int], ...]


@dataclass(frozen=True, slots=True)
class JointReset:
    """One reset, and the situation of a part that has a version that waits for exactly it."""

    reset: Activation
    witness: tuple[int, int] | None = None


Answer = tuple[tuple[JointReset, ...], Cost]  # the resets and the cost of the whole plan


class OutOfPatienceError(Exception):
    """More resets were tried than a node needs as a rule."""


class Joining:
    """The search over sequences of resets for some parts; equal parts are looked at once."""

    def __init__(
        self,
        parts: list[Part],
        effort: Effort,
        *,
        covering: bool = False,
        witnessed: Set[Activation] = frozenset(),
    ) -> None:
        shapes = {id(part): part for part in parts}
        self._numbers = {identity: n for n, identity in enumerate(shapes)}
        self._shapes = list(shapes.values())
        self.parts = parts
        self._effort = effort
        self.covering = covering  # a reset that covers a waiting version is enough
        self._witnessed = witnessed  # resets of which each names a part that waits for exactly it
        self._apart = not covering and not any(part.heavy for part in parts)

    def find_resets(self, resets_max: int | None = None) -> Answer | None:
        """Return the cheapest sequence of resets and the whole cost, or None if there is none.

        Raises OutOfPatienceError after trying `resets_max` resets.
        """
        tried = 0
        first = _pack(
            Counter((self._numbers[id(p)], p.number_start(self._effort)) for p in self.parts)
        )
        best: dict[Fronts, Cost] = {first: (0, 0, 0)}
        before: dict[Fronts, tuple[Fronts, JointReset]] = {}
        ticket = count()
        bound = self._bound(first)
        queue = [(bound, 1, bound, next(ticket), first, (0, 0, 0), self._list_resets(first))]
        while queue:
            total, more, _, _, fronts, so_far, resets = heapq.heappop(queue)
            if not more:
                return _list_resets(before, fronts), total
            if so_far != best[fronts]:
                continue  # a cheaper sequence into the same situation was taken up before
            at_goal = self._cost_at_goal(fronts)
            if at_goal is not None:
                whole = (so_far[0] + at_goal[0], so_far[1], so_far[2] + at_goal[1])
                heapq.heappush(queue, (whole, 0, whole, next(ticket), fronts, so_far, iter(())))
            for reset in resets:
                self._effort.spend()
                tried += 1
                if tried == resets_max:
                    raise OutOfPatienceError
                after = self._advance(fronts, reset)
                cost = _add(so_far, cost_of_reset(reset.reset))
                if after is None or (after in best and best[after] <= cost):
                    continue
                best[after] = cost
                before[after] = (fronts, reset)
                bound = self._bound(after)  # of equal totals, the one with the least ahead
                entry = (_add(cost, bound), 1, bound, next(ticket), after, cost)
                heapq.heappush(queue, (*entry, self._list_resets(after)))
                if entry[0] <= total:  # nothing is lost on this way; the other resets come later
                    here = self._bound(fronts)
                    heapq.heappush(queue, (total, 1, here, next(ticket), fronts, so_far, resets))
                    break
        return None

    def list_letters(self, resets: tuple[JointReset, ...]) -> Iterator[tuple[Letter, ...]]:
        situations = [
            (self._numbers[id(part)], part.number_start(self._effort)) for part in self.parts
        ]
        letters: list[list[Letter]] = [[] for _ in self.parts]
        for reset in resets:
            witness = None if reset.witness is None else situations.index(reset.witness)
            for n, (shape, number) in enumerate(situations):
                letter = Letter(reset.reset, exactly=n == witness)
                after = self._shapes[shape].advance(number, letter, self._effort)
                assert after is not None
                situations[n] = (shape, after)
                letters[n].append(letter)
        return (tuple(taken) for taken in letters)

    def _list_resets(self, fronts: Fronts) -> Iterator[JointReset]:
        for reset in activation.RESETS:
            waiting = [
                (situation, waits)
                for situation, _ in fronts
                for waits in [self._shapes[situation[0]].list_waits(situation[1])]
            ]
            if self.covering:
                if any(
                    activation.covers_activation(reset, w) for _, waits in waiting for w in waits
                ):
                    yield JointReset(reset)
            elif reset in self._witnessed:
                yield from (JointReset(reset, s) for s, waits in waiting if reset in waits)
            elif any(reset in waits for _, waits in waiting):
                yield JointReset(reset)

    def _advance(self, fronts: Fronts, reset: JointReset) -> Fronts | None:
        after: Counter[tuple[int, int]] = Counter()
        for (shape, number), times in fronts:
            plain = times - ((shape, number) == reset.witness)
            for exactly, repeats in ((False, plain), (True, times - plain)):
                if repeats:
                    letter = Letter(reset.reset, exactly)
                    moved = self._shapes[shape].advance(number, letter, self._effort)
                    if moved is None:
                        return None
                    after[shape, moved] += repeats
        return _pack(after)

    def _bound(self, fronts: Fronts) -> Cost:
        whole = NOTHING
        for (shape, number), times in fronts:
            bound = self._shapes[shape].bound(number)
            pushes = (bound.push_outages * times, bound.push_s * times)
            whole = join_bounds(whole, RemainingCost(*pushes, *bound[2:]))
        return total_of(whole, apart=self._apart)

    def _cost_at_goal(self, fronts: Fronts) -> tuple[int, int] | None:
        outages = seconds = 0
        for (shape, number), times in fronts:
            cost = self._shapes[shape].cost_at_goal(number)
            if cost is None:
                return None
            outages = outages + cost[0] * times
            seconds = seconds + cost[1] * times
        return outages, seconds


def _pack(counts: Counter[tuple[int, int]]) -> Fronts:
    return tuple(sorted(counts.items()))


def _list_resets(
    before: dict[Fronts, tuple[Fronts, JointReset]], fronts: Fronts
) -> tuple[JointReset, ...]:
    out: list[JointReset] = []
    while fronts in before:
        fronts, reset = before[fronts]
        out.append(reset)
    return tuple(reversed(out))


def _add(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


Indexes = tuple[int, ...]

# states of a part that are looked at one by one; a larger part is given a hub. A pair of tracks of
# three hops each has 49, three of them have 343.
STATES_MAX = 400


@dataclass(frozen=True, slots=True)
class Group:
    """Some tracks of the node and the rules that they must keep, as positions.

    `reads` are versions outside of it that its conditions read and that meet them for good.
    """

    tracks: Indexes
    rules: Indexes
    reads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    at_end_only: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Layout:
    """One part of the node. A part without leaves is its hub alone."""

    hub: Group
    leaves: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class _Need:
    """A push of a track that is allowed only at some versions of other kinds."""

    track: int
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class _LiveRule:
    """A rule that can be broken. `apart` are kinds of which each track may be judged by itself."""

    number: int
    kinds: frozenset[str]
    apart: frozenset[str]
    broken: bool  # at the start


class Care(StrEnum):
    """The treatment of a rule that is broken at the start, when its tracks are planned apart.

    Such a rule may stay broken until it holds once, and which track breaks it next depends on the
    one that does now.
    """

    AT_END = "at_end"  # it need not hold on the way: the plan must be looked through afterwards
    TOGETHER = "together"  # its tracks are planned together, which may be too much
    STRICT = "strict"  # no track may break it anew by itself, which may be dearer than needed


class Partition:
    """The parts of one problem, and the rules that no track of it can change."""

    def __init__(self, problem: Problem, distances: Distances, care: Care) -> None:
        self._care = care
        self._problem = problem
        self._distances = distances
        self._ways = [2 * len(versions) - 1 for versions in distances.reachable]
        self._reachable = {
            kind: frozenset(v for i in indexes for v in distances.reachable[i])
            for kind, indexes in problem.by_kind.items()
        }
        self.broken_for_good: list[int] = []
        self._rules = list(self._find_live_rules())
        self._bonds = list(self._find_bonds())
        self._met_for_good: dict[int, set[str]] = {}
        self._needs = list(dict.fromkeys(self._find_needs()))

    def list_layouts(self) -> tuple[Layout, ...]:
        every = range(len(self._problem.tracks))
        return tuple(self._lay_out(tracks) for tracks in self._unite(every, frozenset()))

    def _find_live_rules(self) -> Iterator[_LiveRule]:
        problem = self._problem
        grammars = problem.moves.grammars
        broken = problem.find_broken_rules(tuple(t.running for t in problem.tracks))
        for number, rule in enumerate(problem.rules):
            kinds = conditions.list_kinds(rule.when) | conditions.list_kinds(rule.needs)
            ours = frozenset(kinds & problem.by_kind.keys())
            if not ours:
                if number in broken:
                    self.broken_for_good.append(number)
                continue
            if any(
                not _names_kind(text)
                and conditions.any_version_satisfies(text, kind, grammars, self._view_of) is False
                for kind, text in rule.when.items()
            ) or all(
                conditions.all_versions_satisfy(text, kind, grammars, self._view_of) is True
                for kind, text in rule.needs.items()
            ):
                continue
            operands = conditions.list_kinds(rule.when) - rule.when.keys()
            both = conditions.list_kinds(rule.when) & conditions.list_kinds(rule.needs)
            apart = ours - operands - both
            if number in broken and self._care is Care.TOGETHER:
                apart = frozenset()
            yield _LiveRule(number, ours, apart, number in broken)

    def _view_of(self, kind: str) -> frozenset[str] | tuple[str, ...] | None:
        own = self._reachable.get(kind)
        return own if own is not None else self._problem.neighbours.get(kind)

    def _find_bonds(self) -> Iterator[tuple[int, int]]:
        """Return the pairs of tracks that change together: by carrying, or as parts of a bundle."""
        problem = self._problem
        for index, track in enumerate(problem.tracks):
            carries = set(track.staged.carries) if track.staged else set()
            for version in self._distances.reachable[index]:
                for hop in problem.find_hops(index, version):
                    carries.update(hop.carries)
            for kind in {kind for kind, _ in carries}:
                yield from ((index, target) for target in problem.find_targets(index, kind))
            if track.derived:
                for parts in problem.moves.matrix.bundles.get(track.kind, {}).values():
                    for kind in parts:
                        yield from ((index, i) for i in problem.by_kind.get(kind, ()))

    def _find_needs(self) -> Iterator[_Need]:
        problem = self._problem
        grammars = problem.moves.grammars
        for index, versions in enumerate(self._distances.reachable):
            for version in versions:
                for hop in problem.find_hops(index, version):
                    kinds: set[str] = set()
                    for kind, text in hop.requires:
                        view = self._view_of
                        ours = conditions.list_kinds({kind: text}) & problem.by_kind.keys()
                        if conditions.all_versions_satisfy(text, kind, grammars, view) is not True:
                            kinds |= ours
                        else:
                            self._met_for_good.setdefault(index, set()).update(ours)
                    if kinds:
                        yield _Need(index, frozenset(kinds))

    def _unite(self, tracks: Iterable[int], hub: frozenset[str]) -> list[Indexes]:
        """Return the groups of tracks that depend on each other while the hub's kinds are fixed."""
        free = [i for i in tracks if self._problem.tracks[i].kind not in hub]
        root = {i: i for i in free}

        def find(index: int) -> int:
            while root[index] != index:
                root[index] = root[root[index]]
                index = root[index]
            return index

        def unite(indexes: list[int]) -> None:
            for index in indexes[1:]:
                root[find(index)] = find(indexes[0])

        for pair in self._bonds:
            unite([i for i in pair if i in root])
        by_kind = self._problem.by_kind
        for rule in self._rules:
            rest = rule.kinds - hub
            if len(rest) > 1 or not rest <= rule.apart:
                unite([i for kind in rest for i in by_kind[kind] if i in root])
        for need in self._needs:
            if need.track in root:
                unite([need.track, *(i for k in need.kinds - hub for i in by_kind[k] if i in root)])
        groups: dict[int, list[int]] = {}
        for index in free:
            groups.setdefault(find(index), []).append(index)
        return [tuple(group) for group in groups.values()]

    def _lay_out(self, tracks: Indexes) -> Layout:
        hub: frozenset[str] = frozenset()
        leaves = [tracks]
        while (size := max(map(self._measure, leaves), default=0)) > STATES_MAX:
            options = [
                (max(self._measure(self._list_tracks(tracks, wider)), rest), sorted(wider), wider)
                for wider in self._list_wider_hubs(tracks, hub)
                for rest in [max(map(self._measure, self._unite(tracks, wider)), default=0)]
            ]
            if not options or min(options)[0] >= max(
                size, self._measure(self._list_tracks(tracks, hub))
            ):
                break
            hub = min(options)[2]
            leaves = self._unite(tracks, hub)
        if not hub:
            return Layout(self._group(tracks, frozenset()))
        return Layout(
            self._group(self._list_tracks(tracks, hub), frozenset()),
            tuple(self._group(leaf, hub) for leaf in leaves),
        )

    def _measure(self, tracks: Indexes) -> int:
        """Return about how many states these tracks have together."""
        return prod(self._ways[i] for i in tracks)

    def _list_tracks(self, tracks: Indexes, hub: frozenset[str]) -> Indexes:
        return tuple(i for i in tracks if self._problem.tracks[i].kind in hub)

    def _list_wider_hubs(self, tracks: Indexes, hub: frozenset[str]) -> Iterator[frozenset[str]]:
        kinds = {self._problem.tracks[i].kind for i in tracks} - hub
        for kind in sorted(kinds):
            yield self._complete_hub(hub | {kind})

    def _complete_hub(self, hub: frozenset[str]) -> frozenset[str]:
        """Add the kinds that the hub's own moves depend on, and those bound to it."""
        kind_of = [t.kind for t in self._problem.tracks]
        while True:
            wider = set(hub)
            for first, second in self._bonds:
                if kind_of[first] in wider or kind_of[second] in wider:
                    wider |= {kind_of[first], kind_of[second]}
            for need in self._needs:
                if kind_of[need.track] in wider:
                    wider |= need.kinds
            if wider == hub:
                return hub
            hub = frozenset(wider)

    def _group(self, tracks: Indexes, hub: frozenset[str]) -> Group:
        """Return a group with the rules that concern it beside the hub's kinds."""
        problem = self._problem
        kinds = {problem.tracks[i].kind for i in tracks}
        read = {kind for i in tracks for kind in self._met_for_good.get(i, ())} - kinds - hub
        rules = [r for r in self._rules if r.kinds & kinds and r.kinds <= kinds | hub]
        whole = set(tracks)
        return Group(
            tracks,
            tuple(r.number for r in rules),
            tuple(
                (kind, tuple(sorted({problem.tracks[i].running for i in problem.by_kind[kind]})))
                for kind in sorted(read)
            ),
            frozenset(
                r.number
                for r in rules
                if r.broken
                and self._care is Care.AT_END
                and not all(whole.issuperset(problem.by_kind[kind]) for kind in r.kinds)
            ),
        )


def _names_kind(text: str) -> bool:
    return any(operator == "=" for operator, _ in conditions.parse_terms(text))
