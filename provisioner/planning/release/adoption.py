"""Judge whether a serving node can be adopted, and as whose. Pure.

A node enters as released to the tenant whose VRF its ports were *read* in. Nothing is inferred: a
port that was not read, or that stands elsewhere than the others, refuses the whole node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from provisioner.model.adoption.capability import LADDER, Capability, Grant, GrantScope
from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, Tenant
from provisioner.planning.release.port_isolation import NOWHERE, find_misplaced_ports

# ------------------------------------------------------------------------------
# Judge whether a node in service can be given back to another system, untouched. Pure.
#
# Nothing is sent to the node or its leaves. Its row stays: ports without a row are taken for a
# stranger's and fenced, and the gate needs its BMCs and ports to refuse acts on them.


LISTED_MAX = 4  # nodes that an obstacle names


class PresentWork(Record):
    """The work that is under way on a node; "" and () where there is none."""

    operation: str = ""  # purpose of its open operation
    case: str = ""  # an open repair case of it, or one that has it as the spare
    campaign: str = ""  # a campaign that is not over, and has not settled the node
    passwords: tuple[str, ...] = ()  # BMCs whose change of password has not ended


def find_detach_obstacles(
    node: Node, nodes: Sequence[Node], work: PresentWork
) -> tuple[Blocker, ...]:
    """Return why a node cannot be detached now."""
    if node.origin is Origin.DETACHED:
        detail = "it is detached already"
        unblock = "Adopt it again; or, if its hardware is gone: provisioner node detach --gone."
        return (_refuse(node, Reason.PRECONDITION, detail, unblock),)
    if node.state is not State.RELEASED:
        detail = f"it is {node.state}, not in service"
        unblock = "Only a node in service is given back as it stands: wait until it is released."
        return (_refuse(node, Reason.PRECONDITION, detail, unblock),)
    return (*_find_open_work(node, work), *_find_dependents(node, nodes))


def _find_open_work(node: Node, work: PresentWork) -> Iterator[Blocker]:
    if node.kind is NodeKind.HOST and node.placement is not Placement.CUSTOMER:
        detail = f"its ports are {node.placement}, not all in its tenant's network"
        yield _refuse(node, Reason.BUSY, detail, "Wait until the move of its ports has ended.")
    if node.blockers:
        unblock = "Settle that first: see `provisioner explain`."
        yield _refuse(node, Reason.BUSY, f"it waits: {node.blockers[0]}"[:400], unblock)
    if work.operation:
        detail = f"an operation of it is under way: {work.operation}"
        yield _refuse(node, Reason.BUSY, detail, "Wait for its end.")
    if work.case:
        detail = f"repair case {work.case} is open"
        yield _refuse(node, Reason.BUSY, detail, "Close it: `provisioner case close`.")
    if work.campaign:
        detail = f"campaign {work.campaign} has it"
        yield _refuse(node, Reason.BUSY, detail, "Leave it out: `provisioner campaign skip`.")
    if work.passwords:
        detail = f"the password of {', '.join(work.passwords)} is being changed"
        unblock = "Wait until the change has ended: `provisioner credential list`."
        yield _refuse(node, Reason.BUSY, detail, unblock)


def _find_dependents(node: Node, nodes: Sequence[Node]) -> Iterator[Blocker]:
    if node.kind is NodeKind.SWITCH:
        hosts = sorted(
            n.id
            for n in nodes
            if n.state is not State.RETIRED and any(p.switch == node.id for p in n.ports)
        )
        if hosts:
            more = " ..." if len(hosts) > LISTED_MAX else ""
            detail = f"hosts are cabled to it: {', '.join(hosts[:LISTED_MAX])}{more}"
            yield _refuse(node, Reason.PRECONDITION, detail, "Detach or retire them first.")


def describe_detachment(node: Node) -> tuple[str, ...]:
    """Return the effects of a detachment, in sentences for the person who decides."""
    lines = [f"{node.id} stays as it is: nothing is sent to it, to its BMCs or to its leaves."]
    if node.vrf and node.kind is NodeKind.HOST:
        lines.append(
            f"Its ports stay in {node.vrf}, listed as detached and never fenced; a change of "
            f"{node.vrf} on its leaves is refused until it is adopted again, or gone."
        )
    if node.tenant:
        lines.append(f"Tenant {node.tenant} keeps it, and gets no other node in its place.")
    if node.certificate:
        lines.append(f"Its certificate {node.certificate} is revoked.")
    rotated = [b.name for b in node.bmcs if b.rotated]
    if rotated:
        lines.append(
            f"The BMCs {', '.join(rotated)} keep passwords that the daemon set: read them before, "
            f"with `provisioner credential show {node.id} BMC`."
        )
    lines.append("It is watched no more, and no act on it is allowed, whatever is granted.")
    return tuple(lines)


def describe_end(node: Node) -> tuple[str, ...]:
    """Return the effects of the word that a detached node is gone."""
    return (
        f"{node.id} is retired: its BMCs and ports are free for other hardware.",
        "A port of it that still stands in a tenant's network may be fenced.",
    )


def find_end_obstacles(node: Node) -> tuple[Blocker, ...]:
    """Return why a node cannot be said to be gone."""
    if node.origin is Origin.DETACHED:
        return ()
    detail = "it is not detached, thus not another system's"
    return (_refuse(node, Reason.PRECONDITION, detail, "Detach it first, without --gone."),)


def _refuse(node: Node, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=node.id, detail=detail, unblock=unblock)


# ------------------------------------------------------------------------------
# Decide which acts on an adopted node its grants allow. Pure.
#
# A node that was taken in empty is the daemon's own and needs no grant. Of an adopted node nothing
# is allowed but reading, until a person grants a capability for it, its rack, its unit or the site.
# Of a detached node nothing but reading is allowed at all.


GRANT_REMEDY = (
    "Grant it with `provisioner capability grant`, after its dry run (docs/adopting.md); or leave "
    "the act to the system that manages the node."
)
_WIDTH = tuple(GrantScope)
# what a request to a BMC needs, by the first pattern that its path has; the last one has them all
_REQUESTS = (
    (re.compile(r"/accountservice(/|$)|/accounts(/|$)"), Capability.CREDENTIALS),
    (re.compile(r"/eventservice(/|$)"), Capability.WATCH),
    (re.compile(r"/updateservice(/|$)|\.simpleupdate$|\.reset$"), Capability.FIRMWARE),
    (re.compile(""), Capability.CERTIFICATION),
)
# plays that write firmware; those of switches install images
_FIRMWARE_PLAYS = ("bluefield_bundle", "nic_firmware", "nic_reset", "switch_")


def covers_node(grant: Grant, node: Node) -> bool:
    match grant.scope:
        case GrantScope.SITE:
            return True
        case GrantScope.UNIT:
            return grant.name == name_unit(node)
        case GrantScope.RACK:
            return bool(grant.name) and grant.name == node.location.rack
        case GrantScope.NODE:
            return grant.name == node.id


def name_unit(node: Node) -> str:
    """Return the scalable unit of a node, as grants name it."""
    return f"pod{node.location.pod}/su{node.location.scalable_unit}"


def list_decisions(node: Node, grants: Iterable[Grant]) -> Mapping[Capability, Grant]:
    """Return the decision that counts for each capability: the narrowest one."""
    chosen: dict[Capability, Grant] = {}
    for grant in grants:
        rival = chosen.get(grant.capability)
        if covers_node(grant, node) and (
            rival is None or _WIDTH.index(grant.scope) > _WIDTH.index(rival.scope)
        ):
            chosen[grant.capability] = grant
    return chosen


def list_allowed(node: Node, grants: Iterable[Grant]) -> frozenset[Capability]:
    """Return the capabilities in force: each one that is granted with all before it."""
    if node.origin is Origin.TAKEN_IN:
        return frozenset(LADDER)
    if node.origin is Origin.DETACHED:
        return frozenset()
    decisions = list_decisions(node, grants)
    allowed = set()
    for capability in LADDER:
        if capability not in decisions or not decisions[capability].granted:
            break
        allowed.add(capability)
    return frozenset(allowed)


def plan_withdrawal(
    withdrawn: Grant, grants: Iterable[Grant], nodes: Iterable[Node]
) -> tuple[Grant, ...]:
    """Return the decisions of a withdrawal, which ends narrower grants inside its scope too."""
    inside = [n for n in nodes if covers_node(withdrawn, n)]
    narrower = [
        g
        for g in grants
        if g.granted
        and g.capability is withdrawn.capability
        and _WIDTH.index(g.scope) > _WIDTH.index(withdrawn.scope)
        and (withdrawn.scope is GrantScope.SITE or any(covers_node(g, n) for n in inside))
    ]
    by = {"granted": False, "by": withdrawn.by, "at": withdrawn.at, "reason": withdrawn.reason}
    return (withdrawn, *(g.model_copy(update=by) for g in narrower))


def find_change(
    node: Node, before: Iterable[Grant], after: Iterable[Grant]
) -> tuple[frozenset[Capability], frozenset[Capability]]:
    had = list_allowed(node, before)
    has = list_allowed(node, after)
    return has - had, had - has


def find_need_of_request(path: str) -> Capability:
    """Return the capability that a request to a BMC needs, if it changes anything."""
    plain = path.lower().partition("?")[0]
    return next(need for pattern, need in _REQUESTS if pattern.search(plain))


def find_need_of_play(play: str) -> Capability:
    return Capability.FIRMWARE if play.startswith(_FIRMWARE_PLAYS) else Capability.CERTIFICATION


def describe_refusal(node: Node, need: Capability, grants: Iterable[Grant]) -> str:
    """Return why an act that needs a capability is refused on a node; "" if it is allowed."""
    grants = tuple(grants)
    if need in list_allowed(node, grants):
        return ""
    if node.origin is Origin.DETACHED:
        return f"{node.id} is detached: another system has it, and no grant is in force over it"
    decisions = list_decisions(node, grants)
    lacking = next(c for c in LADDER if c not in decisions or not decisions[c].granted)
    before = f", which {need} builds upon," if lacking is not need else ""
    return f"{node.id} is adopted, and {lacking}{before} is not granted over it"


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
