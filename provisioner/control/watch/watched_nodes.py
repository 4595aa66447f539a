"""The nodes that the watch looks at, from one round to the next.

Of a fleet little changes in five seconds: only what changed is looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.control.fleet_changes import FleetChanges
from provisioner.model.node import Node, NodeKind, State


class WatchedNodes:
    """`all` has every node by id, `watched` the released hosts among them that have BMCs.

    Of the last `take`: `entered` are the nodes that are watched now and were not before, `left`
    those that are not any more, and `recabled` pairs of a watched node before and after, where its
    ports differ; None stands for a node that is not watched.
    """

    def __init__(self) -> None:
        self.all: dict[str, Node] = {}
        self.watched: dict[str, Node] = {}
        self.entered: list[str] = []
        self.left: list[str] = []
        self.recabled: list[tuple[Node | None, Node | None]] = []
        self._changes = FleetChanges()

    def take(self, nodes: Sequence[Node]) -> None:
        """Take in the present fleet."""
        self.entered = []
        self.left = []
        self.recabled = []
        changes = self._changes.take(nodes)
        for node in changes.changed:
            self.all[node.id] = node
            watched = node.state is State.RELEASED and node.kind is NodeKind.HOST and node.bmcs
            self._sort(node.id, node if watched else None)
        for name in changes.gone:
            del self.all[name]
            self._sort(name, None)

    def _sort(self, name: str, after: Node | None) -> None:
        before = self.watched.get(name)
        if after is not None:
            self.watched[name] = after
            if before is None:
                self.entered.append(name)
            if before is None or before.ports != after.ports:
                self.recabled.append((before, after))
        elif before is not None:
            del self.watched[name]
            self.left.append(name)
            self.recabled.append((before, None))
