"""Propose exchanges of nodes after which tenants stand in fewer units and racks. Pure.

Only free certified nodes are offered. A tenant keeps its number of nodes: it takes some free ones
near its others, and gives back those of a small remainder. Nothing is moved by itself, because a
node in service can only be exchanged by its tenant: a proposal says how many nodes of it are in
service, and how much it saves by the costs of `placement.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.tenant import Tenant
from provisioner.planning.tenancy.allocation import build_site, find_area, sort_by_place
from provisioner.planning.tenancy.placement import (
    RACK,
    UNIT,
    Area,
    Places,
    Site,
    Wish,
    cost_placement,
    place_tenants,
)

SAVED_MIN = 5  # for each exchanged node: as much as standing in a rack less


class Exchange(Record):
    """Nodes that a tenant gives back, and the free ones that it takes instead."""

    tenant: str
    gives: tuple[str, ...]
    takes: tuple[str, ...]
    saves: int  # in the costs of a placement, without unit
    in_service: int  # of the nodes that it gives: their tenant has to agree


def propose_exchanges(nodes: Sequence[Node], tenants: Sequence[Tenant]) -> tuple[Exchange, ...]:
    """Return exchanges that can all be done, those that save the most for each node first."""
    own = (n for n in nodes if n.kind is NodeKind.HOST and n.origin is not Origin.DETACHED)
    hosts = sorted(own, key=sort_by_place)
    proposals = []
    remaining = {t.name: t for t in tenants if not t.spread}
    while remaining:
        offers = [o for t in remaining.values() if (o := _find_best(hosts, t)) is not None]
        if not offers:
            break
        best = max(offers, key=lambda o: (o.saves / len(o.gives), o.tenant))
        proposals.append(best)
        del remaining[best.tenant]
        # what was taken is offered to no other; what was given has to be erased first
        hosts = [n for n in hosts if n.id not in best.takes]
    return tuple(proposals)


def _find_best(hosts: Sequence[Node], tenant: Tenant) -> Exchange | None:
    held = [n for n in hosts if n.tenant == tenant.name]
    offers = [
        offer
        for remainder in _list_remainders(held)
        if (offer := _exchange(hosts, held, remainder, tenant)) is not None
        and offer.saves >= SAVED_MIN * len(remainder)
    ]
    return max(offers, key=lambda o: (o.saves / len(o.gives), o.saves), default=None)


def _list_remainders(held: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield the nodes of each unit and each rack in which the tenant has not all its nodes."""
    for level in (UNIT, RACK):
        parts: dict[Area, list[Node]] = defaultdict(list)
        for node in held:
            parts[find_area(node)[:level]].append(node)
        if len(parts) > 1:
            yield from parts.values()


def _exchange(
    hosts: Sequence[Node], held: Sequence[Node], remainder: Sequence[Node], tenant: Tenant
) -> Exchange | None:
    staying = Places(find_area(n) for n in held if n not in remainder)
    wish = Wish(tenant.name, len(remainder), staying, frozenset(tenant.units))
    site = build_site(hosts, ())
    places = place_tenants(site, [wish])[tenant.name]
    if places.total() < len(remainder):
        return None
    now = Places(find_area(n) for n in remainder)
    free = defaultdict(list)
    for node in hosts:
        if node.state is State.CERTIFIED and not node.tenant:
            free[find_area(node)].append(node.id)
    return Exchange(
        tenant=tenant.name,
        gives=tuple(n.id for n in remainder),
        takes=tuple(name for rack, count in places.items() for name in free[rack][:count]),
        saves=_cost(site, wish, now) - cost_placement(site, [wish], {tenant.name: places}),
        in_service=sum(n.state is State.RELEASED for n in remainder),
    )


def _cost(site: Site, wish: Wish, places: Places) -> int:
    """Return the cost of standing where the tenant stands, none of which is to be waited for."""
    nothing_free: Counter[Area] = Counter()
    return cost_placement(Site(places, nothing_free, site.total), [wish], {wish.tenant: places})
