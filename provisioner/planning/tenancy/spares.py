"""Keep certified hosts free as hot spares, and choose the one that replaces a faulty host. Pure.

Spares are counted for each unit: the hosts on the same leaves, rail by rail. A spare takes no
other way into a tenant's network than every node: it is allocated, and released through the gate.
The faulty host keeps its place with the tenant until the spare is proved to serve, so that a
tenant never has fewer nodes on paper than it has in fact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from provisioner.model.base import Record
from provisioner.model.case import Case, Service, Stage
from provisioner.model.case import Origin as CaseOrigin
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.node import Origin as NodeOrigin
from provisioner.model.tenant import Tenant
from provisioner.planning.tenancy.allocation import build_site, find_area, sort_by_place
from provisioner.planning.tenancy.placement import (
    RACK,
    RAILS,
    UNIT,
    Area,
    Places,
    Site,
    Wish,
    cost_placement,
    place_tenants,
)

# ------------------------------------------------------------------------------
# Propose exchanges of nodes after which tenants stand in fewer units and racks. Pure.
#
# Only free certified nodes are offered. A tenant keeps its number of nodes: it takes some free ones
# near its others, and gives back those of a small remainder. Nothing is moved by itself, because a
# node in service can only be exchanged by its tenant: a proposal says how many nodes of it are in
# service, and how much it saves by the costs of `placement.py`.


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


# hosts that can stand in for each other: pod, scalable unit, leaves by rail
Unit = tuple[int, int, tuple[tuple[int, str], ...]]
# stages of a case in which its node is on its way back
_OVER = frozenset({Stage.MEASURING, Stage.RETURNING})
# states in which a node neither serves its tenant nor is being taken from it
_SERVING = frozenset({State.RELEASED, State.DRAINING})


def list_reserved(
    nodes: Iterable[Node], per_unit: int, picked: Collection[str] = ()
) -> frozenset[str]:
    """Return the free certified hosts that no tenant gets for growth: the last of each unit.

    picked: nodes that a person chose for a tenant; they are never spares.
    """
    if per_unit == 0:
        return frozenset()
    units: dict[Area, list[Node]] = defaultdict(list)
    for node in nodes:
        if is_free(node) and node.id not in picked:
            units[find_area(node)[:RAILS]].append(node)
    return frozenset(
        n.id for free in units.values() for n in sorted(free, key=sort_by_place)[-per_unit:]
    )


def choose_spare(faulty: Node, nodes: Iterable[Node], taken: Collection[str]) -> Node | None:
    """Return a certified host that can take the place of a faulty one, or None.

    It is on the same leaves by the same rails, and of the same profile and release. taken: nodes
    that are promised to others, or that alerts keep from tenants.
    """
    unit = find_unit(faulty)
    suitable = [
        n
        for n in nodes
        if is_free(n)
        and n.id not in taken
        and (n.profile, n.release) == (faulty.profile, faulty.release)
        and find_unit(n) == unit
    ]
    return max(suitable, key=sort_by_place, default=None)


def needs_stand_in(case: Case, node: Node) -> bool:
    """Return whether the tenant of a case is to get another node for it now.

    One that was chosen comes to its end, even if the node is being tested again meanwhile. Planned
    maintenance takes no spares: whole racks of it would use them up. An adopted node gets none.
    """
    return (
        case.open
        and (case.stage not in _OVER or bool(case.stand_in))
        and case.service is not Service.KEEP
        and case.origin is not CaseOrigin.MAINTENANCE
        and not case.stood_in_at
        and bool(case.tenant)
        and node.tenant == case.tenant
        and node.origin is NodeOrigin.TAKEN_IN
    )


def has_failed(case: Case, spare: Node | None) -> bool:
    """Return whether the chosen spare can no longer take the place: another one is chosen."""
    if spare is None or spare.is_parked:
        return True
    if spare.tenant == case.tenant:
        return spare.state not in (State.CERTIFIED, State.RELEASED)
    return not is_free(spare)


def may_withdraw(case: Case, spare: Node) -> bool:
    """Return whether a spare can be taken from the tenant again: none of its ports has moved."""
    return (
        spare.tenant == case.tenant
        and spare.state not in _SERVING
        and spare.placement is Placement.MAINTENANCE
    )


def may_leave(case: Case, node: Node) -> bool:
    """Return whether a replaced node gives up its place with the tenant now."""
    return (
        case.stood_in_at > 0.0
        and bool(node.tenant)
        and node.tenant == case.tenant
        and node.state not in _SERVING
    )


def is_free(node: Node) -> bool:
    """Return whether a host is certified and has neither a tenant nor anything against it."""
    return (
        node.state is State.CERTIFIED
        and node.kind is NodeKind.HOST
        and node.origin is NodeOrigin.TAKEN_IN
        and not node.tenant
        and not node.blockers
        and node.placement is Placement.MAINTENANCE
    )


def find_unit(node: Node) -> Unit:
    """Return the pod, the scalable unit, and the leaves of a host by rail."""
    rails = sorted((p.rail, p.switch) for p in node.ports if p.rail >= 0)
    return (node.location.pod, node.location.scalable_unit, tuple(rails))


# ------------------------------------------------------------------------------
# The spares of each unit, kept from one look at the fleet to the next. Pure.
#
# The rule is `spares.list_reserved`'s. A unit is judged anew only when a host of it became another
# one or was barred: thousands of spares rest, and to sort them costs a tenth of a second.


class SpareReserve:
    """The free hosts that no tenant gets for growth; `per_unit` of them on the same leaves."""

    def __init__(self, per_unit: int) -> None:
        self._per_unit = per_unit
        self._units: dict[Area, dict[str, Node]] = {}  # the free hosts of each
        self._places: dict[str, Area] = {}  # of each free host
        self._reserved: dict[Area, frozenset[str]] = {}
        self._names: set[str] = set()
        self._barred: frozenset[str] = frozenset()
        self._dirty: set[Area] = set()

    def put(self, node: Node) -> None:
        """Take in a node that is new or has another row."""
        self.drop(node.id)
        if self._per_unit and is_free(node):
            unit = find_area(node)[:RAILS]
            self._places[node.id] = unit
            self._units.setdefault(unit, {})[node.id] = node
            self._dirty.add(unit)

    def drop(self, name: str) -> None:
        """Drop a node that is there no more."""
        unit = self._places.pop(name, None)
        if unit is not None:
            del self._units[unit][name]
            self._dirty.add(unit)

    def list_names(self, barred: frozenset[str]) -> Set[str]:
        """Return the reserved hosts; `barred` are no spares: alerts hold them, or a person picked
        them for a tenant.
        """
        changed = barred ^ self._barred
        self._barred = barred
        self._dirty |= {self._places[name] for name in changed if name in self._places}
        for unit in self._dirty:  # all of them first: a host may have gone from one to another
            self._names -= self._reserved.pop(unit, frozenset())
        for unit in self._dirty:
            hosts = self._units[unit]
            if not hosts:
                del self._units[unit]
                continue
            reserved = list_reserved(hosts.values(), self._per_unit, barred)
            self._reserved[unit] = reserved
            self._names |= reserved
        self._dirty.clear()
        return self._names
