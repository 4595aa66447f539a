"""Assign certified nodes to tenants: how many to each, and which. Pure.

Tenants are placed together (`placement.py`). A node that is converged or tested at present counts
as one that may be waited for, so that the first nodes of a rack that comes up are not scattered
over all tenants; only certified nodes are assigned.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.node import Placement as NodePlacement
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.planning.tenancy.placement import (
    RACK,
    UNIT,
    Area,
    Placement,
    Places,
    Site,
    Wish,
    place_tenants,
)

# ------------------------------------------------------------------------------
# Divide nodes among tenants when there are fewer than they wish for. Pure.
#
# One node at a time goes to the tenant that lacks the largest part of its wish, so that none is
# starved. Tenants that may stand in some units only are kept possible: a tenant that may stand
# anywhere moves to another unit for them (augmenting paths of a flow from tenants to units).


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


COMING = frozenset({State.CONVERGING, State.VALIDATING})
COMING_MAX_S = 6 * 3600.0  # in one of these states: a longer stay is not waited for

_DIGITS = re.compile(r"(\d+)")


def allocate_nodes(
    nodes: Iterable[Node], tenants: Sequence[Tenant], now: float
) -> tuple[tuple[str, str], ...]:
    """Return the (node, tenant) pairs to assign now, at most as many as each tenant requests.

    Only a tenant with a ready network gets nodes, and only from its scalable units. Existing
    allocations stay. The same input gives the same pairs. now: seconds since 1970.
    """
    unsorted = [n for n in nodes if n.kind is NodeKind.HOST]
    if not any(map(is_unassigned, unsorted)):
        return ()  # the usual case: sorting a fleet takes a second
    owned = Counter(n.tenant for n in unsorted)
    if not any(t.takes_nodes and t.nodes_wanted > owned[t.name] for t in tenants):
        return ()
    hosts = sorted(unsorted, key=sort_by_place)
    ready = [n for n in hosts if is_unassigned(n)]
    if by_hand := _give_picked(hosts, ready, tenants):
        return by_hand  # the next call assigns the others, and sees these as assigned
    wishes = list_wishes(hosts, tenants)
    taken = {name for t in tenants for name in t.picked}
    ready = [n for n in ready if n.id not in taken]
    hosts = [n for n in hosts if n.tenant or n.id not in taken]
    if not any(wish.may_use(find_area(node)) for wish in wishes for node in ready):
        return ()
    site = build_site(hosts, [n for n in hosts if is_coming(n, now)])
    placement = place_tenants(site, wishes)
    if sum(p.total() for p in placement.values()) < sum(w.count for w in wishes):
        placement = _place_shares(site, wishes)
    by_rack = defaultdict(list)
    for node in reversed(ready):
        by_rack[find_area(node)].append(node.id)
    pairs = []
    for wish in sorted(wishes, key=lambda w: w.tenant):
        for rack, count in placement.get(wish.tenant, {}).items():
            racked = by_rack[rack]
            pairs += [(racked.pop(), wish.tenant) for _ in range(min(count, len(racked)))]
    order = {n.id: number for number, n in enumerate(ready)}
    return tuple(sorted(pairs, key=lambda pair: order[pair[0]]))


def _give_picked(
    hosts: Iterable[Node], ready: Iterable[Node], tenants: Sequence[Tenant]
) -> tuple[tuple[str, str], ...]:
    held = Counter(n.tenant for n in hosts)
    lacks = {t.name: t.nodes_wanted - held[t.name] for t in tenants if t.takes_nodes}
    owners = {name: t for t in tenants for name in t.picked if t.name in lacks}
    pairs = []
    for node in ready:
        owner = owners.get(node.id)
        place = node.location
        if owner is None or not owner.may_have(place.pod, place.scalable_unit):
            continue
        if lacks[owner.name] > 0:
            lacks[owner.name] -= 1
            pairs.append((node.id, owner.name))
    return tuple(pairs)


def is_unassigned(node: Node) -> bool:
    """Return whether a host is certified for a tenant that it does not have yet."""
    return node.kind is NodeKind.HOST and node.state is State.CERTIFIED and not node.tenant


def find_area(node: Node) -> Area:
    """Return the rack of a node within its rail group, scalable unit and pod."""
    place = node.location
    leaves = tuple(sorted({p.switch for p in node.ports if p.rail >= 0}))
    return (place.pod, place.scalable_unit, leaves, place.rack)


def sort_by_place(node: Node) -> tuple[object, ...]:
    place = node.location
    parts = [(int(p), "") if p.isdigit() else (-1, p) for p in _DIGITS.split(place.rack)]
    return (place.site, place.pod, place.scalable_unit, parts, place.index, node.id)


def is_coming(node: Node, now: float) -> bool:
    """Return whether a node without a tenant is on its way to a certificate."""
    return (
        node.state in COMING
        and not node.tenant
        and not node.blockers
        and now - node.entered_at <= COMING_MAX_S
    )


def list_wishes(hosts: Iterable[Node], tenants: Sequence[Tenant]) -> list[Wish]:
    """Return the nodes that tenants with a ready network lack, with the places that they have.

    A node that a person picked for a tenant, and that is not its own yet, counts as on its way.
    """
    held: dict[str, Places] = defaultdict(Places)
    owners = {name: t.name for t in tenants for name in t.picked}
    coming: Counter[str] = Counter()
    for node in hosts:
        held[node.tenant][find_area(node)] += 1
        if not node.tenant and node.state is not State.RETIRED and node.id in owners:
            coming[owners[node.id]] += 1
    return [
        Wish(
            tenant=t.name,
            count=t.nodes_wanted - held[t.name].total() - coming[t.name],
            held=held[t.name],
            units=frozenset(t.units),
            is_spread=t.spread,
        )
        for t in tenants
        if t.takes_nodes and t.nodes_wanted > held[t.name].total() + coming[t.name]
    ]


def build_site(hosts: Sequence[Node], coming: Iterable[Node]) -> Site:
    """Return the places of a site; `coming`: nodes that may be waited for."""
    free = (n for n in hosts if n.state is State.CERTIFIED and not n.tenant)
    return Site(
        Counter(map(find_area, free)),
        Counter(map(find_area, coming)),
        Counter(map(find_area, hosts)),
    )


def _place_shares(site: Site, wishes: Sequence[Wish]) -> Placement:
    shares = share_nodes(wishes, site.free)
    smaller = [
        Wish(w.tenant, shares[w.tenant].total(), w.held, w.units, w.is_spread)
        for w in wishes
        if shares[w.tenant].total()
    ]
    placement = place_tenants(site, smaller)
    if sum(p.total() for p in placement.values()) == sum(w.count for w in smaller):
        return placement
    # units that only some may use are short: each share is placed in the unit where it has room
    parts = [
        Wish(f"{w.tenant}\n{unit!r}", count, w.held, frozenset({unit}), w.is_spread)
        for w in smaller
        for unit, count in shares[w.tenant].items()
        if len(unit) == UNIT and count
    ]
    joined: Placement = defaultdict(Places)
    for name, places in place_tenants(site, parts).items():
        joined[name.partition("\n")[0]].update(places)
    return joined


# ------------------------------------------------------------------------------
# Choose the nodes that leave a tenant which shrinks. Pure.
#
# The smallest remainders are emptied first: whole units, then whole racks of the unit in which the
# tenant has the fewest nodes. What stays is in as few places as possible, and what is given back is
# as whole as possible. A tenant that is spread loses nodes where it has the most.


def choose_departures(
    nodes: Sequence[Node], count: int, *, is_spread: bool = False
) -> tuple[Node, ...]:
    """Return `count` of a tenant's nodes, or all if it has fewer.

    Nodes that are not in its network yet go first: nothing has to be drained or erased. Those that
    cannot leave now, for instance because their release is under way, are the last resort. nodes:
    in the order of their places; of several that are equal, the last leave.
    """
    unused = [n for n in nodes if n.state is State.CERTIFIED and not is_being_released(n)]
    released = [n for n in nodes if n.state is State.RELEASED]
    others = [n for n in nodes if n not in unused and n not in released]
    choose = _choose_apart if is_spread else _choose_remainders
    chosen: list[Node] = []
    for group in (unused, released, others):
        chosen += choose(group, min(count - len(chosen), len(group)), 0)
    return tuple(chosen)


def is_being_released(node: Node) -> bool:
    """Return whether the node's ports are on their way into its tenant's network."""
    return node.state is State.CERTIFIED and node.placement is NodePlacement.MIXED


def _choose_remainders(nodes: Sequence[Node], count: int, level: int) -> list[Node]:
    if count == 0 or level == RACK:
        return list(nodes[len(nodes) - count :])
    chosen: list[Node] = []
    for part in sorted(_divide(nodes, level), key=len):
        leaving = min(count - len(chosen), len(part))
        chosen += _choose_remainders(part, leaving, level + 1)
    return chosen


def _choose_apart(nodes: Sequence[Node], count: int, level: int) -> list[Node]:
    chosen: list[Node] = []
    for _ in range(count):
        part = [n for n in nodes if n not in chosen]
        for depth in range(level, RACK):
            part = max(_divide(part, depth), key=len)
        chosen.append(part[-1])
    return chosen


def _divide(nodes: Sequence[Node], level: int) -> list[list[Node]]:
    """Return the nodes by area of the next level, the last area first."""
    parts: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        parts[find_area(node)[: level + 1]].append(node)
    return list(parts.values())[::-1]


# ------------------------------------------------------------------------------
# Quotas of tenants compared with their use. Pure.
#
# A quota is compared with the requested numbers, not with those reached so far, so that a request
# that can never be fulfilled is refused at once.


GPUS_PER_NODE = 8  # HGX, eight rails: one GPU each


class Usage(Record):
    """The resources that a tenant has at present, and those it waits for."""

    nodes: int  # allocated to it
    wanted: int
    gpus: int  # of the wanted nodes
    prefixes: int  # that it exchanges with the outside, each counted once


def count_usage(tenant: Tenant, nodes: Iterable[Node], gpus_per_node: int = GPUS_PER_NODE) -> Usage:
    held = sum(n.tenant == tenant.name for n in nodes)
    return Usage(
        nodes=held,
        wanted=tenant.nodes_wanted,
        gpus=max(held, tenant.nodes_wanted) * gpus_per_node,
        prefixes=len({p for o in tenant.outside for p in (*o.accepts, *o.sends)}),
    )


def find_exceeded_quotas(tenant: Tenant, used: Usage) -> tuple[Blocker, ...]:
    quota = tenant.quota
    return tuple(
        Blocker(
            reason=Reason.QUOTA,
            subject=tenant.name,
            detail=f"{number} {unit} are wanted, and it may have {limit}",
            unblock="Ask for less, or raise its quota.",
        )
        for unit, number, limit in (
            ("nodes", max(used.nodes, used.wanted), quota.nodes),
            ("GPUs", used.gpus, quota.gpus),
            ("outside prefixes", used.prefixes, quota.prefixes),
        )
        if limit is not None and number > limit
    )
