"""The nodes that are set aside for a damaged row: their own, or one that they depend on.

The nodes that depend on a row are looked up in the list of the last read, so that callers between
two reads get them, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine

from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.store.rows import records as damage


class Aside:
    """One per store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._nodes: tuple[Node, ...] = ()
        self._dependents: Mapping[str, Blocker] = {}
        self._found_in: tuple[tuple[Node, ...], int] = (), 0
        self._kept: tuple[Node, ...] = ()  # as long as it is the same, the same object
        self._kept_of: tuple[tuple[Node, ...], frozenset[str]] = (), frozenset()

    def take(self, nodes: tuple[Node, ...]) -> None:
        """Store the nodes of the last read."""
        self._nodes = nodes

    def damaged(self) -> Mapping[str, Blocker]:
        """Return what parks each node, of the damaged rows that were met so far."""
        owners = damage.count_owners(self._engine)
        if not owners:
            return damage.by_node(self._engine)
        nodes, count = self._found_in
        if nodes is not self._nodes or count != owners:
            self._dependents = damage.find_dependents(self._engine, self._nodes)
            self._found_in = self._nodes, owners
        return {**self._dependents, **damage.by_node(self._engine)}

    def leave_out(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes that are not set aside."""
        self.take(nodes)
        damaged = frozenset(self.damaged())
        if not damaged:
            return nodes
        before, names = self._kept_of
        if nodes is not before or damaged != names:
            self._kept_of = nodes, damaged
            self._kept = tuple(n for n in nodes if n.id not in damaged)
        return self._kept
