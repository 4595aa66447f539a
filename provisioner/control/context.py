"""What every controller of a daemon shares: the store, the clock, the settings, the telemetry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter, is_not
from typing import NamedTuple

from provisioner.model.adoption.capability import Capability
from provisioner.model.node import Node, State
from provisioner.ports import Clock
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime.permit import CapabilityGate, Need
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Which nodes of a fleet became others since the last look, without a look into any of them.
#
# An unchanged row is the same object (`store/rows/node_rows.py`). To ask 65,536 nodes for their
# kind or their name holds the event loop for a tenth of a second, as each is somewhere else in
# memory; to compare their places in two lists takes two milliseconds.


_read_id = attrgetter("id")


class Changes(NamedTuple):
    """`changed`: nodes that are new or have another row; `gone`: names that are there no more."""

    changed: Sequence[Node]
    gone: frozenset[str]


class FleetChanges:
    """Remembers the fleet of the last `take`."""

    def __init__(self) -> None:
        self._before: Sequence[Node] = ()

    def take(self, nodes: Sequence[Node]) -> Changes:
        """Return the changes since the last call. `nodes` is not changed afterwards."""
        before = self._before
        self._before = nodes
        if nodes is before:
            return Changes((), frozenset())
        if len(nodes) == len(before):
            places = tuple(compress(range(len(nodes)), map(is_not, nodes, before)))
            if all(nodes[place].id == before[place].id for place in places):
                return Changes([nodes[place] for place in places], frozenset())
        return _compare(before, nodes)


class StateIndex:
    def __init__(self, state: State) -> None:
        self._state = state
        self._changes = FleetChanges()
        self._names: set[str] = set()

    def take(self, nodes: Sequence[Node]) -> Set[str]:
        """Take in the present fleet; return the names."""
        changes = self._changes.take(nodes)
        self._names -= changes.gone
        for node in changes.changed:
            if node.state is self._state:
                self._names.add(node.id)
            else:
                self._names.discard(node.id)
        return self._names


def _compare(before: Sequence[Node], nodes: Sequence[Node]) -> Changes:
    """Compare two fleets of which one has nodes that the other lacks."""
    # by the objects' addresses: both lists hold them, so that none is used twice
    old = dict(zip(map(id, before), before, strict=True))
    new = dict(zip(map(id, nodes), nodes, strict=True))
    changed = [new[key] for key in new if key not in old]
    ended = {old[key].id for key in old.keys() - new.keys()}
    return Changes(changed, frozenset(ended.difference(node.id for node in changed)))


def find_node(nodes: Sequence[Node], name: str) -> Node | None:
    """Return the node of this name from a fleet in the order of names, as the store lists it."""
    place = bisect_left(nodes, name, key=_read_id)
    return nodes[place] if place < len(nodes) and nodes[place].id == name else None


@dataclass(frozen=True, slots=True)
class Context:
    """One frozen instance goes to all controllers of a daemon."""

    store: SqlStore
    clock: Clock
    settings: Settings
    telemetry: Telemetry = SILENCE
    gate: CapabilityGate | None = None  # of the daemon; None: made when it is needed

    def get_gate(self) -> CapabilityGate:
        return self.gate or CapabilityGate(self.store, self.clock)

    async def refuse_act(self, node: Node, capability: Capability, act: str) -> str:
        """Return why a decision may not be begun on a node for want of a capability; "" if it may.

        A refused one is recorded as an act that would be carried out.
        """
        gate = self.get_gate()
        why = await gate.find_refusal(node, capability)
        if why:
            await gate.note_would(Need(node, capability, act), why)
        return why

    def with_clock(self, clock: Clock) -> Context:
        """Return the same context with another clock, such as one that waits for the time."""
        return replace(self, clock=clock)
