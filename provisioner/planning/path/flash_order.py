"""The order in which firmware is written behind one BMC, where costs alone do not decide it.

source: NVIDIA's DGX field runbooks ("BMC must be updated and reset before the motherboard and GPU
trays"), Lenovo's manual ("update the firmware for XClarity Controller first"), Dell's and HPE's
documents alike (facts: writes 1, hardware 4.1). Roots of trust come before the BIOS that they
protect: while a BIOS image is staged, its root of trust answers "ERoT is busy".
"""

from __future__ import annotations

from dataclasses import replace

from provisioner.model.inventory import Activation
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.search import (
    Push,
    Reset,
    SearchResult,
    State,
    activate_staged,
    initial_state,
    push_hop,
)
from provisioner.planning.path.solving import Shapes, solve
from provisioner.planning.path.tracks import Problem

_HOST_BMC = "host.bmc"


def solve_in_order(problem: Problem, distances: Distances, shapes: Shapes) -> SearchResult:
    """Return the cheapest moves that update and restart the host BMC before anything else.

    Where the BMC's own update needs another component first, or more than a restart of the BMC, the
    cheapest moves of all are returned.
    """
    ahead = _keep_bmc_goal(problem)
    first = solve(ahead, Distances(ahead), shapes) if ahead is not None else SearchResult()
    state = _follow(problem, first) if first.moves and _restarts_bmc_only(first) else None
    if first.moves and state is not None:
        later = _move_on(problem, state)
        rest = solve(later, Distances(later), shapes)
        if rest.moves is not None:
            outages, resets, seconds = (a + b for a, b in zip(first.cost, rest.cost, strict=True))
            return SearchResult(first.moves + rest.moves, (outages, resets, seconds))
    return solve(problem, distances, shapes)


def _keep_bmc_goal(problem: Problem) -> Problem | None:
    """Return the problem of the host BMC alone; None if its pin runs already.

    Rules that are broken at the start are for the rest of the plan to mend.
    """
    indexes = problem.by_kind.get(_HOST_BMC, ())
    tracks = problem.tracks
    if all(
        problem.is_at_goal(i, tracks[i].running) and (tracks[i].staged is None) for i in indexes
    ):
        return None
    broken = problem.find_broken_rules(tuple(t.running for t in tracks))
    return Problem(
        tuple(t if i in indexes else replace(t, goal=None) for i, t in enumerate(tracks)),
        problem.moves,
        tuple(rule for number, rule in enumerate(problem.rules) if number not in broken),
        problem.neighbours,
    )


def _restarts_bmc_only(result: SearchResult) -> bool:
    moves = [move for move, _ in result.moves or ()]
    return all(isinstance(m, Push) or m.reset is Activation.BMC_RESET for m in moves)


def _follow(problem: Problem, result: SearchResult) -> State | None:
    """Return the state after all moves; None if a rule of the whole node forbids one of them."""
    state = initial_state(problem)
    for move, _ in result.moves or ():
        if isinstance(move, Reset):
            state, _ = activate_staged(problem, state, move.reset)
            continue
        after = push_hop(problem, state, move.track, move.hop)
        if after is None:
            return None
        state = after
    return state


def _move_on(problem: Problem, state: State) -> Problem:
    tracks = (
        replace(track, running=running, staged=waiting)
        for track, running, waiting in zip(
            problem.tracks, state.running, state.waiting, strict=True
        )
    )
    return Problem(tuple(tracks), problem.moves, problem.rules, problem.neighbours)
