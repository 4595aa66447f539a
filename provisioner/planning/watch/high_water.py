"""Detection of lost writes in a database, after a restored backup or a failover. Pure.

An unexplained difference makes the daemon read-only, because a daemon that acts on old rows gives
one customer's disks to another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.host_filter import DatabaseMark, PortLabel
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import (
    DatabasePosition,
    Difference,
    DifferenceKind,
    HighWater,
    Settlement,
)
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, ReleaseProof
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.planning.release.port_isolation import NOWHERE, placement_of

# ------------------------------------------------------------------------------
# Differences between rows and switches after lost writes, and the settlement of each. Pure.
#
# A node in a customer's network is never moved without a person's decision. A node outside of any
# is erased before it gets a tenant, because its tenants in between are not recorded. A port in a
# customer's network that belongs to no node is settled by a person's decision, or fenced.


# The tenant whose data may be in a node without a record of whom it served.
UNKNOWN_TENANT = "(unknown since a restore)"
# The certificate of an adopted node's proof: the one it was released with was lost.
ADOPTED = "(adopted after a restore)"
_NO_TENANTS = NOWHERE | {MAINTENANCE_VRF, "mgmt"}
_SERVING = (State.RELEASED, State.DRAINING)


def compare(
    node: Node, read: Sequence[PortPlacement] | Blocker, tenants: Mapping[str, str], now: float
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
    node: Node, kind: DifferenceKind, world: str, vrf: str, tenants: Mapping[str, str], now: float
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
    """The row that follows from a person's decision, or why that decision settles nothing."""
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


class Standing(Record):
    """The permitted use of a database. Both empty: no restriction."""

    refused: str = ""  # why it must not even be opened
    look_only: tuple[str, ...] = ()  # why no device may be written to


def judge(
    kept: HighWater | None, look: DatabasePosition, *, requested: bool = False, restored: str = ""
) -> Standing:
    """Judge the database by the data directory's record of it.

    `requested`: a person asked for read-only. `restored`: the note that `provisioner restore` left.
    """
    if not requested and kept is not None and (refusal := _refusal(kept, look)):
        return Standing(refused=refusal)
    reasons = ["a person asked for it (--restored)"] if requested else []
    reasons += [restored] if restored else []
    reasons += [look.look_only] if look.look_only else []
    reasons += _lost(kept, look) if kept is not None else _unknown(look)
    if not reasons and kept is not None and waits_for_others(kept, look):
        reasons.append(
            f"the server was promoted (timeline {look.timeline}), commits did not wait for a "
            f"standby, and {len(look.unconfirmed)} other daemons have not found their writes again"
        )
    if look.recorded_server and look.server != look.recorded_server:
        reasons.append(
            f"the database was restored onto another server: its rows name {look.recorded_server}, "
            f"this one is {look.server or 'a file'}"
        )
    return Standing(look_only=tuple(dict.fromkeys(reasons)))


def waits_for_others(kept: HighWater, look: DatabasePosition) -> bool:
    """Return whether a failover may have lost writes of other daemons that are not recorded here.

    Each daemon records only its own writes. Where commits waited for a standby none can be lost.
    """
    promoted = bool(look.recorded_timeline) and look.timeline > look.recorded_timeline
    return promoted and not kept.synchronous and bool(look.unconfirmed)


def _refusal(kept: HighWater, look: DatabasePosition) -> str:
    if look.site and look.site != kept.site:
        return (
            f"this data directory belongs to the database {kept.site[:12]}, "
            f"and this one is {look.site[:12]}"
        )
    if kept.server and look.server == kept.server and look.timeline < kept.timeline:
        return (
            f"the server is on timeline {look.timeline}, and this daemon has used timeline "
            f"{kept.timeline}: it is a former primary, which was replaced"
        )
    return ""


def _lost(kept: HighWater, look: DatabasePosition) -> list[str]:
    if not look.site:
        return ["the database is from before the time that this data directory remembers"]
    if look.count is None:
        return ["the database has no row of this data directory, which has written to it"]
    reasons = []
    if look.count < kept.count:
        missing = kept.count - look.count
        reasons.append(f"the database lacks the last {missing} transactions of this daemon")
    if look.head != kept.journal_head:
        reasons.append(
            f"row {kept.journal_rows} of the journal is not the one that this daemon knows "
            f"(the journal has {look.journal_rows} rows)"
        )
    return reasons


def _unknown(look: DatabasePosition) -> list[str]:
    if not look.server and look.site and look.other_places:
        return ["the database was served from another data directory, and this one knows nothing"]
    if look.recorded_timeline and look.timeline != look.recorded_timeline:
        promoted = f"timeline {look.timeline}, the rows name {look.recorded_timeline}"
        return [f"the server was promoted ({promoted}), and this data directory is new"]
    return []
