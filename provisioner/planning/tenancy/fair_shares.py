"""Divide nodes among tenants when there are fewer than they wish for. Pure.

One node at a time goes to the tenant that lacks the largest part of its wish, so that none is
starved. Tenants that may stand in some units only are kept possible: a tenant that may stand
anywhere moves to another unit for them (augmenting paths of a flow from tenants to units).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.planning.tenancy.placement import UNIT, Area, Wish

Shares = dict[str, Counter[Area]]  # number of nodes of each tenant by unit


def share_nodes(wishes: Sequence[Wish], rooms: Mapping[Area, int]) -> Shares:
    """Return how many nodes each tenant gets, and in which units there is room for all of them.

    rooms: free nodes by unit.
    """
    return _Flow(wishes, rooms).share()


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of `tenant` in `unit`; it gets there when the step before it has made room."""

    tenant: str
    unit: Area
    before: _Step | None


class _Flow:
    def __init__(self, wishes: Sequence[Wish], rooms: Mapping[Area, int]) -> None:
        self._wishes = {w.tenant: w for w in wishes if w.count}
        self._rooms = {u: n for u, n in rooms.items() if len(u) == UNIT and n > 0}
        self._shares: Shares = {name: Counter() for name in self._wishes}

    def share(self) -> Shares:
        queue = [self._rank(w, 0) for w in self._wishes.values()]
        heapq.heapify(queue)
        while queue:
            name = heapq.heappop(queue)[1].name
            wish = self._wishes[name]
            count = self._shares[name].total()
            if count < wish.count and self._add_node(name):
                heapq.heappush(queue, self._rank(wish, count + 1))
        return self._shares

    def _rank(self, wish: Wish, count: int) -> tuple[float, _Last]:
        held = sum(wish.held.values())
        lacking = 1 - (held + count) / (held + wish.count)
        return -lacking, _Last(wish.tenant)

    def _list_units(self, name: str) -> Iterator[Area]:
        units = self._wishes[name].units
        return (u for u in self._rooms if not units or u in units)

    def _add_node(self, name: str) -> bool:
        """Give one node more to a tenant; return whether that is possible at all."""
        paths: deque[_Step] = deque(_Step(name, u, None) for u in self._list_units(name))
        reached = {step.unit for step in paths}
        while paths:
            step = paths.popleft()
            if self._rooms[step.unit] > 0:
                self._rooms[step.unit] -= 1
                self._take_path(step)
                return True
            for other, units in self._shares.items():
                if units[step.unit] > 0:
                    for unit in self._list_units(other):
                        if unit not in reached:
                            reached.add(unit)
                            paths.append(_Step(other, unit, step))
        return False

    def _take_path(self, step: _Step | None) -> None:
        while step is not None:
            self._shares[step.tenant][step.unit] += 1
            if step.before is not None:
                self._shares[step.tenant][step.before.unit] -= 1
            step = step.before


@dataclass(frozen=True, slots=True)
class _Last:
    """A name that sorts from the end of the alphabet."""

    name: str

    def __lt__(self, other: _Last) -> bool:
        return self.name > other.name
