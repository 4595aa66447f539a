"""Judge whether a node in service can be given back to another system, untouched. Pure.

Nothing is sent to the node or its leaves. Its row stays: ports without a row are taken for a
stranger's and fenced, and the gate needs its BMCs and ports to refuse acts on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Blocker, Reason

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
