"""Find the largest set of nodes that fits two families of nested groups. Pure.

Every node takes one place in each group of its two paths: its location (rack in scalable unit in
fleet) and its owner (or its rails). The largest such set is a flow of units through both trees.
Nodes are first taken in the given order; where that ends early, augmenting paths find the others
(Ford and Fulkerson, 1956). Such a path never reduces the number in a group of the second family, so
that nodes added first (idle ones) keep their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from provisioner.planning.campaigns.limits import Forest

_Arc = tuple[str, int, int]  # an action, and its group or its pair of groups
_Side = tuple[bool, int]  # True: a group of owners; its number
_TAKE = "take"
_GIVE = "give"
_IN = "in"
_OUT = "out"
_UNDO_IN = "undo_in"
_UNDO_OUT = "undo_out"


class Packing:
    """The nodes taken so far, and the remaining room. Nodes and groups are numbers."""

    def __init__(
        self,
        places: Forest,
        owners: Forest,
        in_places: Sequence[int],
        in_owners: Sequence[int],
        *,
        are_crossing: bool = False,
    ) -> None:
        """Start with `in_places` and `in_owners` nodes of each group already out of service."""
        self.places = places
        self.owners = owners
        self.are_crossing = are_crossing
        self.room_places = [g.limit - n for g, n in zip(places.groups, in_places, strict=True)]
        self.room_owners = [g.limit - n for g, n in zip(owners.groups, in_owners, strict=True)]
        self.held_places = [0] * len(places.groups)
        self.held_owners = [0] * len(owners.groups)
        # by the innermost groups: nodes of one pair are interchangeable
        self.waiting: dict[tuple[int, int], list[int]] = {}
        self.chosen: dict[tuple[int, int], list[int]] = {}

    @property
    def taken(self) -> frozenset[int]:
        """Return the nodes taken so far."""
        return frozenset(n for nodes in self.chosen.values() for n in nodes)

    def add(self, nodes: Iterable[int], most: int | None = None) -> None:
        """Take as many more as fit, of these nodes and of earlier ones; at most `most` in all.

        Groups that cross allow no exchange of nodes: each is taken in its order, if it fits.
        """
        places = self.places.paths
        owners = self.owners.paths
        count = sum(len(t) for t in self.chosen.values())
        left_over = False
        for node in nodes:
            pair = places[node][0], owners[node][0]
            fits = all(self.room_places[g] > 0 for g in places[node]) and all(
                self.room_owners[g] > 0 for g in owners[node]
            )
            if fits and (most is None or count < most):
                for group in places[node]:
                    self.room_places[group] -= 1
                    self.held_places[group] += 1
                for group in owners[node]:
                    self.room_owners[group] -= 1
                    self.held_owners[group] += 1
                self.chosen.setdefault(pair, []).append(node)
                count += 1
            else:
                self.waiting.setdefault(pair, []).append(node)
                left_over = True
        if self.are_crossing:
            return
        while left_over and (most is None or count < most) and self._augment():
            count += 1

    def _augment(self) -> bool:
        """Take one more node, by a shortest path from the outermost places to outermost owners."""
        if all(self.room_places[r] <= 0 for r in _roots(self.places)):
            return False
        path = self._path()
        for arc in path:
            self._apply(arc)
        return bool(path)

    def _path(self) -> list[_Arc]:
        links = _Links(self)
        came: dict[_Side, tuple[_Side | None, _Arc]] = {}
        todo: deque[_Side] = deque()
        for root in _roots(self.places):
            if self.room_places[root] > 0:
                came[False, root] = None, (_IN, root, 0)
                todo.append((False, root))
        while todo:
            here = todo.popleft()
            for to, arc in links.of_owner(here[1]) if here[0] else links.of_place(here[1]):
                if to is None:
                    return _walk(came, here, arc)
                if to not in came:
                    came[to] = here, arc
                    todo.append(to)
        return []

    def _apply(self, arc: _Arc) -> None:
        action, group, owner = arc
        if action == _TAKE:
            self.chosen.setdefault((group, owner), []).append(self.waiting[group, owner].pop(0))
        elif action == _GIVE:
            self.waiting.setdefault((group, owner), []).insert(0, self.chosen[group, owner].pop())
        elif action in (_IN, _UNDO_IN):
            step = 1 if action == _IN else -1
            self.room_places[group] -= step
            self.held_places[group] += step
        else:
            step = 1 if action == _OUT else -1
            self.room_owners[group] -= step
            self.held_owners[group] += step


class _Links:
    """The arcs by which a path may continue from a group, for one search."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._within_place = _children(packing.places)
        self._within_owner = _children(packing.owners)
        self._waits: dict[int, list[int]] = {}
        self._takes: dict[int, list[int]] = {}
        for (place, owner), nodes in packing.waiting.items():
            if nodes:
                self._waits.setdefault(place, []).append(owner)
        for (place, owner), nodes in packing.chosen.items():
            if nodes:
                self._takes.setdefault(owner, []).append(place)

    def of_place(self, group: int) -> Iterator[tuple[_Side, _Arc]]:
        """Yield arcs to owners of waiting nodes, to inner groups with room, and back outwards."""
        packing = self._packing
        for owner in self._waits.get(group, ()):
            yield (True, owner), (_TAKE, group, owner)
        for child in self._within_place[group]:
            if packing.room_places[child] > 0:
                yield (False, child), (_IN, child, 0)
        parent = packing.places.groups[group].parent
        if parent >= 0 and packing.held_places[group] > 0:
            yield (False, parent), (_UNDO_IN, group, 0)

    def of_owner(self, group: int) -> Iterator[tuple[_Side | None, _Arc]]:
        """Yield arcs outwards if there is room (None: the end), or to replaceable nodes."""
        packing = self._packing
        if packing.room_owners[group] > 0:
            parent = packing.owners.groups[group].parent
            yield (True, parent) if parent >= 0 else None, (_OUT, group, 0)
        for child in self._within_owner[group]:
            if packing.held_owners[child] > 0:
                yield (True, child), (_UNDO_OUT, child, 0)
        for place in self._takes.get(group, ()):
            yield (False, place), (_GIVE, place, group)


def _walk(came: dict[_Side, tuple[_Side | None, _Arc]], end: _Side, last: _Arc) -> list[_Arc]:
    path = [last]
    here = end
    while True:
        source, arc = came[here]
        path.append(arc)
        if source is None:
            return path[::-1]
        here = source


def _roots(trees: Forest) -> list[int]:
    return [number for number, group in enumerate(trees.groups) if group.parent < 0]


def _children(trees: Forest) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in trees.groups]
    for number, group in enumerate(trees.groups):
        if group.parent >= 0:
            children[group.parent].append(number)
    return children
