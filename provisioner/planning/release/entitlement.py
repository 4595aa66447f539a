"""The leaf ports that may be in a customer's network, derived from the rows of their nodes. Pure.

A row is written before the first port of a release is moved and after the last one is back. A port
in a customer's VRF without such a row is therefore an out-of-band change: an old configuration that
a leaf came back with, or a person's. The daemon moves only ports of nodes that it has fenced
before, or that a person assigned to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, ReleaseConditions, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.certification import certification
from provisioner.planning.release.port_isolation import NOWHERE

# ------------------------------------------------------------------------------
# Objections to a handover while a release is under way. Pure.
#
# Moves of ports take minutes, and people, alerts and clocks go on in the meantime. The objections
# are therefore computed before each leaf is changed and once more, from rows read again, before the
# handover is recorded. The transaction that records it checks the `ReleaseConditions` again
# (`store/rows/operation_rows.py`).


def list_handover_objections(
    node: Node,
    certificate: Certificate,
    inventory: Inventory,
    *,
    alerts: Sequence[Blocker],
    accused: Sequence[Blocker],
    signed: bool,
    revoked: bool,
    moved_on: bool,
    now: float,
) -> tuple[Blocker, ...]:
    """Return every reason against the handover; () if there is none.

    `alerts` and `accused` are the blockers from alerts and from tests among nodes; `moved_on`: the
    tenant's network has changed.
    """
    blockers = [
        *certification.find_invalidity(
            certificate=certificate,
            inventory=inventory,
            node=node,
            signed=signed,
            revoked=revoked,
            now=now,
        ),
        *alerts,
        *accused,
    ]
    if moved_on:
        blockers.append(
            make_changed_blocker(node.id, f"tenant {node.tenant} has another network now")
        )
    return tuple(dict.fromkeys(blockers))


def is_unchanged(node: Node, stored: Node) -> bool:
    """Return whether a node's row still has the facts that the release began with."""
    facts = [(n.state, n.tenant, n.served, n.certificate) for n in (node, stored)]
    return facts[0] == facts[1]


def standing_of(node: Node, inventory: Inventory, vrf: str) -> ReleaseConditions:
    """Return the conditions that the transaction of the handover checks once more."""
    return ReleaseConditions(
        certificate=node.certificate,
        inventory=certification.identify_installation(inventory),
        tenant=node.tenant,
        vrf=vrf,
    )


def make_changed_blocker(node: str, detail: str) -> Blocker:
    """Return the blocker of a release whose node was changed while its ports moved."""
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node,
        detail=detail,
        unblock="The node is fenced, looked at anew and decided upon by itself.",
    )


# VRFs of the site; every other one is a customer's
SITE_VRFS = NOWHERE | {MAINTENANCE_VRF, "mgmt"}
MARK = "VRF "  # of `Node.served`: a network that the node was in without a handover
# States in which a violation is a question for a person; in all others people know of the node
ASKS_A_PERSON = frozenset(
    {
        State.DISCOVERED,
        State.INTAKE,
        State.CONVERGING,
        State.VALIDATING,
        State.CERTIFIED,
        State.QUARANTINED,
    }
)
BLOCKERS_MAX = 20  # of a node's row
_NOT_TAKEN_IN = frozenset(
    {State.DISCOVERED, State.INTAKE, State.QUARANTINED, State.REPAIRING, State.RETIRED}
)


_TAKING_IN = frozenset({State.INTAKE, State.QUARANTINED, State.REPAIRING})


def entitled_vrfs(node: Node, vrf_of: Mapping[str, str]) -> frozenset[str]:
    """Return the customers' VRFs in which this node's ports may be. `vrf_of`: tenant -> VRF."""
    if node.kind is not NodeKind.HOST:
        return frozenset()
    tenants: Collection[str] = ()
    match node.state:
        case State.RELEASED if node.placement is Placement.CUSTOMER:
            return frozenset({node.vrf})
        case State.DRAINING if node.placement is Placement.CUSTOMER:
            return frozenset({node.vrf})
        case State.DRAINING if node.placement is Placement.MIXED:
            tenants = (node.tenant, *node.served.split(", "))
        case State.CERTIFIED if node.placement is Placement.MIXED:  # a release is under way
            tenants = (node.tenant,) if node.served == node.tenant else ()
    return frozenset(vrf_of[t] for t in tenants if t in vrf_of)


def find_isolation_violations(
    node: Node, placements: Iterable[PortPlacement], vrf_of: Mapping[str, str]
) -> tuple[PortPlacement, ...]:
    """Return the ports that are in a customer's VRF to which no row entitles the node."""
    outside = [p for p in placements if p.vrf not in SITE_VRFS]
    allowed = entitled_vrfs(node, vrf_of) if outside else frozenset()
    return tuple(p for p in outside if p.vrf not in allowed)


def is_stranger(node: Node) -> bool:
    """Return whether the daemon may not move its ports: never fenced by it, nor assigned to it."""
    return (
        not node.taken
        and not node.fenced_at
        and node.placement is Placement.NONE
        and node.state in _NOT_TAKEN_IN
    )


def why_not_taken_in(node: Node, *, came: bool) -> str:
    """Return why a port of this node in a customer's network is only listed; "" if it is fenced.

    `came`: it was in none at the last look before it came there. A stranger's is fenced then too,
    once its intake has begun: it is no machine that served before us.
    """
    ours = came and node.state in _TAKING_IN
    if node.taken or (is_stranger(node) and not ours):
        return f"node {node.id} was not taken in yet: see `intake --take`"
    return ""


def describe_detached(node: Node) -> str:
    """Return why a port of a detached node is only listed."""
    return f"detached: node {node.id} was given back to another system, which moves its ports"


def find_foreign_service(node: Node, placements: Iterable[PortPlacement]) -> tuple[Blocker, ...]:
    """Return why a stranger's ports may not be fenced: one blocker for each port that serves."""
    return tuple(
        Blocker(
            reason=Reason.TRESPASS,
            subject=f"{p.switch}/{p.interface}",
            detail=f"it stands in VRF {p.vrf}, which this intake did not put it into",
            unblock=f"Move the port out of {p.vrf} and retry the node; or, if its network may be "
            f"taken away and its disks erased: provisioner intake --take {node.id}.",
        )
        for p in placements
        if p.vrf not in NOWHERE | {MAINTENANCE_VRF, node.vrf}
    )


def list_isolation_violations(found: Iterable[PortPlacement]) -> tuple[Blocker, ...]:
    """The blockers that keep a node out of service until a person has examined the change."""
    return tuple(
        Blocker(
            reason=Reason.TRESPASS,
            subject=f"{p.switch}/{p.interface}",
            detail=f"it stood in VRF {p.vrf} without a handover; it is fenced at once",
            unblock="Find out who or what moved the port; then close the case or retry the node. "
            "The node is erased and certified again before it is released to a tenant.",
        )
        for p in found
    )


def note_isolation_violations(node: Node, found: Iterable[PortPlacement]) -> tuple[Blocker, ...]:
    """Return a node's blockers with those of an isolation violation that a person has to examine.

    They are on the row before the ports are fenced. A node that is being drained, repaired or
    retired, or that a person assigned to the daemon, keeps its own: people know of it already.
    """
    if node.taken or node.state not in ASKS_A_PERSON:
        return node.blockers
    more = tuple(b for b in list_isolation_violations(found) if b not in node.blockers)
    return (*node.blockers, *more)[:BLOCKERS_MAX]


def unanswered(node: Node) -> tuple[Blocker, ...]:
    """Return the isolation violations that a node has to be quarantined for and was not yet."""
    if node.taken or node.state not in ASKS_A_PERSON - {State.QUARANTINED}:
        return ()
    return tuple(b for b in node.blockers if b.reason is Reason.TRESPASS)


def isolation_violations_of(node: Node) -> tuple[Blocker, ...]:
    if node.state is not State.QUARANTINED or is_stranger(node):
        return ()
    return tuple(b for b in node.blockers if b.reason is Reason.TRESPASS)


def mark_served(served: str, vrfs: Iterable[str]) -> str:
    """Return `Node.served` with networks that the node was in, so that it must be erased."""
    marks = [m for m in served.split(", ") if m]
    marks += [f"{MARK}{v}" for v in sorted(set(vrfs)) if f"{MARK}{v}" not in marks]
    return ", ".join(marks)


def why_not_ours(
    name: str,
    vrf: str,
    *,
    declared: Iterable[str],
    planned: bool | None,
    storage: Collection[str] = (),
    sessions: bool = False,
    hears_switch: bool = False,
    physical: bool = True,
) -> str:
    """Return why a port without a node is only listed; "" if it is a host port, to be fenced.

    `name`: "leaf/interface". `declared`: patterns of the site. `planned`: whether the address plan
    has a host's cable at it; None without a plan of this leaf. `storage`: VRFs that tenants import.
    `sessions`: a tenant's session to the outside uses it. `physical`: it is of the front panel.
    """
    if any(fnmatchcase(name, pattern) for pattern in declared):
        return "the site declares it as its own (ports_not_ours)"
    if not physical:
        return "it is no front-panel port"
    if vrf in storage:
        return f"{vrf} is a storage network of tenants"
    if sessions:
        return "a tenant's session to the outside goes through it"
    if planned is not None:
        return "" if planned else "the address plan has no host there"
    return "it hears a switch" if hears_switch else ""
