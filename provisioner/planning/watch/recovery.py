"""What differs between rows and world after writes were lost, and what settles each. Pure.

Rules: a node in a customer's network is never moved without a person's word; a node outside of
any is erased before anybody gets it, since nobody knows whose it was in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import Difference, DifferenceKind, Word
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, ReleaseProof
from provisioner.planning.release.port_isolation import NOWHERE, placement_of

# The tenant whose data may be in a node of which nobody knows whom it served.
UNKNOWN_TENANT = "(unknown since a restore)"
# The certificate of an adopted node's proof: which one it was released with was lost.
ADOPTED = "(adopted after a restore)"
_NO_TENANTS = NOWHERE | {MAINTENANCE_VRF, "mgmt"}
_SERVING = (State.RELEASED, State.DRAINING)


def compare(
    node: Node,
    read: Sequence[PortPlacement] | Blocker,
    tenants: Mapping[str, str],
    now: float,
) -> Difference | None:
    """How a host's row differs from where its ports are; None if they agree.

    `tenants`: names of tenants by their VRF. A row that has the node outside of any customer's
    network is never taken at its word: `OUTSIDE` is settled by a rule.
    """
    if node.kind is not NodeKind.HOST or not node.ports or node.state is State.RETIRED:
        return None
    if isinstance(read, Blocker):
        return _difference(node, DifferenceKind.UNREAD, str(read), "", tenants, now)
    vrfs = sorted({p.vrf for p in read})
    world = ", ".join(v or "no VRF" for v in vrfs) or "nothing was read"
    placement, vrf = placement_of(node.ports, read)
    if all(v in _NO_TENANTS for v in vrfs) and vrfs:
        kind = DifferenceKind.LEFT if node.state in _SERVING else DifferenceKind.OUTSIDE
        if node.state is State.DRAINING and node.placement is not Placement.CUSTOMER:
            kind = DifferenceKind.OUTSIDE  # it was fenced, and is erased in any case
        return _difference(node, kind, world, vrf, tenants, now)
    if placement is not Placement.CUSTOMER:
        return _difference(node, DifferenceKind.MIXED, world, "", tenants, now)
    if node.state is State.RELEASED:
        if vrf == node.vrf:
            return None
        return _difference(node, DifferenceKind.OTHER_TENANT, world, vrf, tenants, now)
    kind = DifferenceKind.DRAINING if node.state is State.DRAINING else DifferenceKind.SERVES
    return _difference(node, kind, world, vrf, tenants, now)


def _difference(
    node: Node,
    kind: DifferenceKind,
    world: str,
    vrf: str,
    tenants: Mapping[str, str],
    now: float,
) -> Difference:
    place = node.vrf or node.placement.value
    row = f"{node.state.value}, {place}" + (f", tenant {node.tenant}" if node.tenant else "")
    return Difference(
        subject=node.id,
        kind=kind,
        row=row,
        world=world,
        vrf=vrf,
        tenant=tenants.get(vrf, ""),
        generation=node.generation,
        seen_at=now,
    )


def settle_by_rule(node: Node, difference: Difference, now: float) -> Node:
    """The row of a node that is in nobody's network: erased and proved before anybody gets it."""
    assert difference.kind is DifferenceKind.OUTSIDE
    return _owing(node).model_copy(update={"note": "erased anew: writes of the database were lost"})


def settle_by_word(node: Node, difference: Difference, word: Word, now: float) -> Node | str:
    """The row that follows from a person's word, or why that word settles nothing."""
    kind = difference.kind
    if word is Word.KEEP:
        return _kept(node, difference, now)
    if kind in (DifferenceKind.SERVES, DifferenceKind.OTHER_TENANT, DifferenceKind.DRAINING):
        if not difference.tenant:
            return f"no row names a tenant of VRF {difference.vrf}: list that tenant first"
        return _owing(node).moved(
            State.RELEASED,
            now,
            tenant=difference.tenant,
            served=difference.tenant,
            placement=Placement.CUSTOMER,
            vrf=difference.vrf,
            certificate="",
            blockers=(),
            note=f"adopted with {difference.tenant}: writes of the database were lost",
        )
    if kind is DifferenceKind.LEFT:
        placement = Placement.MAINTENANCE if difference.vrf == MAINTENANCE_VRF else Placement.NONE
        return _owing(node).moved(
            State.DRAINING,
            now,
            tenant="",
            placement=placement,
            vrf=difference.vrf if placement is Placement.MAINTENANCE else "",
            blockers=(),
            note="it left its tenant in the time whose writes were lost",
        )
    return f"{kind.value}: there is no one network to adopt; settle the leaves, or keep the row"


def _kept(node: Node, difference: Difference, now: float) -> Node:
    """The row as it is; where that has the node outside of a customer's network, it is fenced.

    A stranger is fenced by its intake. Any other one is drained, which is the way out of a
    customer's network: fenced, then erased, and back to its repair if it has one.
    """
    if node.state in _SERVING:
        return node
    if node.state in (State.DISCOVERED, State.INTAKE):
        return _owing(node)
    return _owing(node).moved(
        State.DRAINING,
        now,
        placement=Placement.MIXED,
        vrf="",
        note=f"fenced by a person's word (its leaves say {difference.world[:100]})",
    )


def _owing(node: Node) -> Node:
    return node.model_copy(update={"served": UNKNOWN_TENANT, "erasure": ""})


def adopted_proof(node: Node, read: Sequence[PortPlacement], now: float) -> ReleaseProof:
    """The record of the handover of an adopted node: where its ports were read, and no gate."""
    return ReleaseProof(
        node=node.id,
        certificate=ADOPTED,
        tenant=node.tenant,
        vrf=node.vrf,
        placements=tuple(read),
        confirmed_at=now,
    )
