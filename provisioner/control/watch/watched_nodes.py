"""The nodes that the watch looks at, from one round to the next.

Of a fleet little changes in five seconds, and an unchanged row is the same object
(`store/rows/fleet.py`): only rows that became another object are read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.node import Node, NodeKind, State


class WatchedNodes:
    """`all` has every node by id, `watched` the released hosts among them that have BMCs."""

    def __init__(self) -> None:
        self.all: dict[str, Node] = {}
        self.watched: dict[str, Node] = {}
        self.cabled = 0  # another number whenever ports of watched nodes are others

    def take(self, nodes: Sequence[Node]) -> None:
        """Take in the present fleet."""
        for node in nodes:
            if self.all.get(node.id) is not node:
                self.all[node.id] = node
                self._sort(node)
        if len(self.all) > len(nodes):
            present = {n.id for n in nodes}
            for name in [n for n in self.all if n not in present]:
                del self.all[name]
                self.cabled += self.watched.pop(name, None) is not None

    def _sort(self, node: Node) -> None:
        old = self.watched.get(node.id)
        if node.state is State.RELEASED and node.kind is NodeKind.HOST and node.bmcs:
            self.watched[node.id] = node
            self.cabled += old is None or old.ports != node.ports
        elif old is not None:
            del self.watched[node.id]
            self.cabled += 1
