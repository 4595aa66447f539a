"""Find the cheapest order of pushes and resets from the running to the pinned versions, by A*.

Cost is (outages, resets, seconds), compared in this order. Rules must hold in every state that the
plan creates. If a rule is broken at the start, the plan may pass through states that break no
further rule; at the end all rules hold. A reset is used only if a version waits for exactly that
reset; it then activates every version that it covers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation as act
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.tracks import Problem, Running, Staged, Waiting

# A real node has up to 15 pinned tracks and needs some hundred expansions; 20,000 take about three
# seconds. A matrix that needs more is refused with a reason, so that it cannot hold up the daemon.
EXPANSIONS_MAX = 20_000

Cost = tuple[int, int, int]  # outages, resets, seconds


@dataclass(frozen=True, slots=True)
class Push:
    """Write one hop to the slots of one track."""

    track: int
    hop: Hop


@dataclass(frozen=True, slots=True)
class Reset:
    """Carry out one reset, which activates the staged versions of `tracks`."""

    reset: Activation
    tracks: tuple[int, ...]


Move = Push | Reset


@dataclass(frozen=True, slots=True)
class State:
    """The running and the staged version of each track.

    `floor` is the lowest track that may stage next: pushes that only stage are independent of each
    other, so they are tried in track order alone.
    """

    running: Running
    waiting: Waiting
    floor: int = 0


@dataclass(slots=True)
class SearchResult:
    """The result of a search.

    `moves` is None if there is no plan; `limited` is True if the bound of expansions ended the
    search.
    """

    moves: tuple[tuple[Move, State], ...] | None = None  # each with the state before it
    cost: Cost = (0, 0, 0)
    limited: bool = False
    hindered: set[tuple[int, str, str, str]] = field(default_factory=set)  # track, to, kind, text
    broken: set[str] = field(default_factory=set)  # rules that forbade a move
    reached: set[int] = field(default_factory=set)  # tracks that were at their goal in some state


def initial_state(problem: Problem) -> State:
    """Return the state in which the node is now."""
    return State(tuple(t.running for t in problem.tracks), tuple(t.staged for t in problem.tracks))


def is_goal(problem: Problem, state: State) -> bool:
    """Return whether every pin runs, no pinned version is staged, and every rule holds."""
    return (
        all(problem.is_at_goal(i, v) for i, v in enumerate(state.running))
        and all(w is None or problem.tracks[i].goal is None for i, w in enumerate(state.waiting))
        and not problem.find_broken_rules(state.running)
    )


def search(problem: Problem, limit: int = EXPANSIONS_MAX) -> SearchResult:
    """Return the cheapest moves. Ties are resolved by the order of tracks and hops."""
    result = SearchResult()
    distances = Distances(problem)
    first = initial_state(problem)
    best: dict[State, Cost] = {first: (0, 0, 0)}
    predecessors: dict[State, tuple[State, Move]] = {}
    ticket = count()
    remaining = distances.estimate_remaining(first.running, first.waiting)
    queue = [] if remaining is None else [(remaining, remaining, next(ticket), first)]
    expanded: set[State] = set()
    while queue:
        _, _, _, state = heapq.heappop(queue)
        if state in expanded:
            continue
        expanded.add(state)
        result.reached.update(i for i, v in enumerate(state.running) if problem.is_at_goal(i, v))
        if is_goal(problem, state):
            result.moves, result.cost = _path(predecessors, state), best[state]
            return result
        if len(expanded) >= limit:
            result.limited = True
            return result
        for move, after, cost in _expand(problem, state, result):
            total = _add(best[state], cost)
            if after in best and best[after] <= total:
                continue
            remaining = distances.estimate_remaining(after.running, after.waiting)
            if remaining is None:
                continue
            best[after] = total
            predecessors[after] = (state, move)
            heapq.heappush(queue, (_add(total, remaining), remaining, next(ticket), after))
    return result


def _expand(problem: Problem, state: State, result: SearchResult) -> list[tuple[Move, State, Cost]]:
    out: list[tuple[Move, State, Cost]] = []
    for index in range(len(problem.tracks)):
        for hop in problem.find_hops(index, state.running[index]):
            option = _try_push(problem, state, index, hop, result)
            out.extend(() if option is None else (option,))
    for reset in act.RESETS:
        if any(w is not None and w.activation is reset for w in state.waiting):
            option = _try_reset(problem, state, reset, result)
            if option is not None:
                out.append(option)
    return out


def _try_push(
    problem: Problem, state: State, index: int, hop: Hop, result: SearchResult
) -> tuple[Move, State, Cost] | None:
    waiting = state.waiting[index]
    if waiting is not None and (
        waiting != problem.tracks[index].staged or waiting.version == hop.to
    ):
        return None  # the plan activates its own staged versions; it may replace older ones
    staged = Staged(hop.to, hop.activation, hop.carries)
    if _collides(problem, state, index, staged):
        return None
    if unmet := problem.find_unmet_conditions(hop, state.running):
        result.hindered.update((index, hop.to, kind, text) for kind, text in unmet)
        return None
    cost = (int(act.is_outage(hop.disruption)), 0, hop.duration_s)
    if hop.activation not in act.AT_ONCE:
        if index < state.floor:
            return None
        after = (*state.waiting[:index], staged, *state.waiting[index + 1 :])
        return Push(index, hop), State(state.running, after, index), cost
    running = problem.apply_changes(state.running, [(index, staged)])
    if not _is_allowed(problem, state.running, running, result):
        return None
    after = tuple(None if i == index else w for i, w in enumerate(state.waiting))
    return Push(index, hop), State(running, _drop_running(running, after)), cost


def _try_reset(
    problem: Problem, state: State, reset: Activation, result: SearchResult
) -> tuple[Move, State, Cost] | None:
    changes = [
        (i, w)
        for i, w in enumerate(state.waiting)
        if w is not None and act.covers_activation(reset, w.activation)
    ]
    running = problem.apply_changes(state.running, changes)
    if not _is_allowed(problem, state.running, running, result):
        return None
    activated = {i for i, _ in changes}
    after = tuple(None if i in activated else w for i, w in enumerate(state.waiting))
    cost = (int(act.is_outage(act.get_disruption(reset))), 1, act.estimate_duration_s(reset))
    move = Reset(reset, tuple(sorted(activated)))
    return move, State(running, _drop_running(running, after)), cost


def _is_allowed(problem: Problem, before: Running, after: Running, result: SearchResult) -> bool:
    newly = problem.find_broken_rules(after) - problem.find_broken_rules(before)
    result.broken |= newly
    return not newly


def _drop_running(running: Running, waiting: Waiting) -> Waiting:
    """Remove the staged versions that already run."""
    return tuple(
        None if w is not None and w.version == r else w
        for r, w in zip(running, waiting, strict=True)
    )


def _collides(problem: Problem, state: State, index: int, staged: Staged) -> bool:
    """Return whether two staged writes would give one component two different versions."""
    for kind, version in staged.carries:
        for target in problem.find_targets(index, kind):
            other_staged = state.waiting[target]
            if target != index and other_staged is not None and other_staged.version != version:
                return True
    for i, other_staged in enumerate(state.waiting):
        if other_staged is None or i == index:
            continue
        for kind, version in other_staged.carries:
            if index in problem.find_targets(i, kind) and version != staged.version:
                return True
    return False


def _path(
    predecessors: dict[State, tuple[State, Move]], state: State
) -> tuple[tuple[Move, State], ...]:
    out: list[tuple[Move, State]] = []
    while state in predecessors:
        state, move = predecessors[state]
        out.append((move, state))
    return tuple(reversed(out))


def _add(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])
