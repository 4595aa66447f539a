"""Which nodes own which leaf ports, kept from one round to the next: half a million of a fleet.

An unchanged row is the same object (`store/rows/node_rows.py`): only rows that are others are
taken in anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State


class PortOwners:
    """`leaves` has every switch that is not retired, by name."""

    def __init__(self) -> None:
        self.leaves: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._ports: dict[str, dict[str, tuple[str, ...]]] = {}  # leaf -> interface -> nodes

    def take(self, nodes: Sequence[Node]) -> None:
        """Take in the fleet as it is now."""
        for node in nodes:
            old = self._nodes.get(node.id)
            if old is node:
                continue
            self._nodes[node.id] = node
            if node.kind is NodeKind.SWITCH:
                self.leaves[node.id] = node
                if node.state is State.RETIRED:
                    del self.leaves[node.id]
            elif old is None or old.ports != node.ports:
                self._drop(node.id, () if old is None else old.ports)
                self._add(node)
        if len(self._nodes) > len(nodes):
            present = {n.id for n in nodes}
            for name in [n for n in self._nodes if n not in present]:
                self._drop(name, self._nodes.pop(name).ports)
                self.leaves.pop(name, None)

    def find_owners(self, leaf: str, interface: str) -> list[Node]:
        """Return the nodes that are cabled to a port: a retired one beside its successor."""
        names = self._ports.get(leaf, {}).get(interface, ())
        return [self._nodes[name] for name in names]

    def find_ports(self, leaf: str) -> tuple[str, ...]:
        """Return the ports of a leaf that hosts are cabled to, but for those of detached ones."""
        return tuple(
            interface
            for interface, names in self._ports.get(leaf, {}).items()
            if all(self._nodes[name].origin is not Origin.DETACHED for name in names)
        )

    def _add(self, node: Node) -> None:
        for port in node.ports:
            if not port.guid:
                mine = self._ports.setdefault(port.switch, {})
                mine[port.interface] = (*mine.get(port.interface, ()), node.id)

    def _drop(self, name: str, ports: Sequence[Port]) -> None:
        for port in ports:
            mine = self._ports.get(port.switch, {})
            remaining = tuple(n for n in mine.get(port.interface, ()) if n != name)
            if remaining:
                mine[port.interface] = remaining
            else:
                mine.pop(port.interface, None)
