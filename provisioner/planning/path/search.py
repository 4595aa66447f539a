"""The states of a node on its way to its pins, and the moves between them.

Rules must hold in every state that the plan creates. If a rule is broken at the start, the plan may
pass through states that break no further rule; at the end all rules hold. `joining` finds the
cheapest order of moves; this module decides only which single moves are legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation as act
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.tracks import Problem, Running, Staged, Waiting

Cost = tuple[int, int, int]  # outages, resets, seconds; compared in this order


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


class State(NamedTuple):
    """The running and the staged version of each track."""

    running: Running
    waiting: Waiting


@dataclass(slots=True)
class Hindrances:
    """The causes that forbade moves while states were searched, for the explanation of a refusal.

    All tracks are indexes of the whole node.
    """

    conditions: set[tuple[int, str, str, str]] = field(default_factory=set)  # track, to, kind, text
    rules: set[int] = field(default_factory=set)  # positions in the list of rules
    reached: set[int] = field(default_factory=set)  # tracks that were at their goal in some state


@dataclass(slots=True)
class SearchResult:
    """The result of a search. `moves` is None if there is no plan."""

    moves: tuple[tuple[Move, State], ...] | None = None  # each with the state before it
    cost: Cost = (0, 0, 0)
    exhausted: bool = False  # the budget ended before every order was tried
    hindrances: Hindrances = field(default_factory=Hindrances)


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


def cost_of_push(hop: Hop) -> tuple[int, int]:
    """Return the outages and seconds of one push."""
    return (int(act.is_outage(hop.disruption)), hop.duration_s)


def cost_of_reset(reset: Activation) -> Cost:
    """Return the cost of one reset."""
    return (int(act.is_outage(act.get_disruption(reset))), 1, act.estimate_duration_s(reset))


def push_hop(
    problem: Problem, state: State, index: int, hop: Hop, hindrances: Hindrances | None = None
) -> State | None:
    """Return the state after a push, or None if it is not allowed now.

    A version that the plan staged itself is activated before the track is written again; one that
    was staged before the plan may be replaced.
    """
    waiting = state.waiting[index]
    if waiting is not None and (
        waiting != problem.tracks[index].staged or waiting.version == hop.to
    ):
        return None
    staged = Staged(hop.to, hop.activation, hop.carries)
    if _collides(problem, state, index, staged):
        return None
    if unmet := problem.find_unmet_conditions(hop, state.running):
        if hindrances is not None:
            hindrances.conditions.update((index, hop.to, kind, text) for kind, text in unmet)
        return None
    if hop.activation not in act.AT_ONCE:
        after = (*state.waiting[:index], staged, *state.waiting[index + 1 :])
        return State(state.running, after)
    running = problem.apply_changes(state.running, [(index, staged)])
    if not _is_allowed(problem, state.running, running, hindrances):
        return None
    after = tuple(None if i == index else w for i, w in enumerate(state.waiting))
    return State(running, _drop_running(running, after))


def activate_staged(problem: Problem, state: State, reset: Activation) -> tuple[State, Reset]:
    """Return the state after a reset and the reset with its tracks. Rules are not looked at."""
    changes = [
        (i, w)
        for i, w in enumerate(state.waiting)
        if w is not None and act.covers_activation(reset, w.activation)
    ]
    if not changes:
        return state, Reset(reset, ())
    running = problem.apply_changes(state.running, changes)
    activated = {i for i, _ in changes}
    after = tuple(None if i in activated else w for i, w in enumerate(state.waiting))
    return State(running, _drop_running(running, after)), Reset(reset, tuple(sorted(activated)))


def waits_exactly(state: State, reset: Activation) -> bool:
    """Return whether a staged version waits for exactly this reset."""
    return any(w is not None and w.activation is reset for w in state.waiting)


def _is_allowed(
    problem: Problem, before: Running, after: Running, hindrances: Hindrances | None
) -> bool:
    broken = problem.find_broken_rules(after) - problem.at_end_only
    newly = broken - problem.find_broken_rules(before) if broken else broken
    if newly and hindrances is not None:
        hindrances.rules |= newly
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
