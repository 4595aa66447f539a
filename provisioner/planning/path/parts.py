"""Parts of a node that share nothing but resets: a hub of tracks and the leaves that depend on it.

While the hub's versions are fixed, no leaf depends on another one: ten cards whose firmware needs
one driver are ten leaves of that driver. A frontier of a part is therefore a set of hub states,
each with one frontier of each leaf, instead of every combination of all cards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation
from provisioner.planning.path.clusters import (
    Cluster,
    Effort,
    Frontier,
    Outside,
    PushCost,
    Trail,
    Way,
    is_better,
    spread_pushes,
)
from provisioner.planning.path.distances import RemainingCost, join_bounds, least_of
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.tracks import Running, State, initial_state, is_goal, waits_exactly

HUB = -1  # the cluster number of the hub in a list of pushes


class Letter(NamedTuple):
    """One reset of the plan. With `exactly`, this part has a version that waits for this one."""

    reset: Activation
    exactly: bool = False


class Spot(NamedTuple):
    """A state of the hub with the number of one frontier of each leaf."""

    hub: State
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _HubPush:
    index: int
    hop: Hop
    before: Running
    after: Running


@dataclass(frozen=True, slots=True)
class _HubReset:
    letter: Letter
    before: Running
    after: Running
    exact_leaf: int | None  # the leaf that has the version that waits for exactly this reset


Spots = dict[Spot, Way]


class Part:
    """A hub, its leaves, and the reactions of their joint frontiers."""

    def __init__(self, hub: Cluster, leaves: tuple[Cluster, ...]) -> None:
        self.hub = hub
        self.leaves = leaves
        self._frontiers: list[Spots] = []
        self._numbers: dict[frozenset[tuple[Spot, PushCost]], int] = {}
        self._reactions: dict[tuple[int, Letter], int | None] = {}
        self._goals: dict[int, PushCost | None] = {}
        self._bounds: dict[int, RemainingCost] = {}
        self._waits: dict[int, frozenset[Activation]] = {}
        self._outside: dict[tuple[int, Running], Outside] = {}
        self._start: int | None = None

    @property
    def heavy(self) -> bool:
        """Return whether a hop of it waits for an AC cycle."""
        return self.hub.distances.heavy or any(leaf.distances.heavy for leaf in self.leaves)

    def number_start(self, effort: Effort) -> int:
        """Return the number of the frontier before the first reset."""
        if self._start is None:
            number = self._number(self._close(self._list_first(effort), 0, effort))
            assert number is not None
            self._start = number
        return self._start

    def advance(self, number: int, letter: Letter, effort: Effort) -> int | None:
        """Return the frontier after a reset and all pushes that it makes possible, or None."""
        key = (number, letter)
        if not any(activation.covers_activation(letter.reset, w) for w in self.list_waits(number)):
            return None if letter.exactly else number
        if key not in self._reactions:
            spots = self._take_reset(self._frontiers[number], letter, effort)
            self._reactions[key] = self._number(self._close(spots, 0, effort))
        return self._reactions[key]

    def cost_at_goal(self, number: int) -> PushCost | None:
        """Return the least cost of the pushes if nothing remains to be done, else None."""
        if number not in self._goals:
            spots = self._frontiers[number]
            costs = [c for s, w in spots.items() if (c := self._cost_of_spot(s, w)) is not None]
            self._goals[number] = min(costs, default=None)
        return self._goals[number]

    def bound(self, number: int) -> RemainingCost:
        if number not in self._bounds:
            bounds = []
            for spot, way in self._frontiers[number].items():
                bound = self.hub.bound_state(spot.hub, way[:2])
                for leaf, frontier in zip(self.leaves, spot.leaves, strict=True):
                    bound = join_bounds(bound, leaf.bound(frontier))
                bounds.append(bound)
            self._bounds[number] = least_of(bounds)
        return self._bounds[number]

    def list_waits(self, number: int) -> frozenset[Activation]:
        """Return the resets that a staged version of any state waits for."""
        if number not in self._waits:
            waits: set[Activation] = set()
            for spot in self._frontiers[number]:
                waits.update(w.activation for w in spot.hub.waiting if w is not None)
                for leaf, frontier in zip(self.leaves, spot.leaves, strict=True):
                    waits |= leaf.list_waits(frontier)
            self._waits[number] = frozenset(waits)
        return self._waits[number]

    def trace(
        self, letters: tuple[Letter, ...], effort: Effort
    ) -> list[list[tuple[int, int, Hop]]]:
        """Return the pushes before each reset and after the last: (cluster, track in it, hop)."""
        spots = self._close(self._list_first(effort), 0, effort)
        for late, letter in enumerate(letters, 1):
            spots = self._close(self._take_reset(spots, letter, effort), late, effort)
        best: tuple[tuple[int, ...], Way] | None = None
        for spot, way in spots.items():
            cost = self._cost_of_spot(spot, way)
            if cost is not None and (best is None or (*cost, way[2]) < best[0]):
                best = ((*cost, way[2]), way)
        assert best is not None
        events = Trail.list_events(best[1][3])
        of_leaves = [self._trace_leaf(n, events, effort) for n in range(len(self.leaves))]
        return _interleave(events, of_leaves)

    def _list_first(self, effort: Effort) -> Spots:
        state = initial_state(self.hub.problem)
        leaves = tuple(
            leaf.close(leaf.number_start(), self._get_outside(n, state.running), effort)
            for n, leaf in enumerate(self.leaves)
        )
        return {Spot(state, leaves): (0, 0, 0, None)}

    def _number(self, spots: Spots) -> int | None:
        if not spots:
            return None
        spots = self._drop_dominated(spots)
        key = frozenset((spot, way[:2]) for spot, way in spots.items())
        if key not in self._numbers:
            self._numbers[key] = len(self._frontiers)
            self._frontiers.append({s: (w[0], w[1], 0, None) for s, w in spots.items()})
        return self._numbers[key]

    def _drop_dominated(self, spots: Spots) -> Spots:
        """Leave out each spot from which another one of the same hub state can do all it can."""
        if not self.leaves:
            return spots
        by_hub: dict[State, list[tuple[Spot, Way]]] = {}
        for spot, way in sorted(spots.items(), key=lambda entry: entry[1][:2]):
            rivals = by_hub.setdefault(spot.hub, [])
            if not any(self._dominates(rival, spot) for rival, _ in rivals):
                rivals.append((spot, way))
        return {spot: way for rivals in by_hub.values() for spot, way in rivals}

    def _dominates(self, rival: Spot, spot: Spot) -> bool:
        return all(
            leaf.dominates(a, b)
            for leaf, a, b in zip(self.leaves, rival.leaves, spot.leaves, strict=True)
        )

    def _get_outside(self, leaf: int, running: Running) -> Outside:
        if not self.leaves[leaf].reads:
            return ()
        key = (leaf, running)
        if key not in self._outside:
            hub = self.hub.problem
            self._outside[key] = tuple(
                (kind, tuple(sorted({running[i] for i in hub.by_kind[kind]})))
                for kind in sorted(self.leaves[leaf].reads & hub.by_kind.keys())
            )
        return self._outside[key]

    def _close(self, spots: Spots, late: int, effort: Effort) -> Spots:
        """Add every spot that pushes of the hub lead to; leaves close whenever the hub changes."""

        def list_next(spot: Spot) -> Iterator[tuple[object, Hop, Spot]]:
            for index, hop, after in self.hub.list_pushes((), spot.hub):
                leaves = self._follow(spot, after.running, effort)
                if leaves is not None:
                    event = _HubPush(index, hop, spot.hub.running, after.running)
                    yield event, hop, Spot(after, leaves)

        return spread_pushes(spots, list_next, late, effort)

    def _follow(self, spot: Spot, running: Running, effort: Effort) -> tuple[int, ...] | None:
        """Return the leaves' frontiers after a push of the hub, or None if one is left empty."""
        if running == spot.hub.running:
            return spot.leaves
        out = []
        for n, number in enumerate(spot.leaves):
            before = self._get_outside(n, spot.hub.running)
            after = self._get_outside(n, running)
            if before == after:
                out.append(number)
                continue
            left = self.leaves[n].limit(number, before, after, effort)
            if left is None:
                return None
            out.append(self.leaves[n].close(left, after, effort))
        return tuple(out)

    def _take_reset(self, spots: Spots, letter: Letter, effort: Effort) -> Spots:
        best: Spots = {}
        for spot, way in spots.items():
            hub = self.hub.activate(spot.hub, letter.reset, (), ())
            if hub is None:
                continue
            for exact_leaf in self._list_exact(spot, letter):
                leaves = self._reset_leaves(spot, hub.running, letter, exact_leaf, effort)
                if leaves is None:
                    continue
                event = _HubReset(letter, spot.hub.running, hub.running, exact_leaf)
                new = (way[0], way[1], way[2], Trail(way[3], event))
                if is_better(new, best.get(Spot(hub, leaves))):
                    best[Spot(hub, leaves)] = new
        return best

    def _list_exact(self, spot: Spot, letter: Letter) -> list[int | None]:
        """Return the leaves of which one must wait for exactly this reset; [None] if none must."""
        if not letter.exactly or waits_exactly(spot.hub, letter.reset):
            return [None]
        return [
            n
            for n, number in enumerate(spot.leaves)
            if letter.reset in self.leaves[n].list_waits(number)
        ]

    def _reset_leaves(
        self, spot: Spot, running: Running, letter: Letter, exact_leaf: int | None, effort: Effort
    ) -> tuple[int, ...] | None:
        out = []
        for n, number in enumerate(spot.leaves):
            before = self._get_outside(n, spot.hub.running)
            after = self._get_outside(n, running)
            leaf = self.leaves[n]
            left = leaf.reset(number, letter.reset, before, after, effort, exactly=n == exact_leaf)
            if left is None:
                return None
            out.append(leaf.close(left, after, effort))
        return tuple(out)

    def _cost_of_spot(self, spot: Spot, way: Way) -> PushCost | None:
        if not is_goal(self.hub.problem, spot.hub):
            return None
        outages, seconds = way[:2]
        for n, number in enumerate(spot.leaves):
            outside = self._get_outside(n, spot.hub.running)
            cost = self.leaves[n].cost_at_goal(number, outside)
            if cost is None:
                return None
            outages = outages + cost[0]
            seconds = seconds + cost[1]
        return outages, seconds

    def _trace_leaf(
        self, n: int, events: list[object], effort: Effort
    ) -> list[tuple[int, int, Hop]]:
        """Return the pushes of one leaf: (number of the hub's next event, track, hop)."""
        leaf = self.leaves[n]
        first = initial_state(self.hub.problem)
        outside = self._get_outside(n, first.running)
        frontier: Frontier = {initial_state(leaf.problem): (0, 0, 0, None)}
        frontier = leaf.close_states(frontier, outside, 0, effort)
        late = 0
        for event in events:
            assert isinstance(event, _HubPush | _HubReset)
            after = self._get_outside(n, event.after)
            if isinstance(event, _HubReset):
                late += 1
                frontier = leaf.reset_states(
                    frontier, event.letter.reset, outside, after, exactly=event.exact_leaf == n
                )
            elif after != outside:
                frontier = leaf.limit_states(frontier, outside, after)
            frontier = {s: _mark(way) for s, way in frontier.items()}
            if isinstance(event, _HubReset) or after != outside:
                frontier = leaf.close_states(frontier, after, late, effort)
            outside = after
        here = leaf.problem_in(outside)
        way = min((w for s, w in frontier.items() if is_goal(here, s)), key=lambda w: w[:3])
        out = []
        position = 0
        for step in Trail.list_events(way[3]):
            if step is None:
                position += 1
            else:
                assert isinstance(step, tuple)
                out.append((position, *step))
        return out


def _mark(way: Way) -> Way:
    """Return the way with a mark that one event of the hub took place."""
    return (way[0], way[1], way[2], Trail(way[3], None))


def _interleave(
    events: list[object], of_leaves: list[list[tuple[int, int, Hop]]]
) -> list[list[tuple[int, int, Hop]]]:
    """Return all pushes by phase; those of leaves come before the hub's event of their number."""
    at: dict[int, list[tuple[int, int, Hop]]] = {}
    for n, pushes in enumerate(of_leaves):
        for position, index, hop in pushes:
            at.setdefault(position, []).append((n, index, hop))
    phases: list[list[tuple[int, int, Hop]]] = [[]]
    for position, event in enumerate(events):
        phases[-1] += at.get(position, [])
        if isinstance(event, _HubPush):
            phases[-1].append((HUB, event.index, event.hop))
        else:
            phases.append([])
    phases[-1] += at.get(len(events), [])
    return phases
