"""A lower bound of the remaining cost, for the search: each track by itself, without rules.

Each number is a lower bound by itself, so their tuple is a lower bound in the order of costs.
Pushes add up over tracks. Resets may be shared between tracks, so the largest need of one track
counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from provisioner import components
from provisioner.model.inventory import Activation
from provisioner.model.matrix import Matrix
from provisioner.planning.path import activation as act
from provisioner.planning.path.hops import ASKS_LEAVE, Moves
from provisioner.planning.path.tracks import Problem, Running, Staged, Waiting

# ------------------------------------------------------------------------------
# Reachability over the matrix's edges, one component at a time.
#
# This proves facts about single components. Rules between components may still forbid every order,
# which only the planner can find. A version that is unreachable here is unreachable for the planner
# too.


def map_moves(matrix: Matrix, kind: str) -> dict[str, tuple[str, ...]]:
    """Return, for each version of a kind that the matrix names, the versions of its next hops.

    These are the planner's own hops: stops of `via`, edges from "*" and other spellings count, and
    hops that no plan may take do not. Bundles and packages that carry the kind count as edges too.
    """
    moves = _list_moves(matrix)
    targets_of: dict[str, list[str]] = {}
    for version in _list_versions(matrix, moves, kind):
        for hop in moves.find_hops(kind, version):
            if not hop.objections:
                targets_of.setdefault(version, []).append(hop.to)
    for carrier in matrix.edges:
        for start in _list_versions(matrix, moves, carrier):
            before = _find_carried_version(matrix, moves, carrier, start, kind)
            for hop in moves.find_hops(carrier, start) if before else ():
                after = dict(hop.carries).get(kind)
                if after and after != before and not hop.objections:
                    targets_of.setdefault(before, []).append(after)
    return {version: tuple(dict.fromkeys(targets)) for version, targets in targets_of.items()}


def normalize_version(matrix: Matrix, kind: str, version: str) -> str:
    """Return the spelling of a version that `map_moves` uses."""
    return _list_moves(matrix).normalize_version(kind, version)


class Ways:
    """The moves of one matrix by kind, each mapped once: a review asks for them many times."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._steps: dict[str, dict[str, tuple[str, ...]]] = {}
        self._reachable: dict[tuple[str, str], frozenset[str]] = {}

    def list_reachable(self, kind: str, version: str) -> frozenset[str]:
        """Return every version that one leads to, including itself, as `map_moves` spells them."""
        start = normalize_version(self._matrix, kind, version)
        if kind not in self._steps:
            self._steps[kind] = map_moves(self._matrix, kind)
        key = (kind, start)
        if key not in self._reachable:
            self._reachable[key] = find_reachable(self._steps[kind], start)
        return self._reachable[key]


def _list_moves(matrix: Matrix) -> Moves:
    return Moves(matrix, {}, components.ALL, production=False, leave=ASKS_LEAVE)


def _list_versions(matrix: Matrix, moves: Moves, kind: str) -> tuple[str, ...]:
    """Return every version of a kind that an edge, a bundle or a pin names, in one spelling."""
    pinned = [
        version
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        if kind in profile.pins and profile.pins[kind].known
        for version in (profile.pins[kind].version, *profile.pins[kind].also)
    ]
    names = (*moves.list_versions(kind), *pinned)
    return tuple(dict.fromkeys(moves.normalize_version(kind, v) for v in names))


def _find_carried_version(
    matrix: Matrix, moves: Moves, carrier: str, version: str, kind: str
) -> str:
    """Return the version of `kind` that runs beside a carrier's version, "" if nothing states it.

    It is read from the bundle, from an edge that ends at that version, or from the release that
    pins the two together.
    """
    if bundled := moves.get_contents(carrier, version).get(kind):
        return bundled
    for edge in matrix.edges.get(carrier, ()):
        if kind in edge.carries and moves.normalize_version(carrier, edge.to) == version:
            return moves.normalize_version(kind, edge.carries[kind])
    for release in matrix.releases.values():
        for profile in release.profiles.values():
            pins = profile.pins
            together = carrier in pins and kind in pins and pins[kind].known
            if together and moves.normalize_version(carrier, pins[carrier].version) == version:
                return moves.normalize_version(kind, pins[kind].version)
    return ""


def find_reachable(steps: Mapping[str, Sequence[str]], start: str) -> frozenset[str]:
    """Return every version that `start` leads to, including `start`."""
    visited = {start}
    todo = deque([start])
    while todo:
        for target in steps.get(todo.popleft(), ()):
            if target not in visited:
                visited.add(target)
                todo.append(target)
    return frozenset(visited)


def list_pinned_kinds(matrix: Matrix) -> tuple[str, ...]:
    """Return the component kinds that any profile pins, in the order of the file."""
    kinds = {
        kind: None
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        for kind in profile.pins
    }
    return tuple(kinds)


def find_cycle(steps: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a cycle in a graph, its first element repeated at the end; () if there is none."""
    visited: set[str] = set()
    for root in steps:
        trail: list[str] = []
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                if node in visited:
                    continue
                if node in trail:
                    return (*trail[trail.index(node) :], node)
                trail.append(node)
            targets = steps.get(node, ())
            if index < len(targets):
                stack.append((node, index + 1))
                stack.append((targets[index], 0))
            else:
                trail.remove(node)
                visited.add(node)
    return ()


class RemainingCost(NamedTuple):
    """The least that one track still needs to reach its pin.

    Each number of resets counts those of one activation and those that cover it, so that the needs
    of two tracks can be compared: whoever needs two cold boots may share them with warm reboots.
    """

    push_outages: int = 0
    push_s: int = 0
    ac_cycles: int = 0
    cold_boots: int = 0  # or AC cycles
    warm_reboots: int = 0  # or what covers them
    nic_resets: int = 0  # or what covers them
    bmc_resets: int = 0  # or AC cycles
    image_reboots: int = 0
    outages: int = 0  # resets that are outages
    resets: int = 0


NOTHING = RemainingCost()


class Distances:
    """Lower bounds of one problem, computed once per search and looked up for every state."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        met, carried = self._find_reachable_versions()
        self.reachable = tuple(tuple(versions) for versions in met)  # by track, without rules
        self._free = [i in carried or t.goal is None for i, t in enumerate(problem.tracks)]
        self._table: list[dict[str, RemainingCost]] = []
        self._known: dict[tuple[int, str, Staged | None], RemainingCost | None] = {}
        heavy = any(t.staged and t.staged.activation is Activation.AC_CYCLE for t in problem.tracks)
        for index in range(len(problem.tracks)):
            table, uses_ac = self._build_table(index, met[index])
            self._table.append(table)
            heavy = heavy or uses_ac
        self.heavy = heavy
        self._apart = not heavy  # only an AC cycle covers both a BMC's reset and the host's

    def can_reach_pin(self, index: int) -> bool:
        """Return whether hops, or a component that carries the track, bring it to its pin."""
        track = self._problem.tracks[index]
        return self._remaining_of(index, track.running, track.staged) is not None

    def estimate_remaining(self, running: Running, waiting: Waiting) -> tuple[int, int, int] | None:
        """Return the minimal (outages, resets, seconds) that remain.

        Returns None if no path leads to the goal.
        """
        bound = self.bound_remaining(running, waiting)
        return None if bound is None else total_of(bound, apart=self._apart)

    def bound_remaining(self, running: Running, waiting: Waiting) -> RemainingCost | None:
        """Return the least that all tracks together still need, or None if there is no path."""
        bound = NOTHING
        for index, version in enumerate(running):
            one = self._remaining_of(index, version, waiting[index])
            if one is None:
                return None
            if one is not NOTHING:
                bound = join_bounds(bound, one)
        return bound

    def _remaining_of(
        self, index: int, version: str, waiting: Staged | None
    ) -> RemainingCost | None:
        if self._free[index]:
            return NOTHING
        key = (index, version, waiting)
        if key not in self._known:
            self._known[key] = self._compute_remaining(index, version, waiting)
        return self._known[key]

    def _compute_remaining(
        self, index: int, version: str, waiting: Staged | None
    ) -> RemainingCost | None:
        table = self._table[index]
        if waiting is None:
            return table.get(version)
        ahead = table.get(waiting.version)
        through = None if ahead is None else _plus(ahead, _reset(waiting.activation))
        if waiting != self._problem.tracks[index].staged:
            return through
        return _least(
            through, table.get(version)
        )  # a version staged before the plan may be replaced

    def _find_reachable_versions(self) -> tuple[list[list[str]], set[int]]:
        """Return the versions that each track may reach, and the tracks that may be carried.

        A carried track continues from the carried version by its own edges, and may carry others in
        turn. It may need no push of its own, so its lower bound is zero.
        """
        problem = self._problem
        met: list[list[str]] = [[] for _ in problem.tracks]
        carried: set[int] = set()
        ahead = [(i, t.running) for i, t in enumerate(problem.tracks)]
        for index, track in enumerate(problem.tracks):
            if track.staged:
                ahead.append((index, track.staged.version))
                for kind, version in track.staged.carries:
                    targets = problem.find_targets(index, kind)
                    carried.update(targets)
                    ahead += [(target, version) for target in targets]
        while ahead:
            index, here = ahead.pop()
            if here in met[index]:
                continue
            met[index].append(here)
            for hop in problem.find_hops(index, here):
                ahead.append((index, hop.to))
                for kind, version in hop.carries:
                    targets = problem.find_targets(index, kind)
                    carried.update(targets)
                    ahead += [(target, version) for target in targets]
        return met, carried | self._find_bundles_of_staged()

    def _find_bundles_of_staged(self) -> set[int]:
        """Return the derived tracks that change when one of their staged parts is activated."""
        problem = self._problem
        out = set[int]()
        staged = {t.kind for t in problem.tracks if t.staged}
        for index, track in enumerate(problem.tracks):
            parts = (
                problem.moves.matrix.bundles.get(track.kind, {}).values() if track.derived else ()
            )
            if any(staged & parts_of.keys() for parts_of in parts):
                out.add(index)
        return out

    def _build_table(
        self, index: int, versions: list[str]
    ) -> tuple[dict[str, RemainingCost], bool]:
        problem = self._problem
        edges = []
        uses_ac = False
        for version in versions:
            for hop in problem.find_hops(index, version):
                cost = _plus(
                    RemainingCost(
                        push_outages=int(act.is_outage(hop.disruption)), push_s=hop.duration_s
                    ),
                    _reset(hop.activation),
                )
                uses_ac = uses_ac or hop.activation is Activation.AC_CYCLE
                edges.append((version, hop.to, cost))
        table = {v: NOTHING for v in versions if problem.is_at_goal(index, v)}
        for _ in versions:  # a shortest path has no more hops than there are versions
            before = dict(table)
            for start, target, cost in edges:
                if target in table:
                    least = _least(_plus(table[target], cost), table.get(start))
                    assert least is not None
                    table[start] = NOTHING if least == NOTHING else least
            if table == before:
                break
        return table, uses_ac


def join_bounds(a: RemainingCost, b: RemainingCost) -> RemainingCost:
    """Return the bound of two parts that share their resets but not their pushes."""
    if a is NOTHING:
        return b
    return RemainingCost(a[0] + b[0], a[1] + b[1], *map(max, a[2:], b[2:]))


def least_of(bounds: Iterable[RemainingCost]) -> RemainingCost:
    """Return the bound of a choice among several ways: the least of each number."""
    return RemainingCost(*map(min, zip(*bounds, strict=True)))


def total_of(bound: RemainingCost, *, apart: bool) -> tuple[int, int, int]:
    """Return a bound as (outages, resets, seconds).

    `apart` states that no reset covers both a BMC's reset and one of the host. The seconds are the
    least for this number of outages; any plan with more outages costs more anyway.
    """
    cold = bound.cold_boots
    warm = bound.warm_reboots
    nic = bound.nic_resets
    outages = max(bound.outages, bound.image_reboots + max(cold, warm, nic))
    # the fewest cold boots and AC cycles, each of which may cover both others at once
    full = max(cold, warm + nic - (outages - bound.image_reboots))
    seconds = (
        bound.ac_cycles * _AC_S
        + (full - bound.ac_cycles) * _COLD_S
        + max(warm - full, 0) * _WARM_S
        + max(nic - full, 0) * _NIC_S
        + max(bound.bmc_resets - bound.ac_cycles, 0) * _BMC_S
        + bound.image_reboots * _IMAGE_S
    )
    quiet = bound.bmc_resets
    resets = outages + quiet if apart else max(bound.resets, outages, quiet)
    return (bound.push_outages + outages, resets, bound.push_s + seconds)


def _reset(activation: Activation) -> RemainingCost:
    return _RESETS.get(activation, NOTHING)


_AC_S, _COLD_S, _WARM_S, _NIC_S, _BMC_S, _IMAGE_S = (
    act.estimate_duration_s(activation)
    for activation in (
        Activation.AC_CYCLE,
        Activation.COLD_BOOT,
        Activation.WARM_REBOOT,
        Activation.NIC_RESET,
        Activation.BMC_RESET,
        Activation.IMAGE_REBOOT,
    )
)
_COUNTED = {
    "ac_cycles": Activation.AC_CYCLE,
    "cold_boots": Activation.COLD_BOOT,
    "warm_reboots": Activation.WARM_REBOOT,
    "nic_resets": Activation.NIC_RESET,
    "bmc_resets": Activation.BMC_RESET,
    "image_reboots": Activation.IMAGE_REBOOT,
}
_RESETS = {
    reset: RemainingCost(
        outages=int(act.is_outage(act.get_disruption(reset))),
        resets=1,
        **{name: int(act.covers_activation(reset, counted)) for name, counted in _COUNTED.items()},
    )
    for reset in act.RESETS
}


def _plus(a: RemainingCost, b: RemainingCost) -> RemainingCost:
    return RemainingCost(*(x + y for x, y in zip(a, b, strict=True)))


def _least(a: RemainingCost | None, b: RemainingCost | None) -> RemainingCost | None:
    if a is None or b is None:
        return b if a is None else a
    return RemainingCost(*(min(x, y) for x, y in zip(a, b, strict=True)))
