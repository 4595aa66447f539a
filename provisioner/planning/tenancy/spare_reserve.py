"""The spares of each unit, kept from one look at the fleet to the next. Pure.

The rule is `spares.list_reserved`'s. A unit is judged anew only when a host of it became another
one or was barred: thousands of spares rest, and to sort them costs a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Set

from provisioner.model.node import Node
from provisioner.planning.tenancy.allocation import find_area
from provisioner.planning.tenancy.placement import RAILS, Area
from provisioner.planning.tenancy.spares import is_free, list_reserved


class SpareReserve:
    """The free hosts that no tenant gets for growth; `per_unit` of them on the same leaves."""

    def __init__(self, per_unit: int) -> None:
        self._per_unit = per_unit
        self._units: dict[Area, dict[str, Node]] = {}  # the free hosts of each
        self._places: dict[str, Area] = {}  # of each free host
        self._reserved: dict[Area, frozenset[str]] = {}
        self._names: set[str] = set()
        self._barred: frozenset[str] = frozenset()
        self._dirty: set[Area] = set()

    def put(self, node: Node) -> None:
        """Take in a node that is new or has another row."""
        self.drop(node.id)
        if self._per_unit and is_free(node):
            unit = find_area(node)[:RAILS]
            self._places[node.id] = unit
            self._units.setdefault(unit, {})[node.id] = node
            self._dirty.add(unit)

    def drop(self, name: str) -> None:
        """Drop a node that is there no more."""
        unit = self._places.pop(name, None)
        if unit is not None:
            del self._units[unit][name]
            self._dirty.add(unit)

    def list_names(self, barred: frozenset[str]) -> Set[str]:
        """Return the reserved hosts; `barred` are no spares: alerts hold them, or a person picked
        them for a tenant.
        """
        changed = barred ^ self._barred
        self._barred = barred
        self._dirty |= {self._places[name] for name in changed if name in self._places}
        for unit in self._dirty:  # all of them first: a host may have gone from one to another
            self._names -= self._reserved.pop(unit, frozenset())
        for unit in self._dirty:
            hosts = self._units[unit]
            if not hosts:
                del self._units[unit]
                continue
            reserved = list_reserved(hosts.values(), self._per_unit, barred)
            self._reserved[unit] = reserved
            self._names |= reserved
        self._dirty.clear()
        return self._names
