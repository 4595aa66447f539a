"""Take a node apart: tracks that share no rule, edge or carry are planned apart.

A rule or condition couples tracks only if it can be broken by versions that they can reach. What
carries and what is carried always stay together. Where a part is large, some of its kinds become
its hub, so that the tracks that depend on nothing but the hub are leaves of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from provisioner.planning.path import conditions
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.tracks import Problem

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
        """Return the parts, each with a hub where it is large."""
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
