"""A lower bound on what is left to do, for the search: each track on its own, rules left aside.

Every number is a lower bound of its own, so their tuple is one in the order of costs: pushes add up
over tracks; resets may be shared, so the track that needs most of them counts.
"""

from __future__ import annotations

from typing import NamedTuple

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation as act
from provisioner.planning.path.tracks import Problem, Running, Staged, Waiting


class Left(NamedTuple):
    """What one track needs at least."""

    push_outages: int = 0
    push_s: int = 0
    outage_resets: int = 0
    quiet_resets: int = 0  # resets that are no outage: of a BMC
    resets: int = 0
    outage_reset_s: int = 0
    quiet_reset_s: int = 0
    reset_s: int = 0


_NOTHING = Left()


class Distances:
    """Computed once per search; `left` is called for every state."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        met, carried = self._met()
        self._free = [i in carried or t.goal is None for i, t in enumerate(problem.tracks)]
        self._table: list[dict[str, Left]] = []
        self._known: dict[tuple[int, str, Staged | None], Left | None] = {}
        heavy = any(t.staged and t.staged.activation is Activation.AC_CYCLE for t in problem.tracks)
        for index in range(len(problem.tracks)):
            table, uses_ac = self._of_track(index, met[index])
            self._table.append(table)
            heavy = heavy or uses_ac
        self._apart = not heavy  # only an AC cycle covers both a BMC's reset and the host's

    def reachable(self, index: int) -> bool:
        """False if no chain of hops, and nothing that carries it, brings this track to its pin."""
        track = self._problem.tracks[index]
        return self._one(index, track.running, track.staged) is not None

    def left(self, running: Running, waiting: Waiting) -> tuple[int, int, int] | None:
        """(outages, resets, seconds) that are needed at least; None if there is no way at all."""
        outages = push_s = 0
        most = [0] * 6
        for index, version in enumerate(running):
            one = self._one(index, version, waiting[index])
            if one is None:
                return None
            if one is _NOTHING:
                continue
            outages += one.push_outages
            push_s += one.push_s
            most = list(map(max, most, one[2:]))
        outage, quiet, resets, outage_s, quiet_s, reset_s = most
        if self._apart:
            resets, reset_s = max(resets, outage + quiet), max(reset_s, outage_s + quiet_s)
        return (outages + outage, resets, push_s + reset_s)

    def _one(self, index: int, version: str, waiting: Staged | None) -> Left | None:
        if self._free[index]:
            return _NOTHING
        key = (index, version, waiting)
        if key not in self._known:
            self._known[key] = self._worked_out(index, version, waiting)
        return self._known[key]

    def _worked_out(self, index: int, version: str, waiting: Staged | None) -> Left | None:
        table = self._table[index]
        if waiting is None:
            return table.get(version)
        ahead = table.get(waiting.version)
        through = None if ahead is None else _plus(ahead, _reset(waiting.activation))
        if waiting != self._problem.tracks[index].staged:
            return through
        return _least(through, table.get(version))  # what was found staged may be replaced

    def _met(self) -> tuple[list[list[str]], set[int]]:
        """Versions that each track may come to, and the tracks that others may bring to one.

        What is carried goes on from there by edges of its own, and may carry others in turn. A
        track that is carried needs nothing of its own for sure.
        """
        problem = self._problem
        met: list[list[str]] = [[] for _ in problem.tracks]
        carried: set[int] = set()
        ahead = [(i, t.running) for i, t in enumerate(problem.tracks)]
        for index, track in enumerate(problem.tracks):
            if track.staged:
                ahead.append((index, track.staged.version))
                for kind, version in track.staged.carries:
                    targets = problem.targets(index, kind)
                    carried.update(targets)
                    ahead += [(target, version) for target in targets]
        while ahead:
            index, here = ahead.pop()
            if here in met[index]:
                continue
            met[index].append(here)
            for hop in problem.hops(index, here):
                ahead.append((index, hop.to))
                for kind, version in hop.carries:
                    targets = problem.targets(index, kind)
                    carried.update(targets)
                    ahead += [(target, version) for target in targets]
        return met, carried | self._made_of_staged()

    def _made_of_staged(self) -> set[int]:
        """Derived tracks that change when a part that waits begins to run."""
        problem, out = self._problem, set[int]()
        staged = {t.kind for t in problem.tracks if t.staged}
        for index, track in enumerate(problem.tracks):
            parts = (
                problem.moves.matrix.bundles.get(track.kind, {}).values() if track.derived else ()
            )
            if any(staged & parts_of.keys() for parts_of in parts):
                out.add(index)
        return out

    def _of_track(self, index: int, versions: list[str]) -> tuple[dict[str, Left], bool]:
        problem = self._problem
        edges, uses_ac = [], False
        for version in versions:
            for hop in problem.hops(index, version):
                cost = _plus(
                    Left(push_outages=int(act.is_outage(hop.disruption)), push_s=hop.duration_s),
                    _reset(hop.activation),
                )
                uses_ac = uses_ac or hop.activation is Activation.AC_CYCLE
                edges.append((version, hop.to, cost))
        table = {v: _NOTHING for v in versions if problem.at_goal(index, v)}
        for _ in versions:  # a shortest path has no more hops than there are versions
            before = dict(table)
            for here, there, cost in edges:
                if there in table:
                    least = _least(_plus(table[there], cost), table.get(here))
                    assert least is not None
                    table[here] = _NOTHING if least == _NOTHING else least
            if table == before:
                break
        return table, uses_ac


def _reset(activation: Activation) -> Left:
    if activation in act.AT_ONCE:
        return _NOTHING
    seconds = act.duration_s(activation)
    if act.is_outage(act.disruption(activation)):
        return Left(outage_resets=1, resets=1, outage_reset_s=seconds, reset_s=seconds)
    return Left(quiet_resets=1, resets=1, quiet_reset_s=seconds, reset_s=seconds)


def _plus(a: Left, b: Left) -> Left:
    return Left(*(x + y for x, y in zip(a, b, strict=True)))


def _least(a: Left | None, b: Left | None) -> Left | None:
    if a is None or b is None:
        return b if a is None else a
    return Left(*(min(x, y) for x, y in zip(a, b, strict=True)))
