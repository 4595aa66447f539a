"""Assign certified nodes to tenants: how many to each, and which. Pure.

Tenants are placed together (`placement.py`). A node that is converged or tested at present counts
as one that may be waited for, so that the first nodes of a rack that comes up are not scattered
over all tenants; only certified nodes are assigned.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.tenancy.fair_shares import share_nodes
from provisioner.planning.tenancy.placement import (
    UNIT,
    Area,
    Placement,
    Places,
    Site,
    Wish,
    place_tenants,
)

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
    if not any(t.phase is Phase.READY and t.nodes_wanted > owned[t.name] for t in tenants):
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
    """Return the pairs of certified nodes and the tenants for which a person picked them."""
    held = Counter(n.tenant for n in hosts)
    lacks = {t.name: t.nodes_wanted - held[t.name] for t in tenants if t.phase is Phase.READY}
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
    """Return a key that sorts nodes by place, with numbers as numbers."""
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
        if t.phase is Phase.READY and t.nodes_wanted > held[t.name].total() + coming[t.name]
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
    """Return the places of fair shares, of which each has room."""
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
