"""Judge whether a serving node can be adopted, and as whose. Pure.

A node enters as released to the tenant whose VRF its ports were *read* in. Nothing is inferred: a
port that was not read, or that stands elsewhere than the others, refuses the whole node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, Tenant
from provisioner.planning.release.port_isolation import NOWHERE, find_misplaced_ports


def adopt_host(
    node: Node, read: Sequence[PortPlacement], tenants: Iterable[Tenant], now: float
) -> Node | Blocker:
    """Return the row of an adopted host, or why it cannot be adopted."""
    vrfs = sorted({p.vrf for p in read})
    if not node.ports:
        return _refuse(node, Reason.PRECONDITION, "the list names no port of it", "List its ports.")
    if not vrfs or set(vrfs) <= NOWHERE | {MAINTENANCE_VRF}:
        detail = f"its ports stand in {' and '.join(v or 'no VRF' for v in vrfs) or 'no VRF'}"
        unblock = "It serves no tenant: take it in with `provisioner intake`."
        return _refuse(node, Reason.PRECONDITION, detail, unblock)
    if len(vrfs) > 1:
        detail = (
            f"its ports stand in {len(vrfs)} networks: {', '.join(v or 'no VRF' for v in vrfs)}"
        )
        unblock = "Find out which of them is right, and move the others; then adopt it."
        return _refuse(node, Reason.ISOLATION, detail, unblock)
    (vrf,) = vrfs
    if unread := find_misplaced_ports(node.ports, read, vrf):
        return unread[0]
    owners = [t for t in tenants if t.vrf == vrf]
    if len(owners) != 1:
        detail = f"its ports stand in VRF {vrf}, and no tenant has it"
        return _refuse(node, Reason.NOT_EXPECTED, detail, "Add the tenant to the list.")
    return serve_adopted(node, now).model_copy(
        update={
            "placement": Placement.CUSTOMER,
            "vrf": vrf,
            "tenant": owners[0].name,
            "served": owners[0].name,
        }
    )


def compare_tenant(node: Node, recorded: str) -> Node | Blocker:
    """Return an adopted row, or its refusal if another system records another tenant of it."""
    if not recorded or recorded.lower() == node.tenant.lower():
        return node
    detail = (
        f"its ports stand in VRF {node.vrf} of tenant {node.tenant}, and the other system "
        f"records tenant {recorded}"
    )
    unblock = f"Find out which is right; `--tenant {recorded}={node.tenant}` if both are one."
    return _refuse(node, Reason.NOT_EXPECTED, detail, unblock)


def serve_adopted(node: Node, now: float) -> Node:
    """Return the row of a node that serves, as it was found: no certificate, nothing proved."""
    day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
    note = f"serving, not certified: adopted {day}"
    if node.kind is NodeKind.SWITCH:
        note = f"in service, as it was adopted {day}"
    state = {"state": State.RELEASED, "entered_at": now, "origin": Origin.ADOPTED, "note": note}
    return node.model_copy(update=state)


def detach_node(node: Node, by: str, reason: str, now: float) -> Node:
    """Return the row of a node in service that is given back as it stands.

    It counts as retired wherever the daemon looks for nodes to act on. Tenant, network and
    placement stay as they were, so that its tenant gets no other node in its place.
    """
    note = f"detached {datetime.fromtimestamp(now, UTC):%Y-%m-%d} by {by}: {reason}"
    state = {"state": State.RETIRED, "entered_at": now, "origin": Origin.DETACHED, "note": note}
    return node.model_copy(update={**state, "certificate": "", "attempts": 0})


def end_detachment(node: Node, by: str, reason: str) -> Node:
    """Return the row of a detached node whose hardware is gone: ports and BMCs are free again."""
    place = {"placement": Placement.NONE, "vrf": "", "tenant": "", "served": ""}
    note = f"gone, by {by}: {reason}"
    return node.model_copy(update={**place, "origin": Origin.TAKEN_IN, "note": note})


class Owners:
    """Which row has each BMC, serial and port; rows that gave up their identity have none."""

    def __init__(self, rows: Iterable[Node]) -> None:
        self._owners: dict[str, str] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Node) -> None:
        """Add a row."""
        if _keeps_identity(row):
            for identity in _list_identities(row):
                self._owners.setdefault(identity, row.id)

    def find_conflicts(self, node: Node) -> tuple[Blocker, ...]:
        """Return why a BMC, a serial or a port of this node is another's, once for each other."""
        shared: dict[str, str] = {}
        for identity in _list_identities(node):
            owner = self._owners.get(identity, node.id)
            if owner != node.id:
                shared.setdefault(owner, identity)
        return tuple(
            _refuse(
                node,
                Reason.DUPLICATE,
                f"its {identity} is {owner}'s",
                "Correct the list: one identity is one node.",
            )
            for owner, identity in shared.items()
        )


def _list_identities(node: Node) -> Iterator[str]:
    """Yield the words for everything of a node that no other may have."""
    for bmc in node.bmcs:
        yield f"BMC {bmc.url}"
    for bmc in node.bmcs:
        if bmc.serial:
            yield f"serial {bmc.serial}"
    for port in node.ports:
        yield f"port {port.switch}/{port.interface}"


def _keeps_identity(node: Node) -> bool:
    return node.state is not State.RETIRED or node.origin is Origin.DETACHED


def _refuse(node: Node, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=node.id, detail=detail, unblock=unblock)
