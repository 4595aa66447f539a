"""Clusters: tracks whose moves depend on each other, with every state that they can be in.

A frontier is a set of states with the least cost of the pushes that lead to each. It grows by
pushes between two resets, and all its states take the same reset together. Frontiers are numbered,
so that a cluster computes each of its reactions once, however many cards and nodes are like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from provisioner.model.inventory import Activation
from provisioner.planning.path import conditions
from provisioner.planning.path.distances import Distances, RemainingCost, least_of
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.tracks import (
    Hindrances,
    Problem,
    State,
    activate_staged,
    cost_of_push,
    initial_state,
    is_goal,
    push_hop,
    waits_exactly,
)

Outside = tuple[tuple[str, tuple[str, ...]], ...]  # versions of the kinds that a cluster only reads
PushCost = tuple[int, int]  # outages, seconds


class Trail:
    """The pushes and resets that led to a state, newest last."""

    __slots__ = ("before", "event")

    def __init__(self, before: Trail | None, event: object) -> None:
        self.before = before
        self.event = event

    @staticmethod
    def list_events(trail: Trail | None) -> list[object]:
        """Return the events of a trail in their order."""
        events: list[object] = []
        while trail is not None:
            events.append(trail.event)
            trail = trail.before
        return events[::-1]


# outages, seconds, lateness, trail: of two ways of equal cost, the one that pushes earlier is taken
Way = tuple[int, int, int, Trail | None]
Frontier = dict[State, Way]
Place = TypeVar("Place")  # a state of a cluster, or a spot of a part
# the pushes from a place: the event of the trail, the hop, and the place that it leads to
ListPushes = Callable[[Place], Iterator[tuple[object, Hop, Place]]]


class OutOfEffortError(Exception):
    """More states were looked at than the search may look at."""


class Effort:
    """A bound on the states of one search, so that no matrix can hold up the daemon."""

    def __init__(self, states_max: int) -> None:
        self.left = states_max

    def spend(self) -> None:
        """Count one state. Raises OutOfEffortError when none is left."""
        self.left -= 1
        if self.left < 0:
            raise OutOfEffortError


def is_better(new: Way, old: Way | None) -> bool:
    """Return whether a way is to be preferred to another one into the same state."""
    return old is None or new[:3] < old[:3]


def spread_pushes(
    first: Mapping[Place, Way], list_next: ListPushes[Place], late: int, effort: Effort
) -> dict[Place, Way]:
    best = dict(first)
    todo = list(first)
    position = 0
    while position < len(todo):
        place = todo[position]
        position += 1
        effort.spend()
        way = best[place]
        for event, hop, after in list_next(place):
            outages, seconds = cost_of_push(hop)
            cost = (way[0] + outages, way[1] + seconds, way[2] + late)
            if after not in best or cost < best[after][:3]:
                best[after] = (*cost, Trail(way[3], event))
                todo.append(after)
    return best


class Cluster:
    """Some tracks, the rules among them, and the reactions of their frontiers."""

    def __init__(self, problem: Problem, hindrances: Hindrances | None = None) -> None:
        self.problem = problem
        self.distances = Distances(problem)
        self.reads = self._list_kinds_read()
        self._hindrances = hindrances
        self._in: dict[Outside, Problem] = {(): problem}
        self._ahead: dict[State, RemainingCost | None] = {}
        self._pushes: dict[tuple[Outside, State], list[tuple[int, Hop, State]]] = {}
        self._resets: dict[tuple[Activation, State, Outside, Outside], State | None] = {}
        self._frontiers: list[Frontier] = []
        self._numbers: dict[frozenset[tuple[State, PushCost]], int] = {}
        self._reactions: dict[tuple[object, ...], int | None] = {}
        self._goals: dict[tuple[int, Outside], PushCost | None] = {}
        self._bounds: dict[int, RemainingCost] = {}
        self._waits: dict[int, frozenset[Activation]] = {}

    def problem_in(self, outside: Outside) -> Problem:
        """Return the problem while these versions run outside of the cluster."""
        if outside not in self._in:
            here = self.problem
            indexes = range(len(here.tracks))
            rules = range(len(here.rules))
            part = here.take_part(indexes, rules, dict(outside), here.at_end_only)
            self._in[outside] = part
        return self._in[outside]

    def number(self, frontier: Mapping[State, Way]) -> int | None:
        """Return the number of a frontier, None if it is empty."""
        if not frontier:
            return None
        key = frozenset((state, way[:2]) for state, way in frontier.items())
        if key not in self._numbers:
            self._numbers[key] = len(self._frontiers)
            self._frontiers.append({s: (w[0], w[1], 0, None) for s, w in frontier.items()})
        return self._numbers[key]

    def dominates(self, number: int, other: int) -> bool:
        """Return whether a frontier has every state of another one, at no higher cost."""
        if number == other:
            return True
        key = ("dominates", number, other)
        if key not in self._reactions:
            ours = self._frontiers[number]
            theirs = self._frontiers[other]
            dominates = all(s in ours and ours[s][:2] <= way[:2] for s, way in theirs.items())
            self._reactions[key] = number if dominates else None
        return self._reactions[key] is not None

    def number_start(self) -> int:
        """Return the number of the frontier with the node's present state alone."""
        first = self.number({initial_state(self.problem): (0, 0, 0, None)})
        assert first is not None
        return first

    def close(self, number: int, outside: Outside, effort: Effort) -> int:
        """Return the frontier after any pushes that are possible without a reset."""
        key = ("close", number, outside)
        if key not in self._reactions:
            closed = self.close_states(self._frontiers[number], outside, 0, effort)
            self._reactions[key] = self.number(closed)
        closed_number = self._reactions[key]
        assert closed_number is not None
        return closed_number

    def close_states(
        self, frontier: Frontier, outside: Outside, late: int, effort: Effort
    ) -> Frontier:
        """Return the states of `close` with their trails."""

        def list_next(state: State) -> Iterator[tuple[object, Hop, State]]:
            for index, hop, after in self.list_pushes(outside, state):
                yield (index, hop), hop, after

        return spread_pushes(frontier, list_next, late, effort)

    def list_pushes(self, outside: Outside, state: State) -> list[tuple[int, Hop, State]]:
        """Return every push that is possible now and does not lead away from the pins for good."""
        key = (outside, state)
        if key not in self._pushes:
            here = self.problem_in(outside)
            self._pushes[key] = [
                (index, hop, after)
                for index, version in enumerate(state.running)
                for hop in here.find_hops(index, version)
                for after in [push_hop(here, state, index, hop, self._hindrances)]
                if after is not None and self.bound_ahead(after) is not None
            ]
        return self._pushes[key]

    def bound_ahead(self, state: State) -> RemainingCost | None:
        """Return the least that remains from a state, None if rules aside no pin is in reach."""
        if state not in self._ahead:
            self._ahead[state] = self.distances.bound_remaining(*state)
        return self._ahead[state]

    def activate(
        self, state: State, reset: Activation, before: Outside, after: Outside
    ) -> State | None:
        """Return the state after a reset, None if a rule or the pins forbid it."""
        key = (reset, state, before, after)
        if key not in self._resets:
            new, _ = activate_staged(self.problem, state, reset)
            allowed = self.is_allowed(before, state, after, new)
            in_reach = allowed and self.bound_ahead(new) is not None
            self._resets[key] = new if in_reach else None
        return self._resets[key]

    def limit(self, number: int, before: Outside, after: Outside, effort: Effort) -> int | None:
        """Return the frontier without the states that a change outside of it makes illegal."""
        key = ("limit", number, before, after)
        if key not in self._reactions:
            left = self.limit_states(self._frontiers[number], before, after)
            self._reactions[key] = self.number(left)
            effort.spend()
        return self._reactions[key]

    def limit_states(self, frontier: Frontier, before: Outside, after: Outside) -> Frontier:
        """Return the states of `limit` with their trails."""
        return {
            state: way
            for state, way in frontier.items()
            if self.is_allowed(before, state, after, state)
        }

    def reset(
        self,
        number: int,
        reset: Activation,
        before: Outside,
        after: Outside,
        effort: Effort,
        *,
        exactly: bool,
    ) -> int | None:
        """Return the frontier after a reset, None if no state allows it.

        With `exactly`, only states in which a version waits for this very reset take part.
        """
        key = ("reset", number, reset, before, after, exactly)
        if key not in self._reactions:
            frontier = self._frontiers[number]
            left = self.reset_states(frontier, reset, before, after, exactly=exactly)
            self._reactions[key] = self.number(left)
            effort.spend()
        return self._reactions[key]

    def reset_states(
        self,
        frontier: Frontier,
        reset: Activation,
        before: Outside,
        after: Outside,
        *,
        exactly: bool,
    ) -> Frontier:
        """Return the states of `reset` with their trails."""
        best: Frontier = {}
        for state, way in frontier.items():
            if exactly and not waits_exactly(state, reset):
                continue
            new = self.activate(state, reset, before, after)
            if new is not None and is_better(way, best.get(new)):
                best[new] = way
        return best

    def is_allowed(self, before: Outside, old: State, after: Outside, new: State) -> bool:
        """Return whether a change breaks no rule that held before it."""
        broken = self.problem_in(after).find_broken_rules(new.running) - self.problem.at_end_only
        if not broken:
            return True
        newly = broken - self.problem_in(before).find_broken_rules(old.running)
        if newly and self._hindrances is not None:
            self._hindrances.rules |= newly
        return not newly

    def cost_at_goal(self, number: int, outside: Outside) -> PushCost | None:
        """Return the least cost of a state in which all is done, None if there is no such state."""
        key = (number, outside)
        if key not in self._goals:
            here = self.problem_in(outside)
            costs = [w[:2] for s, w in self._frontiers[number].items() if is_goal(here, s)]
            self._goals[key] = min(costs, default=None)
        return self._goals[key]

    def bound(self, number: int) -> RemainingCost:
        """Return a lower bound of all pushes of a frontier and of the resets that remain."""
        if number not in self._bounds:
            self._bounds[number] = least_of(
                self.bound_state(state, way[:2]) for state, way in self._frontiers[number].items()
            )
        return self._bounds[number]

    def bound_state(self, state: State, cost: PushCost) -> RemainingCost:
        ahead = self.bound_ahead(state)
        assert ahead is not None
        return ahead._replace(push_outages=ahead[0] + cost[0], push_s=ahead[1] + cost[1])

    def list_waits(self, number: int) -> frozenset[Activation]:
        """Return the resets that a staged version of any state waits for."""
        if number not in self._waits:
            self._waits[number] = frozenset(
                w.activation for s in self._frontiers[number] for w in s.waiting if w is not None
            )
        return self._waits[number]

    def list_reached(self) -> set[int]:
        """Return the tracks that are at their goal in some state that was looked at."""
        return {
            index
            for frontier in self._frontiers
            for state in frontier
            for index, version in enumerate(state.running)
            if self.problem.is_at_goal(index, version)
        }

    def _list_kinds_read(self) -> frozenset[str]:
        kinds: set[str] = set()
        for rule in self.problem.rules:
            kinds |= conditions.list_kinds(rule.when) | conditions.list_kinds(rule.needs)
        for index, versions in enumerate(self.distances.reachable):
            for version in versions:
                for hop in self.problem.find_hops(index, version):
                    kinds |= conditions.list_kinds(dict(hop.requires))
        return frozenset(kinds - self.problem.by_kind.keys())
