"""Plan one node: take it apart, join the parts' resets, and write the moves down in order.

If the effort ends before every order was tried, the whole node is searched as one, then its rules
are kept more strictly than needed, and after that the first plan is taken that a greedy search
meets: it is legal, but perhaps not the cheapest.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation
from provisioner.planning.path.clusters import Cluster, Effort, OutOfEffortError
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.partition import (
    Answer,
    Care,
    Group,
    Joining,
    Layout,
    OutOfPatienceError,
    Partition,
)
from provisioner.planning.path.parts import HUB, Part
from provisioner.planning.path.tracks import (
    Cost,
    Hindrances,
    Move,
    Problem,
    Push,
    Reset,
    SearchResult,
    State,
    activate_staged,
    cost_of_push,
    cost_of_reset,
    initial_state,
    is_goal,
    push_hop,
    waits_exactly,
)

# A real node needs some hundred states, most of them computed before for another node. 20,000 take
# about one second, off the event loop.
STATES_MAX = 20_000
WHOLE_STATES_MAX = 10_000  # some seconds; a node whose parts are too large is rare
RESETS_TRIED_MAX = 100  # a node with ten cards at any mixture of levels tries some twenty
SHAPES_MAX = 20_000  # of one profile; a fleet of 2,000 distinct vectors has some thousand

PhasePushes = list[list[Push]]


class _IllegalError(Exception):
    """A rule that was looked at only for the end of the plan is broken on the way."""


@dataclass(slots=True)
class Shapes:
    """Clusters and parts by everything that their reactions depend on, kept between nodes."""

    clusters: dict[object, Cluster] = field(default_factory=dict)
    parts: dict[object, Part] = field(default_factory=dict)
    feasible: dict[int, bool] = field(default_factory=dict)  # by identity of the part

    def trim(self) -> None:
        """Forget everything when too much is kept; it is computed again when it is needed."""
        if len(self.clusters) + len(self.parts) > SHAPES_MAX:
            self.clusters.clear()
            self.parts.clear()
            self.feasible.clear()


def solve(
    problem: Problem, distances: Distances, shapes: Shapes, states_max: int = STATES_MAX
) -> SearchResult:
    """Return the cheapest moves to the pins, or none with the hindrances that were met."""
    shapes.trim()
    if distances.bound_remaining(*initial_state(problem)) is None:
        reached = {i for i in range(len(problem.tracks)) if distances.can_reach_pin(i)}
        return SearchResult(hindrances=Hindrances(reached=reached))
    exhausted = False
    for care in Care:
        partition = Partition(problem, distances, care)
        if partition.broken_for_good:
            return SearchResult(hindrances=Hindrances(rules=set(partition.broken_for_good)))
        layouts = partition.list_layouts()
        try:
            result = _join(problem, layouts, shapes, Effort(states_max))
        except OutOfEffortError:
            whole = None if exhausted else _search_whole(problem, distances, exactly=True)
            if whole is not None and whole.moves is not None:
                return whole
            exhausted = True
            continue
        except _IllegalError:
            continue
        if result.moves is not None or not exhausted:
            return result
    return _search_whole(problem, distances, exactly=False)


def _join(
    problem: Problem, layouts: tuple[Layout, ...], shapes: Shapes, effort: Effort
) -> SearchResult:
    parts = [_get_part(problem, layout, shapes) for layout in layouts]
    joining = Joining(parts, effort)
    witnessed: frozenset[Activation] = frozenset()
    while (answer := _find_resets(joining, parts, shapes, effort)) is not None:
        result = _write_plan(problem, layouts, joining, answer, effort)
        if not (missing := _list_unwitnessed(result)):
            return result
        # the plan has a reset that nothing waits for exactly: ask for one that does
        witnessed |= missing
        joining = Joining(parts, effort, witnessed=witnessed)
    joining = Joining(parts, effort, covering=True)
    if (answer := _find_resets(joining, parts, shapes, effort)) is not None:
        return _write_plan(problem, layouts, joining, answer, effort)
    stuck = [
        layout
        for part, layout in zip(parts, layouts, strict=True)
        if not _is_feasible(part, shapes, effort)
    ]
    return SearchResult(hindrances=_find_hindrances(problem, layouts, stuck or list(layouts)))


def _find_resets(
    joining: Joining, parts: list[Part], shapes: Shapes, effort: Effort
) -> Answer | None:
    """Return the cheapest resets, or None if there are none.

    One part without a plan would make the others try everything, so that a long search looks for
    such a part first.
    """
    try:
        return joining.find_resets(RESETS_TRIED_MAX)
    except OutOfPatienceError:
        if all(_is_feasible(part, shapes, effort) for part in parts):
            return joining.find_resets()
        return None


def _write_plan(
    problem: Problem, layouts: tuple[Layout, ...], joining: Joining, answer: Answer, effort: Effort
) -> SearchResult:
    resets, cost = answer
    pushes = [
        _list_pushes(layout, part.trace(letters, effort))
        for part, layout, letters in zip(
            joining.parts, layouts, joining.list_letters(resets), strict=True
        )
    ]
    moves = _write_down(problem, pushes, [r.reset for r in resets])
    return SearchResult(moves=moves, cost=cost)


def _is_feasible(part: Part, shapes: Shapes, effort: Effort) -> bool:
    """Return whether the part has a plan of its own; the others' resets cannot help it."""
    if id(part) not in shapes.feasible:
        shapes.feasible[id(part)] = any(
            Joining([part], effort, covering=covering).find_resets() is not None
            for covering in (False, True)
        )
    return shapes.feasible[id(part)]


def _get_part(problem: Problem, layout: Layout, shapes: Shapes) -> Part:
    groups = (layout.hub, *layout.leaves)
    keys = tuple(_describe_group(problem, group) for group in groups)
    if keys not in shapes.parts:
        clusters = []
        for key, group in zip(keys, groups, strict=True):
            if key not in shapes.clusters:
                part = _take(problem, group)
                shapes.clusters[key] = Cluster(part)
            clusters.append(shapes.clusters[key])
        shapes.parts[keys] = Part(clusters[0], tuple(clusters[1:]))
    return shapes.parts[keys]


def _describe_group(problem: Problem, group: Group) -> tuple[object, ...]:
    """Return everything that the reactions of these tracks depend on.

    A rule is known by its object, which the matrix keeps: problems with fewer rules count them
    otherwise.
    """
    tracks = [problem.tracks[i] for i in group.tracks]
    position = {index: n for n, index in enumerate(group.tracks)}
    return (
        tuple(
            (t.kind, t.running, t.staged, t.goal, t.derived, t.updateable, t.exhausted)
            for t in tracks
        ),
        tuple(
            tuple(position.get(target) for target in problem.find_targets(index, kind))
            for index in group.tracks
            for kind in sorted({t.kind for t in tracks})
        )
        if len(tracks) > 1
        else (),
        tuple((id(problem.rules[n]), n in group.at_end_only) for n in group.rules),
        group.reads,
        tuple(sorted(problem.neighbours.items())),
    )


def _take(problem: Problem, group: Group) -> Problem:
    return problem.take_part(group.tracks, group.rules, dict(group.reads), group.at_end_only)


def _list_pushes(layout: Layout, phases: list[list[tuple[int, int, Hop]]]) -> PhasePushes:
    """Return the pushes of a part by phase, with the node's own indexes."""

    def index_of(cluster: int, track: int) -> int:
        group = layout.hub if cluster == HUB else layout.leaves[cluster]
        return group.tracks[track]

    return [[Push(index_of(c, t), hop) for c, t, hop in phase] for phase in phases]


def _write_down(
    problem: Problem, pushes: list[PhasePushes], resets: Sequence[Activation]
) -> tuple[tuple[Move, State], ...]:
    """Return all moves with the states before them, each legal for the whole node."""
    state = initial_state(problem)
    moves: list[tuple[Move, State]] = []
    for phase in range(len(resets) + 1):
        for push in _merge([list(part[phase]) for part in pushes]):
            after = push_hop(problem, state, push.track, push.hop)
            if after is None:
                raise _IllegalError
            moves.append((push, state))
            state = after
        if phase < len(resets):
            after, reset = activate_staged(problem, state, resets[phase])
            broken = problem.find_broken_rules(after.running)
            if not broken <= problem.find_broken_rules(state.running):
                raise _IllegalError
            moves.append((reset, state))
            state = after
    assert is_goal(problem, state)
    return tuple(moves)


def _merge(queues: list[list[Push]]) -> list[Push]:
    """Return the pushes of one phase in the order of tracks; each part keeps its own order."""
    heads = [(queue[0].track, n, 0) for n, queue in enumerate(queues) if queue]
    heapq.heapify(heads)
    out: list[Push] = []
    while heads:
        _, n, position = heapq.heappop(heads)
        out.append(queues[n][position])
        if position + 1 < len(queues[n]):
            heapq.heappush(heads, (queues[n][position + 1].track, n, position + 1))
    return out


def _list_unwitnessed(result: SearchResult) -> frozenset[Activation]:
    """Return the resets of a plan that no version waits for exactly at their moment."""
    return frozenset(
        move.reset
        for move, before in result.moves or ()
        if isinstance(move, Reset) and not waits_exactly(before, move.reset)
    )


def _find_hindrances(
    problem: Problem, layouts: tuple[Layout, ...], stuck: list[Layout]
) -> Hindrances:
    """Return the causes that forbade moves in the parts that have no plan."""
    out = Hindrances()
    for layout in layouts:
        if layout not in stuck:
            out.reached |= {i for g in (layout.hub, *layout.leaves) for i in g.tracks}
            continue
        groups = (layout.hub, *layout.leaves)
        causes = [Hindrances() for _ in groups]
        clusters = [
            Cluster(_take(problem, group), cause)
            for group, cause in zip(groups, causes, strict=True)
        ]
        part = Part(clusters[0], tuple(clusters[1:]))
        with suppress(OutOfEffortError):  # what was met so far is named all the same
            Joining([part], Effort(STATES_MAX), covering=True).find_resets()
        for group, cluster, cause in zip(groups, clusters, causes, strict=True):
            out.rules |= {group.rules[n] for n in cause.rules}
            out.conditions |= {
                (group.tracks[index], to, kind, text) for index, to, kind, text in cause.conditions
            }
            out.reached |= {group.tracks[i] for i in cluster.list_reached()}
    return out


def _search_whole(problem: Problem, distances: Distances, *, exactly: bool) -> SearchResult:
    """Return a plan from a search over states of the whole node.

    With `exactly` it is the cheapest one, by resets that a version waits for exactly. Without, the
    state nearest to the end always comes first, so that a plan is met soon, and any reset may do.
    """
    first = initial_state(problem)
    hindrances = Hindrances()
    ticket = count()
    before: dict[State, tuple[State, Move]] = {}
    best: dict[State, Cost] = {first: (0, 0, 0)}
    queue = [((0, 0, 0), (0, 0, 0), next(ticket), first, (0, 0, 0))]
    for _ in range(WHOLE_STATES_MAX):
        if not queue:
            break
        _, _, _, state, so_far = heapq.heappop(queue)
        if so_far != best[state]:
            continue
        if is_goal(problem, state):
            moves, cost = _collect(before, state)
            return SearchResult(moves, cost, exhausted=not exactly, hindrances=hindrances)
        for move, after in _list_moves(problem, state, hindrances, exactly=exactly):
            cost = _add(so_far, _cost_of(move))
            remaining = distances.estimate_remaining(after.running, after.waiting)
            if remaining is None or (after in best and (not exactly or best[after] <= cost)):
                continue
            best[after] = cost
            before[after] = (state, move)
            total = _add(cost, remaining) if exactly else remaining
            heapq.heappush(queue, (total, remaining, next(ticket), after, cost))
    return SearchResult(exhausted=True, hindrances=hindrances)


def _list_moves(
    problem: Problem, state: State, hindrances: Hindrances, *, exactly: bool
) -> list[tuple[Move, State]]:
    moves: list[tuple[Move, State]] = []
    for index, version in enumerate(state.running):
        for hop in problem.find_hops(index, version):
            after = push_hop(problem, state, index, hop, hindrances)
            if after is not None:
                moves.append((Push(index, hop), after))
    for reset in activation.RESETS:
        if exactly and not waits_exactly(state, reset):
            continue
        after, move = activate_staged(problem, state, reset)
        broken = problem.find_broken_rules(after.running)
        if move.tracks and broken <= problem.find_broken_rules(state.running):
            moves.append((move, after))
    return moves


def _cost_of(move: Move) -> Cost:
    if isinstance(move, Reset):
        return cost_of_reset(move.reset)
    outages, seconds = cost_of_push(move.hop)
    return (outages, 0, seconds)


def _add(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _collect(
    before: dict[State, tuple[State, Move]], state: State
) -> tuple[tuple[tuple[Move, State], ...], Cost]:
    moves: list[tuple[Move, State]] = []
    cost: Cost = (0, 0, 0)
    while state in before:
        state, move = before[state]
        moves.append((move, state))
        cost = _add(cost, _cost_of(move))
    return tuple(reversed(moves)), cost
