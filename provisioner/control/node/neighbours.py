"""What runs at the other ends of a node's cables, as last seen: a plan may depend on it."""

from __future__ import annotations

from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.plan import Neighbour
from provisioner.ports import Store

# switch components that a host's plan may depend on, and host components a switch's may
_FACING = ("switch.os", "bluefield.nic", "supernic.nic", "nic.cx7", "nic.cx8", "host.doca")


async def neighbours(store: Store, node: Node) -> tuple[Neighbour, ...]:
    """Versions at the other ends of this node's cables, as last seen."""
    if node.kind is NodeKind.HOST:
        others = sorted({p.switch for p in node.ports})
    else:
        nodes = await store.nodes.list()
        others = sorted(n.id for n in nodes if any(p.switch == node.id for p in n.ports))
    found = []
    for other in others:
        inventory = await store.evidence.get_inventory(other)
        if inventory is not None:
            found.append(Neighbour(node=other, versions=facing(inventory)))
    return tuple(found)


def facing(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """The versions that another node's plan may depend on."""
    versions: dict[str, tuple[str, ...]] = {}
    for kind in _FACING:
        seen = sorted({c.version for c in inventory.of_kind(kind) if c.version})
        if seen:
            versions[kind] = tuple(seen)
    return versions
