"""The order in which firmware is written behind one BMC, where costs alone do not decide it.

Among the cheapest plans the ranks of kinds decide. Beyond that, a vendor may declare that its BMC
is updated and restarted before anything else is pushed through it (`Quirk.bmc_first`, with its
source). Then a plan that keeps this order is taken although it holds one restart more than the
cheapest one. Roots of trust come before the BIOS that they protect: while a BIOS image is staged,
its root of trust answers "ERoT is busy" (facts: writes 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from provisioner.model.inventory import Activation
from provisioner.planning.path.activation import AT_ONCE
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.search import (
    Move,
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


@dataclass(frozen=True, slots=True)
class OrderedResult:
    """A plan's moves; `first` of them update and restart the BMC because its vendor says so.

    `extra_resets` are the resets that the cheapest plan does not need.
    """

    result: SearchResult
    first: int = 0
    extra_resets: int = 0


def solve_in_order(
    problem: Problem, distances: Distances, shapes: Shapes, *, bmc_first: bool
) -> OrderedResult:
    """Return the cheapest moves; with `bmc_first`, those that bring the host BMC ahead.

    Where the cheapest moves keep that order by themselves, where the BMC's own update needs another
    push first, or more than a restart of the BMC, the cheapest moves of all are returned.
    """
    cheapest = OrderedResult(solve(problem, distances, shapes))
    moves = cheapest.result.moves
    if not bmc_first or moves is None or _is_bmc_ahead(problem, [m for m, _ in moves]):
        return cheapest
    ahead = _keep_bmc_goal(problem)
    first = solve(ahead, Distances(ahead), shapes) if ahead is not None else SearchResult()
    if not first.moves or not _touches_bmc_only(problem, first):
        return cheapest
    state = _follow(problem, first)
    if state is None:
        return cheapest
    later = _move_on(problem, state)
    rest = solve(later, Distances(later), shapes)
    if rest.moves is None:
        return cheapest
    moves = first.moves + rest.moves
    if not _is_bmc_ahead(problem, [m for m, _ in moves]):
        return cheapest  # another push takes the BMC back: to write it twice keeps no order
    outages, resets, seconds = (a + b for a, b in zip(first.cost, rest.cost, strict=True))
    return OrderedResult(
        SearchResult(moves, (outages, resets, seconds)),
        len(first.moves),
        resets - cheapest.result.cost[1],
    )


def explain_order(ordered: OrderedResult, bmc_first: str) -> str:
    """Return the clause that says why the BMC is restarted ahead; "" where costs decided."""
    if not ordered.first:
        return ""
    more = f", {ordered.extra_resets} restart more than the cheapest plan has"
    return (
        "needed now because nothing else is pushed through a BMC with a waiting image "
        f"({bmc_first}){more if ordered.extra_resets else ''}"
    )


def _is_bmc_ahead(problem: Problem, moves: Sequence[Move]) -> bool:
    """Return whether no push goes through the host BMC before its own updates run."""
    own = set(problem.by_kind.get(_HOST_BMC, ()))
    waits = any(problem.tracks[i].staged is not None for i in own)
    others_pushed = False
    for move in moves:
        if isinstance(move, Reset):
            waits = waits and not own & set(move.tracks)
        elif move.track in own:
            if others_pushed:
                return False
            waits = waits or move.hop.activation not in AT_ONCE
        elif _goes_through_bmc(problem, move):
            if waits:
                return False
            others_pushed = True
    return True


def _goes_through_bmc(problem: Problem, push: Push) -> bool:
    bmcs = {slot.bmc for slot in problem.tracks[push.track].reported}
    return push.hop.method == "redfish_push" and bmcs <= {"host", ""}


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


def _touches_bmc_only(problem: Problem, result: SearchResult) -> bool:
    """Return whether the moves restart BMCs only, and push through the host BMC to itself only."""
    own = problem.by_kind.get(_HOST_BMC, ())
    return all(
        move.reset is Activation.BMC_RESET
        if isinstance(move, Reset)
        else move.track in own or not _goes_through_bmc(problem, move)
        for move, _ in result.moves or ()
    )


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
