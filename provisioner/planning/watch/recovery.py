"""Differences between rows and switches after lost writes, and the settlement of each. Pure.

A node in a customer's network is never moved without a person's decision. A node outside of any is
erased before it gets a tenant, because its tenants in between are not recorded. A port in a
customer's network that belongs to no node is settled by a person's decision, or fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.port_label import DatabaseMark, PortLabel
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, ReleaseProof
from provisioner.planning.lifecycle.transition import enter_state
from provisioner.planning.release.port_isolation import NOWHERE, placement_of

# The tenant whose data may be in a node without a record of whom it served.
UNKNOWN_TENANT = "(unknown since a restore)"
# The certificate of an adopted node's proof: the one it was released with was lost.
ADOPTED = "(adopted after a restore)"
_NO_TENANTS = NOWHERE | {MAINTENANCE_VRF, "mgmt"}
_SERVING = (State.RELEASED, State.DRAINING)


def compare(
    node: Node,
    read: Sequence[PortPlacement] | Blocker,
    tenants: Mapping[str, str],
    now: float,
) -> Difference | None:
    """Return how a host's row differs from the placement of its ports; None if they agree.

    `tenants`: names of tenants by their VRF. A row that has the node outside of any customer's
    network is never trusted: `OUTSIDE` is settled by a rule.
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


def find_newer_labels(
    labels: Mapping[str, PortLabel], epochs: Mapping[str, int], mark: DatabaseMark
) -> str:
    """Return why the database lacks writes; "" if no port names a later epoch than its node's row.

    `labels`: by "leaf/interface". `epochs`: the generation of each node's row. Labels of another
    database, and of a life before the last restore, are ignored.
    """
    newer = []
    for port, label in sorted(labels.items()):
        if label.database != mark.site[:8] or label.life < mark.life:
            continue
        epoch = epochs.get(label.node)
        if label.life > mark.life:
            newer.append(f"{port} names restore {label.life}, the rows know {mark.life}")
        elif epoch is None:
            newer.append(f"{port} names {label.node}, which has no row")
        elif label.epoch > epoch:
            row = f"{label.node} of epoch {label.epoch}, its row is of epoch {epoch}"
            newer.append(f"{port} names {row}")
    if not newer:
        return ""
    return f"{len(newer)} ports were moved later than the rows know: {'; '.join(newer[:3])}"


def describe_stranger(
    leaf: str,
    interface: str,
    vrfs: Collection[str],
    owner: str,
    tenants: Mapping[str, str],
    now: float,
) -> Difference:
    """Return the difference of a port in a customer's network without a node in service.

    `owner`: the retired node that was cabled to it; "" if no row names the port at all.
    """
    vrf = next(iter(vrfs)) if len(vrfs) == 1 else ""
    return Difference(
        subject=f"{leaf}/{interface}",
        kind=DifferenceKind.STRANGER,
        row=f"{owner} is retired" if owner else "no node owns it",
        world=", ".join(sorted(vrfs)),
        leaf=leaf,
        vrf=vrf,
        tenant=tenants.get(vrf, ""),
        seen_at=now,
    )


def describe_unread_leaf(leaf: str, why: Blocker, now: float) -> Difference:
    """Return the difference of a leaf that did not answer: the state of its ports is not known."""
    return Difference(
        subject=leaf,
        kind=DifferenceKind.UNREAD,
        row="all of its ports",
        world=str(why),
        leaf=leaf,
        seen_at=now,
    )


def settle_port_by_word(difference: Difference, word: Settlement) -> str:
    """Return why a decision does not settle a port without a node, or a leaf; "" if it does.

    No row changes. `ADOPT` leaves the port in its network; with `KEEP` the watch of leaves fences
    it as soon as the daemons act.
    """
    assert difference.leaf
    if word is Settlement.KEEP:
        return ""
    if difference.kind is DifferenceKind.UNREAD:
        return "the leaf was not read, so that there is nothing to adopt"
    if not difference.tenant:
        network = difference.vrf or difference.world
        return f"no row names a tenant of VRF {network}: list that tenant first"
    return ""


def settle_by_rule(node: Node, difference: Difference, now: float) -> Node:
    """Return the row of a node in no tenant's network: erased and certified before it gets one."""
    assert difference.kind is DifferenceKind.OUTSIDE
    return _owing(node).model_copy(update={"note": "erased anew: writes of the database were lost"})


def settle_by_word(node: Node, difference: Difference, word: Settlement, now: float) -> Node | str:
    """Return the row that follows from a person's decision, or why that decision settles
    nothing.
    """
    kind = difference.kind
    if word is Settlement.KEEP:
        return _kept(node, difference, now)
    if kind in (DifferenceKind.SERVES, DifferenceKind.OTHER_TENANT, DifferenceKind.DRAINING):
        if not difference.tenant:
            return f"no row names a tenant of VRF {difference.vrf}: list that tenant first"
        return enter_state(
            _owing(node),
            State.RELEASED,
            f"adopted with {difference.tenant}: writes of the database were lost",
            now,
            {
                "tenant": difference.tenant,
                "served": difference.tenant,
                "placement": Placement.CUSTOMER,
                "vrf": difference.vrf,
                "certificate": "",
                "blockers": (),
            },
            after_restore=True,
        )
    if kind is DifferenceKind.LEFT:
        placement = Placement.MAINTENANCE if difference.vrf == MAINTENANCE_VRF else Placement.NONE
        return enter_state(
            _owing(node),
            State.DRAINING,
            "it left its tenant in the time whose writes were lost",
            now,
            {
                "tenant": "",
                "placement": placement,
                "vrf": difference.vrf if placement is Placement.MAINTENANCE else "",
                "blockers": (),
            },
            after_restore=True,
        )
    return f"{kind.value}: there is no one network to adopt; settle the leaves, or keep the row"


def _kept(node: Node, difference: Difference, now: float) -> Node:
    """Return the row as it is, or fenced where it has the node outside of a customer's network.

    A stranger is fenced by its intake. Any other node is drained, which is the way out of a
    customer's network: fenced, then erased, and back to its repair if it has one.
    """
    if node.state in _SERVING:
        return node
    if node.state in (State.DISCOVERED, State.INTAKE):
        return _owing(node)
    return enter_state(
        _owing(node),
        State.DRAINING,
        f"fenced by a person's word (its leaves say {difference.world[:100]})",
        now,
        {"placement": Placement.MIXED, "vrf": ""},
        after_restore=True,
    )


def _owing(node: Node) -> Node:
    return node.model_copy(update={"served": UNKNOWN_TENANT, "erasure": ""})


def adopted_proof(node: Node, read: Sequence[PortPlacement], now: float) -> ReleaseProof:
    """Return the record of an adopted node's handover: the placement that was read, and no gate."""
    return ReleaseProof(
        node=node.id,
        certificate=ADOPTED,
        tenant=node.tenant,
        vrf=node.vrf,
        placements=tuple(read),
        confirmed_at=now,
    )
