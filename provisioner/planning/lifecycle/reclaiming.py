"""The effects of reclaiming a node from its tenant, shown before it is done. Pure.

A reclaimed node is erased, including its operating system. It can serve again only if its release
pins a system image to write.
"""

from __future__ import annotations

from provisioner.components.kind import HOST_OS
from provisioner.model.erasure import ErasurePolicy
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.erasure import require_erasure
from provisioner.planning.lifecycle.explain import clean_text, format_span


def find_return_obstacles(
    drained: Node, matrix: Matrix, policy: ErasurePolicy
) -> tuple[Blocker, ...]:
    """Return why the node cannot serve again after its erasure; () if it can.

    `drained` is the node after the request.
    """
    if drained.kind is not NodeKind.HOST or not require_erasure(drained, policy):
        return ()
    release = drained.release
    profile = drained.profile
    pinned = matrix.releases.get(release)
    if pinned is None or profile not in pinned.profiles:
        if pinned is None:
            detail = "it runs no release of the matrix"
        else:
            detail = f"{release} has no profile {clean_text(profile) or '-'}"
        return (_obstacle(drained, detail, "Name the matrix that the daemon has."),)
    pin = pinned.profiles[profile].pins.get(HOST_OS)
    if pin is not None and pin.known and pin.artifact:
        return ()
    detail = f"{release} pins no {HOST_OS} to write after its disks were erased"
    return (_obstacle(drained, detail, f"Pin {HOST_OS} in an overlay, with image and digest."),)


def describe_reclaim(
    node: Node, drained: Node, policy: ErasurePolicy, now: float
) -> tuple[str, ...]:
    """Return the sentences that an operator reads before a node is taken from its tenant."""
    tenant = node.tenant or node.served
    served_for = format_span(now - node.entered_at)
    lines = [
        f"{node.id} serves {tenant} (VRF {node.vrf}), for {served_for} now.",
        f"It is taken from {tenant}: its {len(node.ports)} ports go into the maintenance network.",
    ]
    if require_erasure(drained, policy):
        lines.append("Then its disks are erased: nothing on them can be brought back.")
    else:
        lines.append(f"Its disks are not erased: it stays allocated to {drained.tenant}.")
    then = f"goes back to {drained.tenant}" if drained.tenant else "waits for a tenant"
    lines.append(f"It is brought to {node.release}, checked, certified, and {then}.")
    return tuple(lines)


def _obstacle(node: Node, detail: str, unblock: str) -> Blocker:
    return Blocker(
        reason=Reason.MISSING_ARTIFACT,
        subject=node.id,
        detail=f"it could not come back: {detail}",
        unblock=f"{unblock} Or say that it need not come back (accept_no_return).",
    )
