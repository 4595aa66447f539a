"""Which hosts share a unit, so that a fault at one of them reads few rows and not the fleet's.

Only names are kept, from one tick to the next: whether a host is free is read when a spare is
chosen. A host that was cabled elsewhere or entered since then is missed until the next tick, and
every answer is compared with the present rows, which name its rails themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from provisioner.control.fleet_changes import FleetChanges
from provisioner.model.node import Node, NodeKind
from provisioner.planning.tenancy.spares import Unit, find_unit

NAMES_MAX = 512  # without leaves and scalable units all hosts are one unit: no index helps there


class UnitIndex:
    """The hosts of each unit by name."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}  # of each host
        self._names: dict[Unit, set[str]] = {}
        self._changes = FleetChanges()

    def take(self, nodes: Sequence[Node]) -> None:
        """Take in the present fleet."""
        changes = self._changes.take(nodes)
        for node in changes.changed:
            if node.kind is NodeKind.HOST:
                self._put(node)
            else:
                self._drop(node.id)
        for name in changes.gone:
            self._drop(name)

    def list_names(self, faulty: Node) -> Collection[str] | None:
        """Return the hosts of its unit; None if that is to be found among all nodes."""
        names = self._names.get(find_unit(faulty), ())
        return names if faulty.id in names and len(names) <= NAMES_MAX else None

    def _put(self, node: Node) -> None:
        unit = find_unit(node)
        if self._units.get(node.id) != unit:
            self._drop(node.id)
            self._units[node.id] = unit
            self._names.setdefault(unit, set()).add(node.id)

    def _drop(self, name: str) -> None:
        unit = self._units.pop(name, None)
        if unit is None:
            return
        names = self._names[unit]
        names.discard(name)
        if not names:
            del self._names[unit]
