"""Choose, among the nodes that may begin, those that have room under the limits. Pure.

Idle hosts come first, then tenants' hosts. Among them those come first whose rack, leaf, unit or
tenant has the most work left for its limit, because the last of them ends the campaign (longest
processing time first, Graham 1969). Two switches of one rail or plane are never down together. A
leaf that takes tenants' hosts out of service goes alone: its hosts count in the limits of tenants
and of the whole fleet. Limits of racks, leaves and scalable units do not count them, because a leaf
always takes all hosts below it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from provisioner.model.campaign import Admit, CampaignNode, Hold, LeafHosts
from provisioner.model.node import NodeKind
from provisioner.planning.campaigns.limits import (
    UNLIMITED,
    Forest,
    GroupedNodes,
    count_used,
    host_groups,
    switch_groups,
)
from provisioner.planning.campaigns.rollout_terms import Situation, Standing

# ------------------------------------------------------------------------------
# Find the largest set of nodes that fits two families of nested groups. Pure.
#
# Every node takes one place in each group of its two paths: its location (rack in scalable unit in
# fleet) and its owner (or its rails). The largest such set is a flow of units through both trees.
# Nodes are first taken in the given order; where that ends early, augmenting paths find the others
# (Ford and Fulkerson, 1956). Such a path never reduces the number in a group of the second family,
# so that nodes added first (idle ones) keep their number.


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


_BACK = "It begins when another one is back in service."
_NEXT = Hold(why="others begin first in this turn", unblock="It follows in the next turn.")


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes that begin, and the holds of the other ready nodes."""

    admit: tuple[Admit, ...] = ()
    held: Mapping[str, Hold] = field(default_factory=dict)
    again: bool = False  # the next turn can admit more, with nothing else changed

    def with_other(self, other: Choice) -> Choice:
        """Return this choice, with the nodes of the other kind postponed to the next turn."""
        put_off = {a.node: _NEXT for a in other.admit}
        held = {**other.held, **put_off, **self.held}
        return replace(self, held=held, again=self.again or bool(put_off))


@dataclass(slots=True)
class Floor:
    """One kind of nodes in its two families of groups, with the counts out of service."""

    nodes: Sequence[CampaignNode]
    places: Forest
    owners: Forest
    in_places: list[int]
    in_owners: list[int]
    gone: frozenset[int] = frozenset()  # nodes out of service, and hosts below leaves that are
    flat: Floor | None = None  # with crossing domains as they are, if there are any
    is_flat: bool = False
    numbers: dict[str, int] = field(default_factory=dict)  # by name, once somebody asks

    def list_numbers(self, names: Iterable[str]) -> list[int]:
        """Return those of the names that are of this floor, by their numbers."""
        if not self.numbers:
            self.numbers.update((node.name, number) for number, node in enumerate(self.nodes))
        return sorted({self.numbers[name] for name in names if name in self.numbers})

    def create_packing(self) -> Packing:
        """Return an empty packing of these nodes."""
        return Packing(
            self.places, self.owners, self.in_places, self.in_owners, are_crossing=self.is_flat
        )

    def find_full_group(self, node: int, packing: Packing) -> Hold:
        """Return a hold for the innermost group of a node that has no room left."""
        families = (
            (self.places, packing.room_places, self.places.paths[node]),
            (self.owners, packing.room_owners, self.owners.paths[node]),
        )
        for trees, room, path in families:
            for group in path:
                if room[group] <= 0:
                    label = trees.groups[group].label
                    limit = trees.groups[group].limit
                    if limit == 0:
                        why = f"{label}: no node may be out of service"
                        return Hold(why=why, unblock="Raise that limit in the policy.")
                    out = f"{limit - room[group]} out of service, and at most {limit} may be"
                    return Hold(why=f"{label}: {out}", unblock=_BACK)
        return _NEXT


def group_nodes(here: Situation, kind: NodeKind) -> GroupedNodes:
    """Return the hosts or the switches in their groups; computed once for a situation."""
    if kind not in here.groups:
        nodes = [n for n in here.facts if n.kind is kind]
        find_groups = host_groups if kind is NodeKind.HOST else switch_groups
        here.groups[kind] = GroupedNodes(nodes, *find_groups(nodes, here.campaign.policy))
    return here.groups[kind]


def host_floor(here: Situation) -> Floor:
    """Return the hosts. Tenants' hosts below leaves under upgrade count as out of service."""
    policy = here.campaign.policy
    grouped = group_nodes(here, NodeKind.HOST)
    hosts = grouped.nodes
    out = {i for i, n in enumerate(hosts) if not n.in_service or n.name in here.under_way}
    drained: list[int] = []
    if policy.leaf_hosts is LeafHosts.DRAIN:
        down = [leaf for leaf in here.under_way if leaf in here.below]
        below = {h.name for leaf in down for h in here.below[leaf] if h.tenant}
        drained = [i for i, n in enumerate(hosts) if n.name in below and i not in out]
    return build_floor(hosts, grouped.places, grouped.owners, out, drained)


def build_floor(
    nodes: Sequence[CampaignNode],
    places: Forest,
    owners: Forest,
    out: Collection[int],
    drained: Collection[int] = (),
) -> Floor:
    """Return the floor with the nodes `out` of service.

    The `drained` hosts below leaves count only in the fleet and for their owners.
    """
    gone = frozenset([*out, *drained])
    floor = Floor(nodes, places, owners, count_used(places, out), count_used(owners, out), gone)
    for number in drained:
        floor.in_places[places.paths[number][-1]] += 1
        for group in owners.paths[number]:
            floor.in_owners[group] += 1
    if places.flat or owners.flat:
        floor.flat = build_floor(nodes, places.flat or places, owners.flat or owners, out, drained)
        floor.flat.is_flat = True
    return floor


def switch_floor(here: Situation) -> Floor:
    grouped = group_nodes(here, NodeKind.SWITCH)
    out = [i for i, n in enumerate(grouped.nodes) if not n.in_service or n.name in here.under_way]
    return build_floor(grouped.nodes, grouped.places, grouped.owners, out)


def choose_hosts(
    floor: Floor, ready: Mapping[str, Standing], work: Mapping[str, int], most: int | None
) -> Choice:
    """Return the hosts that begin.

    `work` is the minutes of work left by node; at most `most` hosts begin.
    """
    if floor.flat is not None:
        flat = choose_hosts(floor.flat, ready, work, most)
        nested = choose_hosts(replace(floor, flat=None), ready, work, most)
        return max(flat, nested, key=lambda choice: len(choice.admit))
    numbers = [i for i, n in enumerate(floor.nodes) if n.name in ready]
    if not numbers:
        return Choice()
    urgency = _urgency(floor, work)
    numbers.sort(key=lambda i: (-urgency[i], -floor.nodes[i].minutes, floor.nodes[i].name))
    # recalled hosts are counted as out of service already: they take no further place
    recalled = [i for i in numbers if floor.nodes[i].recalled][:most]
    serving = [i for i in numbers if not floor.nodes[i].recalled]
    left = None if most is None else most - len(recalled)
    packing = floor.create_packing()
    packing.add((i for i in serving if floor.nodes[i].idle), left)
    packing.add((i for i in serving if not floor.nodes[i].idle), left)
    return _choice(floor, packing, numbers, ready, {}, frozenset(recalled))


def choose_switches(
    here: Situation,
    floor: Floor,
    hosts: Floor,
    ready: Mapping[str, Standing],
    most: int | None,
    *,
    alone: bool,
) -> Choice:
    """Return the switches that begin.

    `alone`: no host begins in this turn, so that a leaf may take hosts out of service.
    """
    if floor.flat is not None:
        choices = [
            choose_switches(here, form, hosts, ready, most, alone=alone)
            for form in (floor.flat, replace(floor, flat=None))
        ]
        return max(choices, key=lambda choice: len(choice.admit))
    numbers = [i for i, n in enumerate(floor.nodes) if n.name in ready]
    numbers.sort(key=lambda i: (-floor.nodes[i].minutes, floor.nodes[i].name))
    recalled = frozenset([i for i in numbers if floor.nodes[i].recalled][:most])
    most = None if most is None else most - len(recalled)
    takes = {i: find_displaced(here, floor.nodes[i]) for i in numbers}
    packing = floor.create_packing()
    packing.add((i for i in numbers if not takes[i] and not floor.nodes[i].recalled), most)
    missing = {names: find_missing_room(hosts, names) for names in set(takes.values())}
    held: dict[str, Hold] = {}
    again = False
    for number in numbers:
        if not takes[number] or floor.nodes[number].recalled:
            continue
        name = floor.nodes[number].name
        hold = missing[takes[number]]
        if hold is not None:
            held[name] = hold
        elif not alone or packing.taken:
            held[name] = _NEXT
            again = True
        else:
            packing.add([number], most)
    choice = _choice(floor, packing, numbers, ready, {i: takes[i] for i in numbers}, recalled)
    return replace(choice, held={**choice.held, **held}, again=again)


def find_displaced(here: Situation, node: CampaignNode) -> tuple[str, ...]:
    """Return the tenants' hosts that leave service while a leaf is down."""
    if here.campaign.policy.leaf_hosts is LeafHosts.KEEP:
        return ()
    below = here.below.get(node.name, ())
    return tuple(h.name for h in below if h.tenant and h.in_service)


def find_missing_room(floor: Floor, names: Iterable[str], *, ever: bool = False) -> Hold | None:
    """Return why these hosts cannot leave service; None if they can.

    `ever`: ignore hosts that are out of service now.
    """
    need: dict[tuple[bool, int], int] = {}
    for number in floor.list_numbers(names):
        if ever or number not in floor.gone:
            root = floor.places.paths[number][-1]
            for key in ((False, root), *((True, g) for g in floor.owners.paths[number])):
                need[key] = need.get(key, 0) + 1
    for (owned, group), count in sorted(need.items()):
        trees, taken = (floor.owners, floor.in_owners) if owned else (floor.places, floor.in_places)
        full_group = trees.groups[group]
        if count + (0 if ever else taken[group]) > full_group.limit:
            label = full_group.label
            limit = full_group.limit
            why = f"{count} hosts below it would leave service, {label} allows {limit}"
            unblock = "Raise that limit, or let hosts go on with a rail less (leaf_hosts: keep)."
            if count <= full_group.limit:
                why = f"{why}, of which {taken[group]} are out"
                unblock = _BACK
            return Hold(why=why, unblock=unblock)
    return None


def _urgency(floor: Floor, work: Mapping[str, int]) -> list[float]:
    """Return for each node its longest queue: minutes of work left divided by the limit."""
    best = [0.0] * len(floor.nodes)
    minutes = [work.get(n.name, 0) for n in floor.nodes]
    for trees in (floor.places, floor.owners):
        total = [0] * len(trees.groups)
        for path, mine in zip(trees.paths, minutes, strict=True):
            if mine:
                for group in path:
                    total[group] += mine
        queue = [
            t / g.limit if 0 < g.limit < UNLIMITED else 0.0
            for t, g in zip(total, trees.groups, strict=True)
        ]
        best = [
            max(b, *(queue[group] for group in path))
            for b, path in zip(best, trees.paths, strict=True)
        ]
    return best


def _choice(
    floor: Floor,
    packing: Packing,
    numbers: Sequence[int],
    ready: Mapping[str, Standing],
    takes: Mapping[int, tuple[str, ...]],
    recalled: frozenset[int] = frozenset(),
) -> Choice:
    taken = packing.taken | recalled
    admit = []
    for number in numbers:
        if number in taken:
            node = floor.nodes[number]
            retire = ready[node.name].retire
            owner = "it is idle" if node.idle else f"tenant {node.tenant} was notified"
            if node.kind is NodeKind.SWITCH:
                owner = "no other switch of its rails is down"
            if retire:
                owner = f"tenant {node.tenant} has put it off for as long as it may"
            reason = f"{owner}, and its places have room"
            if node.recalled:
                reason = "it is out of service with the release that it leaves"
            admit.append(
                Admit(node=node.name, reason=reason, displaces=takes.get(number, ()), retire=retire)
            )
    held: dict[str, Hold] = {}
    shared: dict[tuple[int, int], Hold] = {}
    for number in numbers:
        if number not in taken:
            pair = floor.places.paths[number][0], floor.owners.paths[number][0]
            if pair not in shared:
                shared[pair] = floor.find_full_group(number, packing)
            held[floor.nodes[number].name] = shared[pair]
    return Choice(tuple(admit), held)
