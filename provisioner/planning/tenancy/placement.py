"""Choose the places of the nodes that tenants get, together for all tenants. Pure.

A site is a tree: pods have scalable units, units have rail groups (nodes on the same leaves), and
rail groups have racks. Traffic of one tenant between two places of a level costs what the level
costs, so a placement is judged by a stated cost (`cost_placement`):

- each pod, unit, rail group and rack that a tenant stands in (`TOUCHED`);
- each unit and rack that was wholly free and is left partly free (`BROKEN`), because a whole one is
  worth more to the next tenant;
- each node that is not certified yet (`WAIT`): whole units are worth a wait, single racks are not;
- for a tenant that wishes to be spread: its largest number of nodes in one unit and in one rack
  (`CROWDED`), instead of the places that it stands in.

The search fills the tree from the top (the largest area whole until the rest fits into one, then
the smallest that takes it), tries orders of the tenants, and then repacks pairs and triples of
tenants while that saves anything. `make bench NAME=placement` compares it with an exact solver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import factorial

POD, UNIT, RAILS, RACK = range(1, 5)  # lengths of the key of an area
TOUCHED = {POD: 500, UNIT: 100, RAILS: 25, RACK: 5}
BROKEN = {UNIT: 20, RACK: 1}
CROWDED = {UNIT: 100, RACK: 5}
WAIT = 5  # as much as a rack more

# Packings of one tenant into the areas of a pod that one search may try: at 65,536 nodes some
# tenths of a second, and enough for every order of six tenants.
PACKINGS_MAX = 800
PERMUTED_MAX = 5  # tenants whose orders are all tried

Area = tuple[object, ...]  # (pod,), (pod, unit), (pod, unit, leaves), (pod, unit, leaves, rack)
Places = Counter[Area]  # number of nodes by rack


@dataclass(frozen=True, slots=True)
class Wish:
    """The nodes that one tenant is to get now, and the racks in which it stands already."""

    tenant: str
    count: int
    held: Mapping[Area, int] = field(default_factory=dict)
    units: frozenset[Area] = frozenset()  # that it may stand in; empty: anywhere
    is_spread: bool = False

    def may_use(self, area: Area) -> bool:
        """Return whether its nodes may stand in this area, or in a part of it."""
        return (
            not self.units
            or area[:UNIT] in self.units
            or (len(area) == POD and any(u[:POD] == area for u in self.units))
        )


class Site:
    """The free places of a site as a tree, with the nodes that are not certified yet apart."""

    def __init__(
        self, ready: Mapping[Area, int], coming: Mapping[Area, int], total: Mapping[Area, int]
    ) -> None:
        """Take numbers of nodes by rack: certified and free, on their way there, and of all.

        Areas that cost the same are used in the order of `total`.
        """
        self.ready = _sum_up(ready)
        self.free = self.ready + _sum_up(coming)
        self.total = _sum_up(total)
        self.parts: dict[Area, list[Area]] = {}
        for area in self.free:
            self.parts.setdefault(area[:-1], []).append(area)
        order = {area: number for number, area in enumerate(self.total)}
        for parts in self.parts.values():
            parts.sort(key=order.__getitem__)
        self.whole = frozenset(
            a for a in self.free if len(a) in BROKEN and self.free[a] == self.total[a]
        )


Placement = dict[str, Places]


def cost_placement(site: Site, wishes: Sequence[Wish], placement: Mapping[str, Places]) -> int:
    """Return the cost of a placement as the module's text states it, without unit."""
    used: Counter[Area] = Counter()
    cost = 0
    for wish in wishes:
        places = placement.get(wish.tenant, Places())
        used.update(places)
        standing = _sum_up(Counter(wish.held) + places)
        cost += _cost_crowding(standing) if wish.is_spread else _cost_touches(standing)
    sums = _sum_up(used)
    cost += sum(BROKEN[len(a)] for a in site.whole if 0 < sums[a] < site.free[a])
    return cost + sum(WAIT * max(0, n - site.ready[rack]) for rack, n in used.items())


def place_tenants(site: Site, wishes: Sequence[Wish]) -> Placement:
    """Return the racks of the new nodes of each tenant, at low cost, with nothing twice.

    A tenant that does not find room for all its nodes gets as many as there are; the caller has
    divided what is short before (`share_nodes`).
    """
    return _Search(site, wishes).search()


class _Search:
    def __init__(self, site: Site, wishes: Sequence[Wish]) -> None:
        self._site = site
        self._wishes = sorted((w for w in wishes if w.count), key=lambda w: (-w.count, w.tenant))
        self._packings = 0

    def search(self) -> Placement:
        best = {}
        lowest = None
        for order in self._list_orders():
            for now in (False, True):
                placement = self._pack(order, {}, now=now)
                score = self._score(placement)
                if lowest is None or score < lowest:
                    best = placement
                    lowest = score
            if self._packings > PACKINGS_MAX // 2:
                break
        return self._improve(best, lowest) if lowest is not None else {}

    def _score(self, placement: Placement) -> tuple[int, int]:
        """Return the number of nodes without a place, then the cost."""
        placed = sum(p.total() for p in placement.values())
        missing = sum(w.count for w in self._wishes) - placed
        return missing, cost_placement(self._site, self._wishes, placement)

    def _list_orders(self) -> Iterator[Sequence[Wish]]:
        wishes = self._wishes
        yield sorted(wishes, key=lambda w: (w.is_spread, not w.units, -w.count, w.tenant))
        yield sorted(wishes, key=lambda w: (w.is_spread, not w.units, not w.held, w.count))
        if len(wishes) <= PERMUTED_MAX:
            yield from permutations(wishes)
        else:
            yield wishes
            yield wishes[::-1]

    def _improve(self, best: Placement, lowest: tuple[int, int]) -> Placement:
        size = 2
        while size <= min(3, len(self._wishes)) and self._packings < PACKINGS_MAX:
            better = self._repack(best, lowest, size)
            if better is None:
                size += 1
            else:
                best, lowest = better
                size = 2
        return best

    def _repack(
        self, best: Placement, lowest: tuple[int, int], size: int
    ) -> tuple[Placement, tuple[int, int]] | None:
        """Return the first better placement in which only some tenants are packed anew."""
        for group in combinations(self._wishes, size):
            rest = {w.tenant: best[w.tenant] for w in self._wishes if w not in group}
            for order in permutations(group):
                for now in (False, True):
                    placement = self._pack(order, rest, now=now)
                    score = self._score(placement)
                    if score < lowest:
                        return placement, score
            if self._packings + factorial(size) * size > PACKINGS_MAX:
                return None
        return None

    def _pack(self, order: Iterable[Wish], rest: Placement, *, now: bool) -> Placement:
        """Return `rest` with the tenants of `order` placed after one another.

        now: certified nodes are used first, and others for the remaining numbers.
        """
        used = _sum_up(sum(rest.values(), Places()))
        placement = dict(rest)
        for wish in order:
            self._packings += 1
            places = Places()
            for stock in (self._site.ready, self._site.free) if now else (self._site.free,):
                _Filling(self._site, stock, used, wish, places).fill()
            placement[wish.tenant] = places
        return placement


@dataclass(slots=True)
class _Filling:
    """One tenant being placed; `used` and `places` grow."""

    site: Site
    stock: Counter[Area]
    used: Counter[Area]
    wish: Wish
    places: Places
    standing: Counter[Area] = field(init=False)

    def fill(self) -> None:
        self.standing = _sum_up(Counter(self.wish.held) + self.places)
        missing = self.wish.count - self.places.total()
        if self.wish.is_spread:
            while missing > 0 and self._add_apart():
                missing -= 1
        else:
            for length in (RACK, RAILS, UNIT, POD):  # first where nothing new is touched
                areas = [a for a, n in self.standing.items() if n and len(a) == length]
                missing = self._add_among(areas, missing)
            self._add_among(self.site.parts.get((), ()), missing)

    def _room(self, area: Area) -> int:
        if len(area) == POD and self.wish.units:
            return sum(self._room(u) for u in self.site.parts[area] if self.wish.may_use(u))
        return max(0, self.stock[area] - self.used[area])

    def _add_among(self, areas: Iterable[Area], count: int) -> int:
        """Place up to `count` nodes in few of the areas; return how many are left over."""
        rooms = {a: r for a in areas if self.wish.may_use(a) and (r := self._room(a)) > 0}
        while count > 0 and rooms:
            area = self._choose(rooms, count)
            taken = min(count, rooms.pop(area))
            if len(area) == RACK:
                self._put(area, taken)
            else:
                self._add_among(self.site.parts[area], taken)
            count -= taken
        return count

    def _choose(self, rooms: Mapping[Area, int], count: int) -> Area:
        """Return the smallest part that takes all, else the largest."""
        enough = [p for p in rooms if rooms[p] >= count]
        if enough:
            return min(enough, key=lambda p: (rooms[p], p in self.site.whole))
        return max(rooms, key=lambda p: (rooms[p], p in self.site.whole))

    def _add_apart(self) -> bool:
        """Place one node where the fewest of the tenant stand; return whether there was room."""
        area: Area = ()
        while len(area) < RACK:
            parts = [
                p
                for p in self.site.parts.get(area, ())
                if self.wish.may_use(p) and self._room(p) > 0
            ]
            if not parts:
                return False
            area = min(parts, key=lambda p: (self.standing[p], -self._room(p)))
        self._put(area, 1)
        return True

    def _put(self, rack: Area, count: int) -> None:
        if count:
            self.places[rack] += count
            for length in range(POD, RACK + 1):
                self.used[rack[:length]] += count
                self.standing[rack[:length]] += count


def _cost_touches(standing: Mapping[Area, int]) -> int:
    return sum(TOUCHED[len(area)] for area, count in standing.items() if count)


def _cost_crowding(standing: Mapping[Area, int]) -> int:
    most: Counter[int] = Counter()
    for area, count in standing.items():
        most[len(area)] = max(most[len(area)], count)
    return sum(cost * most[level] for level, cost in CROWDED.items())


def _sum_up(racks: Mapping[Area, int]) -> Counter[Area]:
    sums: Counter[Area] = Counter()
    for rack, count in racks.items():
        for length in range(POD, RACK + 1):
            sums[rack[:length]] += count
    return sums
