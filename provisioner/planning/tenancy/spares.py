"""Keep certified hosts free as hot spares, and choose the one that replaces a faulty host. Pure.

Spares are counted for each unit: the hosts on the same leaves, rail by rail. A spare takes no
other way into a tenant's network than every node: it is allocated, and released through the gate.
The faulty host keeps its place with the tenant until the spare is proved to serve, so that a
tenant never has fewer nodes on paper than it has in fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Set

from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.node import Origin as NodeOrigin
from provisioner.planning.tenancy.allocation import find_area, sort_by_place
from provisioner.planning.tenancy.placement import RAILS, Area

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
        and case.origin is not Origin.MAINTENANCE
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
