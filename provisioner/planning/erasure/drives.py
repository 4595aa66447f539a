"""Which drives of a node are not those that were delivered or erased. Pure.

A drive can be exchanged while a node waits for a tenant, without a boot and without a version that
changes. Its content is then anybody's. So the serials of the drives that are known to be clean are
kept with the node: those of its first reading, then those of each erasure. A drive that is not
among them makes the whole node owe an erasure.
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
    """Return the drives that are in the node and not among the known ones; letter case aside.

    `known` None: the drives of this node were never recorded, so that none is strange.
    """
    if known is None:
        return ()
    clean = {serial.strip().casefold() for serial in known}
    return tuple(s for s in list_drives(inventory) if s.strip().casefold() not in clean)


def describe_strange_drives(node: str, strange: tuple[str, ...]) -> Blocker:
    """Return why a node with such drives is given to no tenant."""
    return Blocker(
        reason=Reason.NOT_SANITIZED,
        subject=node,
        detail=f"drive {', '.join(strange[:8])} was not there when it was erased or delivered",
        unblock="It is erased by itself in the maintenance network.",
    )


def owe_erasure(node: Node) -> Node:
    """Return the node as one that must be erased before any tenant gets it.

    Data of the tenant that it may go back to would not be erased by every policy; data of a
    stranger is.
    """
    if node.served and node.served != node.tenant:
        return node
    return node.model_copy(update={"served": STRANGER})


def record_drives(node: Node, inventory: Inventory) -> Node:
    """Return the node with the drives of its first reading, or with an erasure that it owes."""
    if node.drives is None:
        return node.model_copy(update={"drives": list_drives(inventory)})
    return owe_erasure(node) if find_strange_drives(node.drives, inventory) else node
