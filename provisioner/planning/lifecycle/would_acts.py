"""The acts that a node's present state leads to, as sentences for people. Pure.

A daemon that observes decides like any other, and shows the decision instead of carrying it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.lifecycle.decide import (
    Certify,
    Enter,
    Execute,
    Fence,
    Identify,
    Mend,
    Prove,
    Release,
    Sanitize,
    Turn,
    Validate,
    View,
    decide,
)
from provisioner.planning.release import entitlement
from provisioner.planning.release.port_isolation import find_misplaced_ports, placement_of

POLL_S = 60.0  # a pause is not shown
_PLANNED = frozenset({State.CONVERGING, State.VALIDATING})
_IDENTIFIED = frozenset({State.DISCOVERED, State.INTAKE})


def list_would_acts(
    node: Node,
    view: View,
    read: Sequence[PortPlacement],
    misplaced: Sequence[Blocker],
) -> tuple[str, ...]:
    """Return the acts that follow from one reading. `misplaced`: ports that are not as proved."""
    if node.state is State.RELEASED and node.kind is NodeKind.HOST:
        if not misplaced:
            return ()
        return (f"take {node.id} back: fence all its ports, then erase it ({misplaced[0]})",)
    if node.state in _IDENTIFIED and (no := entitlement.find_foreign_service(node, read)):
        return (f"quarantine {node.id} without moving its ports: {no[0]}",)
    if view.unseen and node.state is not State.DISCOVERED:
        return ()
    if node.state in _PLANNED and view.plan is None:
        return ()
    act = describe_turn(node, decide(node, view, POLL_S))
    return (act,) if act else ()


def describe_turn(node: Node, turn: Turn) -> str:
    """Return the act of a turn on devices or rows; "" for a wait."""
    match turn:
        case Identify():
            logins = sum(not bmc.rotated for bmc in node.bmcs)
            return f"set a password of its own on {logins} BMCs of {node.id}, then identify it"
        case Fence():
            return f"move {len(node.ports)} ports of {node.id} into {MAINTENANCE_VRF}"
        case Sanitize():
            return f"boot {node.id} into the maintenance image and erase its drives"
        case Execute():
            return f"{turn.step.title} on {node.id}: {turn.step.reason}"
        case Validate():
            return f"run the checks on {node.id}"
        case Prove():
            return f"record the tests of {node.id} with other nodes"
        case Certify():
            return f"issue a certificate for {node.id}"
        case Release():
            return f"move {len(node.ports)} ports of {node.id} into VRF {turn.vrf}"
        case Mend():
            return f"carry out a step of the repair case of {node.id}"
        case Enter():
            return f"enter {turn.state} with {node.id}: {turn.why}"
        case _:
            return ""


def judge_ports(
    node: Node, read: Sequence[PortPlacement], vrf_of: dict[str, str]
) -> tuple[Blocker, ...]:
    """Return the ports that are elsewhere than the node's row, and its tenant's, entitle them."""
    if node.kind is not NodeKind.HOST or not node.ports:
        return ()
    if node.state is State.RELEASED and node.vrf:
        return find_misplaced_ports(node.ports, read, node.vrf)
    return tuple(
        Blocker(
            reason=Reason.TRESPASS,
            subject=f"{p.switch}/{p.interface}",
            detail=f"it stands in VRF {p.vrf}, and no handover of {node.id} is recorded",
            unblock="Adopt the node as that tenant's, or move the port.",
        )
        for p in entitlement.find_trespasses(node, read, vrf_of)
    )


def build_view(
    node: Node, inventory: Inventory | None, plan: Plan | None, read: Sequence[PortPlacement] | None
) -> View:
    """Return the view that a turn of this node would be decided by."""
    placed: tuple[Placement | None, str] = (None, "")
    if node.kind is NodeKind.SWITCH:
        placed = (Placement.NONE, "")
    elif read is not None:
        placed = placement_of(node.ports, read)
    return View(
        inventory=inventory,
        plan=plan,
        placement=placed[0],
        vrf=placed[1],
        identified=bool(node.profile) and inventory is not None,
    )
