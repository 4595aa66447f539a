"""The cheapest order of pushes and resets from what runs to what is pinned: A* over versions.

Cost is (outages, resets, seconds), compared in this order. Rules must hold in every state that the
plan creates. If a rule is broken at the start, the plan may pass through states that are no more
broken: a step may mend rules, it may never break one that holds, and at the end all hold.
A reset is done only if something waits for exactly that reset; it then activates all it covers.
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
    track: int
    hop: Hop


@dataclass(frozen=True, slots=True)
class Reset:
    reset: Activation
    tracks: tuple[int, ...]


Move = Push | Reset


@dataclass(frozen=True, slots=True)
class State:
    """`floor`: pushes that only stage commute, so they are tried in track order alone."""

    running: Running
    waiting: Waiting
    floor: int = 0


@dataclass(slots=True)
class Found:
    """`moves` is None if there is no way; `limited` if the bound was reached too early."""

    moves: tuple[tuple[Move, State], ...] | None = None  # each with the state before it
    cost: Cost = (0, 0, 0)
    limited: bool = False
    hindered: set[tuple[int, str, str, str]] = field(default_factory=set)  # track, to, kind, text
    broken: set[str] = field(default_factory=set)  # rules that forbade a move
    reached: set[int] = field(default_factory=set)  # tracks that stood at their goal at some time


def start(problem: Problem) -> State:
    """Where the node is now."""
    return State(tuple(t.running for t in problem.tracks), tuple(t.staged for t in problem.tracks))


def finished(problem: Problem, state: State) -> bool:
    """Every pin runs, nothing pinned waits, and every rule holds."""
    return (
        all(problem.at_goal(i, v) for i, v in enumerate(state.running))
        and all(w is None or problem.tracks[i].goal is None for i, w in enumerate(state.waiting))
        and not problem.broken(state.running)
    )


def search(problem: Problem, limit: int = EXPANSIONS_MAX) -> Found:
    """The cheapest moves; ties are decided by the order of tracks and hops, never by chance."""
    found = Found()
    distances = Distances(problem)
    first = start(problem)
    best: dict[State, Cost] = {first: (0, 0, 0)}
    came: dict[State, tuple[State, Move]] = {}
    ticket = count()
    left = distances.left(first.running, first.waiting)
    queue = [] if left is None else [(left, left, next(ticket), first)]
    done: set[State] = set()
    while queue:
        _, _, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        found.reached.update(i for i, v in enumerate(state.running) if problem.at_goal(i, v))
        if finished(problem, state):
            found.moves, found.cost = _path(came, state), best[state]
            return found
        if len(done) >= limit:
            found.limited = True
            return found
        for move, after, cost in _next(problem, state, found):
            total = _add(best[state], cost)
            if after in best and best[after] <= total:
                continue
            left = distances.left(after.running, after.waiting)
            if left is None:
                continue
            best[after] = total
            came[after] = (state, move)
            heapq.heappush(queue, (_add(total, left), left, next(ticket), after))
    return found


def _next(problem: Problem, state: State, found: Found) -> list[tuple[Move, State, Cost]]:
    out: list[tuple[Move, State, Cost]] = []
    for index in range(len(problem.tracks)):
        for hop in problem.hops(index, state.running[index]):
            option = _push(problem, state, index, hop, found)
            out.extend(() if option is None else (option,))
    for reset in act.RESETS:
        if any(w is not None and w.activation is reset for w in state.waiting):
            option = _reset(problem, state, reset, found)
            if option is not None:
                out.append(option)
    return out


def _push(
    problem: Problem, state: State, index: int, hop: Hop, found: Found
) -> tuple[Move, State, Cost] | None:
    waiting = state.waiting[index]
    if waiting is not None and (
        waiting != problem.tracks[index].staged or waiting.version == hop.to
    ):
        return None  # what was staged is activated; only what was found staged may be replaced
    staged = Staged(hop.to, hop.activation, hop.carries)
    if _collides(problem, state, index, staged):
        return None
    if unmet := problem.unmet(hop, state.running):
        found.hindered.update((index, hop.to, kind, text) for kind, text in unmet)
        return None
    cost = (int(act.is_outage(hop.disruption)), 0, hop.duration_s)
    if hop.activation not in act.AT_ONCE:
        if index < state.floor:
            return None
        after = (*state.waiting[:index], staged, *state.waiting[index + 1 :])
        return Push(index, hop), State(state.running, after, index), cost
    running = problem.changed(state.running, [(index, staged)])
    if not _allowed(problem, state.running, running, found):
        return None
    after = tuple(None if i == index else w for i, w in enumerate(state.waiting))
    return Push(index, hop), State(running, _settled(running, after)), cost


def _reset(
    problem: Problem, state: State, reset: Activation, found: Found
) -> tuple[Move, State, Cost] | None:
    changes = [
        (i, w)
        for i, w in enumerate(state.waiting)
        if w is not None and act.covers(reset, w.activation)
    ]
    running = problem.changed(state.running, changes)
    if not _allowed(problem, state.running, running, found):
        return None
    gone = {i for i, _ in changes}
    after = tuple(None if i in gone else w for i, w in enumerate(state.waiting))
    cost = (int(act.is_outage(act.disruption(reset))), 1, act.duration_s(reset))
    move = Reset(reset, tuple(sorted(gone)))
    return move, State(running, _settled(running, after)), cost


def _allowed(problem: Problem, before: Running, after: Running, found: Found) -> bool:
    newly = problem.broken(after) - problem.broken(before)
    found.broken |= newly
    return not newly


def _settled(running: Running, waiting: Waiting) -> Waiting:
    """What runs already does not wait any more."""
    return tuple(
        None if w is not None and w.version == r else w
        for r, w in zip(running, waiting, strict=True)
    )


def _collides(problem: Problem, state: State, index: int, staged: Staged) -> bool:
    """True if two staged writes would give one component two different versions."""
    for kind, version in staged.carries:
        for target in problem.targets(index, kind):
            other = state.waiting[target]
            if target != index and other is not None and other.version != version:
                return True
    for i, other in enumerate(state.waiting):
        if other is None or i == index:
            continue
        for kind, version in other.carries:
            if index in problem.targets(i, kind) and version != staged.version:
                return True
    return False


def _path(came: dict[State, tuple[State, Move]], state: State) -> tuple[tuple[Move, State], ...]:
    out: list[tuple[Move, State]] = []
    while state in came:
        state, move = came[state]
        out.append((move, state))
    return tuple(reversed(out))


def _add(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])
