"""Whether a disruptive step may begin now: limits on what may be out of service at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.plan import Disruption, Step
from provisioner.planning.lifecycle.switch_drain import together

_CARRYING = frozenset({Placement.CUSTOMER, Placement.MIXED})  # a host on its way out, too
# of a switch: not in service, or on its way out of it
UPGRADING = frozenset(
    {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.DRAINING}
)


def tier(node: Node) -> str:
    """The tier of a switch: leaves have host ports, spines have none (names as planned)."""
    return node.id.split("-", 1)[0]


def switch_limit(count: int, percent: int) -> int:
    """How many of `count` switches may be down: rounded down, but at least one."""
    return max(1, count * percent // 100)


def admit(
    node: Node,
    step: Step,
    nodes: Sequence[Node],
    disrupted: Mapping[str, Disruption],
    switches_down_percent: int,
) -> tuple[str, ...]:
    """Why `step` on `node` must wait; empty: it may begin.

    `disrupted` is what is being disrupted now, by node. A switch goes down only while no host on
    it is being validated or in a customer's VRF, never more of its tier than the limit, and never
    two leaves that carry the same rail or plane.
    """
    if step.disruption is not Disruption.SWITCH or node.kind is not NodeKind.SWITCH:
        return ()
    peers = [n for n in nodes if n.kind is NodeKind.SWITCH and tier(n) == tier(node)]
    down = [n.id for n in peers if n.id != node.id and n.id in disrupted]
    reasons = []
    limit = switch_limit(len(peers), switches_down_percent)
    if len(down) >= limit:
        reasons.append(f"{len(down)} of {len(peers)} {tier(node)} switches are down, limit {limit}")
    reasons += together(node, nodes, down)
    reasons += _of_one_plane(node, peers, down, switches_down_percent)
    using = [
        n.id
        for n in nodes
        if (n.state in (State.VALIDATING, State.RELEASED) or n.placement in _CARRYING)
        and any(p.switch == node.id for p in n.ports)
    ]
    if using:
        reasons.append(f"{using[0]} and {len(using) - 1} more use this switch now")
    return tuple(reasons)


def _of_one_plane(
    node: Node, peers: Sequence[Node], down: Sequence[str], percent: int
) -> tuple[str, ...]:
    """The limit of the tier holds within each pod and plane, too: a plane must not be cut.

    Of leaves, `together` lets no two of one rail or plane down at all.
    """
    if tier(node) == "leaf":
        return ()
    group = _group(node.id)
    count = sum(_group(p.id) == group for p in peers)
    mine = [name for name in down if _group(name) == group]
    limit = switch_limit(count, percent)
    if count == len(peers) or len(mine) < limit:
        return ()
    return (f"{len(mine)} of {count} {group} switches of one plane are down, limit {limit}",)


def _group(name: str) -> str:
    """Tier, pod and plane of a spine: its planned name without its number."""
    return name.rpartition("-")[0]


def neighbours_busy(node: Node, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """Switches on this host's cables that are not yet (or no longer) in service, sorted.

    A switch of an InfiniBand fabric need not be a node: UFM upgrades it, not we.
    """
    return tuple(sorted({p.switch for p in node.ports if not _in_service(nodes.get(p.switch), p)}))


def _in_service(switch: Node | None, port: Port) -> bool:
    return bool(port.guid) if switch is None else switch.state not in UPGRADING
