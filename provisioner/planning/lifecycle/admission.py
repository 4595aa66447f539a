"""Decide whether a disruptive step may begin now, from limits on simultaneous outages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.plan import Disruption, Step
from provisioner.planning.lifecycle.switch_drain import find_rail_conflicts

_CARRYING = frozenset({Placement.CUSTOMER, Placement.MIXED})  # includes hosts being drained
# states of a switch that is not in service, or is leaving it
UPGRADING = frozenset(
    {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.DRAINING}
)


def tier_of(node: Node) -> str:
    """Return the tier of a switch, the first part of its planned name ("leaf", "spine")."""
    return node.id.split("-", 1)[0]


def switch_limit(count: int, percent: int) -> int:
    """Return how many of `count` switches may be down: rounded down, but at least one."""
    return max(1, count * percent // 100)


def find_admission_reasons(
    node: Node,
    step: Step,
    nodes: Sequence[Node],
    disrupted: Mapping[str, Disruption],
    switches_down_percent: int,
) -> tuple[str, ...]:
    """Return the reasons why `step` on `node` must wait; () if it may begin.

    `disrupted` maps the nodes with a disruption under way to its kind. A switch goes down only
    while no host on it is being validated or is in a customer's VRF, and only within the limit of
    its tier. Two leaves that carry the same rail or plane never go down together.
    """
    if step.disruption is not Disruption.SWITCH or node.kind is not NodeKind.SWITCH:
        return ()
    peers = [n for n in nodes if n.kind is NodeKind.SWITCH and tier_of(n) == tier_of(node)]
    down = [n.id for n in peers if n.id != node.id and n.id in disrupted]
    reasons = []
    limit = switch_limit(len(peers), switches_down_percent)
    if len(down) >= limit:
        reasons.append(
            f"{len(down)} of {len(peers)} {tier_of(node)} switches are down, limit {limit}"
        )
    reasons += find_rail_conflicts(node, nodes, down)
    reasons += _find_plane_reasons(node, peers, down, switches_down_percent)
    using = [
        n.id
        for n in nodes
        if (n.state in (State.VALIDATING, State.RELEASED) or n.placement in _CARRYING)
        and any(p.switch == node.id for p in n.ports)
    ]
    if using:
        reasons.append(f"{using[0]} and {len(using) - 1} more use this switch now")
    return tuple(reasons)


def _find_plane_reasons(
    node: Node, peers: Sequence[Node], down: Sequence[str], percent: int
) -> tuple[str, ...]:
    """Apply the limit of the tier to each pod and plane too, so that no plane is interrupted.

    For leaves, `together` already forbids two of one rail or plane.
    """
    if tier_of(node) == "leaf":
        return ()
    group = _group(node.id)
    count = sum(_group(p.id) == group for p in peers)
    mine = [name for name in down if _group(name) == group]
    limit = switch_limit(count, percent)
    if count == len(peers) or len(mine) < limit:
        return ()
    return (f"{len(mine)} of {count} {group} switches of one plane are down, limit {limit}",)


def _group(name: str) -> str:
    """Return tier, pod and plane of a spine: its planned name without its number."""
    return name.rpartition("-")[0]


def find_busy_neighbours(node: Node, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """Return the switches on this host's cables that are out of service, sorted.

    A switch of an InfiniBand fabric need not be a node: UFM upgrades it, not the daemon.
    """
    return tuple(sorted({p.switch for p in node.ports if not _in_service(nodes.get(p.switch), p)}))


def _in_service(switch: Node | None, port: Port) -> bool:
    return bool(port.guid) if switch is None else switch.state not in UPGRADING
