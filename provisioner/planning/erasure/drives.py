"""Drives of a node that are neither the delivered nor the erased ones. Pure.

A drive can be exchanged while a node waits for a tenant, without a boot and without a version that
changes; its content is then unknown. So the serials of clean drives are stored with the node: those
of its first reading, then those of each erasure. A drive that is not among them makes an erasure of
the whole node necessary.
"""

from __future__ import annotations

from provisioner.model.erasure import ErasureReport
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.part_changes import STRANGER


def list_drives(inventory: Inventory) -> tuple[str, ...]:
    """Return the serials of all drives that the BMC or the host's own system lists, sorted."""
    listed = {d.serial for d in inventory.devices_of(DeviceKind.STORAGE) if d.serial}
    return tuple(sorted(listed | set(inventory.drives)))


def list_erased(report: ErasureReport) -> tuple[str, ...]:
    """Return the serials of the drives that an erasure covered, sorted."""
    return tuple(sorted({d.serial for d in report.after} | set(report.expected)))


def find_strange_drives(known: tuple[str, ...] | None, inventory: Inventory) -> tuple[str, ...]:
    """Return the node's drives that are not among the clean ones, regardless of letter case.

    `known` None: the drives of this node were never recorded, so none is strange.
    """
    if known is None:
        return ()
    clean = {serial.strip().casefold() for serial in known}
    return tuple(s for s in list_drives(inventory) if s.strip().casefold() not in clean)


def describe_strange_drives(node: str, strange: tuple[str, ...]) -> Blocker:
    """Return the blocker that keeps a node with such drives from all tenants."""
    return Blocker(
        reason=Reason.NOT_SANITIZED,
        subject=node,
        detail=f"drive {', '.join(strange[:8])} was not there when it was erased or delivered",
        unblock="It is erased by itself in the maintenance network.",
    )


def owe_erasure(node: Node) -> Node:
    """Return the node as one that must be erased before it gets a tenant.

    A policy may skip the erasure of data of the tenant that the node returns to, but never that of
    a stranger, so the node is marked with a stranger's.
    """
    if node.served and node.served != node.tenant:
        return node
    return node.model_copy(update={"served": STRANGER})


def record_drives(node: Node, inventory: Inventory) -> Node:
    """Return the node with the drives of its first reading, or marked for a necessary erasure."""
    if node.drives is None:
        return node.model_copy(update={"drives": list_drives(inventory)})
    return owe_erasure(node) if find_strange_drives(node.drives, inventory) else node
