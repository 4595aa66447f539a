"""Keep certified hosts free as hot spares, and choose the one that replaces a faulty host. Pure.

Spares are counted for each unit: the hosts on the same leaves, rail by rail. A spare takes no
other way into a tenant's network than every node: it is allocated, and released through the gate.
The faulty host keeps its place with the tenant until the spare is proved to serve, so that a
tenant never has fewer nodes on paper than it has in fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

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
