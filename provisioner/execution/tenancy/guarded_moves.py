"""Moves of ports into a tenant's VRF, each with the filter of the tenant's security groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Move
from provisioner.model.tenant import Tenant
from provisioner.planning.places.port_filters import plan_port_filter


def plan_move(port: Port, vrf: str, label: str, tenant: Tenant | None, node: Node | None) -> Move:
    """Return the move of one port, with the filter of its node in the tenant."""
    move = Move(port.interface, vrf, port.address, description=label)
    if tenant is None:
        return move
    guard, rules = plan_port_filter(tenant, "" if node is None else node.id, port.rail)
    return replace(move, guard=guard, rules=rules)


def sort_by_switch(ports: Sequence[Port], moves: Sequence[Move]) -> dict[str, list[Move]]:
    """Return the moves of these ports by their leaf, both in order."""
    by_switch: dict[str, list[Move]] = {}
    for port, move in sorted(zip(ports, moves, strict=True), key=lambda p: p[0].switch):
        by_switch.setdefault(port.switch, []).append(move)
    return {switch: sorted(mine, key=lambda m: m.interface) for switch, mine in by_switch.items()}


def find_changed_groups(before: Tenant | None, after: Tenant | None) -> tuple[Blocker, ...]:
    """Return a blocker if the groups by which ports were moved are no longer the tenant's."""
    if before is None or (after and after.security_groups == before.security_groups):
        return ()
    return (
        Blocker(
            reason=Reason.PRECONDITION,
            subject=before.name,
            detail="its security groups were changed during the move",
            unblock="It is tried again with the new ones.",
        ),
    )
