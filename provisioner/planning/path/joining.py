"""Find the cheapest plan of a whole node: the parts are planned apart, and resets are shared.

Cost is (outages, resets, seconds), compared in this order. A plan is a sequence of resets; between
two of them each part stages whatever serves it best, whatever the others do. So the search is one
over sequences of resets, and each part answers only with its frontier after them. Two sequences
that leave all parts in the same frontiers are one state.

A reset is used only if a version waits for exactly that reset; it then activates every version that
it covers. If no plan exists under this condition, a reset that covers a waiting version is enough:
only an AC cycle activates a BMC's and a host's versions at the same moment.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import count

from provisioner.model.inventory import Activation
from provisioner.planning.path import activation as act
from provisioner.planning.path.clusters import Effort
from provisioner.planning.path.distances import (
    NOTHING,
    RemainingCost,
    join_bounds,
    total_of,
)
from provisioner.planning.path.parts import Letter, Part
from provisioner.planning.path.search import Cost, cost_of_reset

# (number of the part's shape, number of its frontier) -> how many parts are in this situation
Fronts = tuple[tuple[tuple[int, int], int], ...]


@dataclass(frozen=True, slots=True)
class JointReset:
    """One reset, and the situation of a part that has a version that waits for exactly it."""

    reset: Activation
    witness: tuple[int, int] | None = None


Answer = tuple[tuple[JointReset, ...], Cost]  # the resets and the cost of the whole plan


class OutOfPatienceError(Exception):
    """More resets were tried than a node needs as a rule."""


class Joining:
    """The search over sequences of resets for some parts; equal parts are looked at once."""

    def __init__(
        self,
        parts: list[Part],
        effort: Effort,
        *,
        covering: bool = False,
        witnessed: Set[Activation] = frozenset(),
    ) -> None:
        shapes = {id(part): part for part in parts}
        self._numbers = {identity: n for n, identity in enumerate(shapes)}
        self._shapes = list(shapes.values())
        self.parts = parts
        self._effort = effort
        self.covering = covering  # a reset that covers a waiting version is enough
        self._witnessed = witnessed  # resets of which each names a part that waits for exactly it
        self._apart = not covering and not any(part.heavy for part in parts)

    def find_resets(self, resets_max: int | None = None) -> Answer | None:
        """Return the cheapest sequence of resets and the whole cost, or None if there is none.

        Raises OutOfPatienceError after trying `resets_max` resets.
        """
        tried = 0
        first = _pack(
            Counter((self._numbers[id(p)], p.number_start(self._effort)) for p in self.parts)
        )
        best: dict[Fronts, Cost] = {first: (0, 0, 0)}
        before: dict[Fronts, tuple[Fronts, JointReset]] = {}
        ticket = count()
        bound = self._bound(first)
        queue = [(bound, 1, bound, next(ticket), first, (0, 0, 0), self._list_resets(first))]
        while queue:
            total, more, _, _, fronts, so_far, resets = heapq.heappop(queue)
            if not more:
                return _list_resets(before, fronts), total
            if so_far != best[fronts]:
                continue  # a cheaper sequence into the same situation was taken up before
            at_goal = self._cost_at_goal(fronts)
            if at_goal is not None:
                whole = (so_far[0] + at_goal[0], so_far[1], so_far[2] + at_goal[1])
                heapq.heappush(queue, (whole, 0, whole, next(ticket), fronts, so_far, iter(())))
            for reset in resets:
                self._effort.spend()
                tried += 1
                if tried == resets_max:
                    raise OutOfPatienceError
                after = self._advance(fronts, reset)
                cost = _add(so_far, cost_of_reset(reset.reset))
                if after is None or (after in best and best[after] <= cost):
                    continue
                best[after] = cost
                before[after] = (fronts, reset)
                bound = self._bound(after)  # of equal totals, the one with the least ahead
                entry = (_add(cost, bound), 1, bound, next(ticket), after, cost)
                heapq.heappush(queue, (*entry, self._list_resets(after)))
                if entry[0] <= total:  # nothing is lost on this way; the other resets come later
                    here = self._bound(fronts)
                    heapq.heappush(queue, (total, 1, here, next(ticket), fronts, so_far, resets))
                    break
        return None

    def list_letters(self, resets: tuple[JointReset, ...]) -> Iterator[tuple[Letter, ...]]:
        """Return for each part the resets as it takes part in them."""
        situations = [
            (self._numbers[id(part)], part.number_start(self._effort)) for part in self.parts
        ]
        letters: list[list[Letter]] = [[] for _ in self.parts]
        for reset in resets:
            witness = None if reset.witness is None else situations.index(reset.witness)
            for n, (shape, number) in enumerate(situations):
                letter = Letter(reset.reset, exactly=n == witness)
                after = self._shapes[shape].advance(number, letter, self._effort)
                assert after is not None
                situations[n] = (shape, after)
                letters[n].append(letter)
        return (tuple(taken) for taken in letters)

    def _list_resets(self, fronts: Fronts) -> Iterator[JointReset]:
        for reset in act.RESETS:
            waiting = [
                (situation, waits)
                for situation, _ in fronts
                for waits in [self._shapes[situation[0]].list_waits(situation[1])]
            ]
            if self.covering:
                if any(act.covers_activation(reset, w) for _, waits in waiting for w in waits):
                    yield JointReset(reset)
            elif reset in self._witnessed:
                yield from (JointReset(reset, s) for s, waits in waiting if reset in waits)
            elif any(reset in waits for _, waits in waiting):
                yield JointReset(reset)

    def _advance(self, fronts: Fronts, reset: JointReset) -> Fronts | None:
        after: Counter[tuple[int, int]] = Counter()
        for (shape, number), times in fronts:
            plain = times - ((shape, number) == reset.witness)
            for exactly, repeats in ((False, plain), (True, times - plain)):
                if repeats:
                    letter = Letter(reset.reset, exactly)
                    moved = self._shapes[shape].advance(number, letter, self._effort)
                    if moved is None:
                        return None
                    after[shape, moved] += repeats
        return _pack(after)

    def _bound(self, fronts: Fronts) -> Cost:
        whole = NOTHING
        for (shape, number), times in fronts:
            bound = self._shapes[shape].bound(number)
            pushes = (bound.push_outages * times, bound.push_s * times)
            whole = join_bounds(whole, RemainingCost(*pushes, *bound[2:]))
        return total_of(whole, apart=self._apart)

    def _cost_at_goal(self, fronts: Fronts) -> tuple[int, int] | None:
        outages = seconds = 0
        for (shape, number), times in fronts:
            cost = self._shapes[shape].cost_at_goal(number)
            if cost is None:
                return None
            outages = outages + cost[0] * times
            seconds = seconds + cost[1] * times
        return outages, seconds


def _pack(counts: Counter[tuple[int, int]]) -> Fronts:
    return tuple(sorted(counts.items()))


def _list_resets(
    before: dict[Fronts, tuple[Fronts, JointReset]], fronts: Fronts
) -> tuple[JointReset, ...]:
    out: list[JointReset] = []
    while fronts in before:
        fronts, reset = before[fronts]
        out.append(reset)
    return tuple(reversed(out))


def _add(a: Cost, b: Cost) -> Cost:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])
