"""What runs at the other ends of a node's cables, as last seen: a plan may depend on it."""

from __future__ import annotations

from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.plan import Neighbour
from provisioner.ports import Store

# switch components that a host's plan may depend on, and host components a switch's may
_FACING = ("switch.os", "bluefield.nic", "supernic.nic", "nic.cx7", "nic.cx8", "host.doca")


async def read_neighbours(store: Store, node: Node) -> tuple[Neighbour, ...]:
    """Return the versions at the other ends of this node's cables, as last read."""
    if node.kind is NodeKind.HOST:
        names = sorted({p.switch for p in node.ports})
    else:
        nodes = await store.nodes.list()
        names = sorted(n.id for n in nodes if any(p.switch == node.id for p in n.ports))
    ends = []
    for name in names:
        inventory = await store.evidence.get_inventory(name)
        if inventory is not None:
            ends.append(Neighbour(node=name, versions=read_facing_versions(inventory)))
    return tuple(ends)


def read_facing_versions(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Return the versions that another node's plan may depend on."""
    versions: dict[str, tuple[str, ...]] = {}
    for kind in _FACING:
        distinct = sorted({c.version for c in inventory.of_kind(kind) if c.version})
        if distinct:
            versions[kind] = tuple(distinct)
    return versions
