"""All nodes, read again only as far as they changed: the start of every tick of the daemon.

A node of eight rails takes 50 µs to parse, so that 65,536 of them would cost seconds at each look.
Each write of a node gives it a number above all others (`node_rows`); writers take turns on SQLite
and on PostgreSQL, so that a reader of all up to a number finds the rest by asking for greater ones.

The cache changes in the event loop only, after the transaction that read it has ended; work on a
lane may be rolled back and run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

from sqlalchemy import Connection, bindparam, select

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows.damage import STAND_IN
from provisioner.store.rows.node_rows import parse_or_stand_in
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import nodes

Changed = Sequence[tuple[int, Node]]
# made once: every tick and every turn asks
_CHANGED = (
    select(nodes.c.changed, nodes.c.id, nodes.c.body)
    .where(nodes.c.changed > bindparam("seen"))
    .order_by(nodes.c.changed)
)
_NAMED = select(nodes.c.id, nodes.c.kind, nodes.c.state, nodes.c.tenant, nodes.c.body).where(
    nodes.c.id.in_(bindparam("names", expanding=True))
)
# by the columns beside the body, which every write of a node sets from it; here and not in the
# statement: SQLite would rather walk all certified rows by their index than look up some names
_UNASSIGNED = (str(NodeKind.HOST), str(State.CERTIFIED), "")
NAMES_MAX = 500  # in one statement; SQLite before 3.32 takes 999 variables


class Fleet:
    """The cache of all nodes. `read` runs work on one snapshot of the database."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Node]] = {}
        self._places: dict[str, int] = {}  # of each readable node in `_listed`
        self._listed: list[Node] = []
        self._seen = -1
        self._nodes: tuple[Node, ...] = ()
        self.damaged: tuple[Node, ...] = ()  # stand-ins, of rows that cannot be read
        self.guarded: tuple[Node, ...] = ()  # adopted and detached, readable or not, by id
        self._guarded: dict[str, Node] = {}
        self._cabled: dict[str, set[str]] = {}  # switch -> nodes with a port at it
        self._turn = asyncio.Lock()  # of those who read
        self._begun = 0  # readings
        self._answered = 0

    async def nodes(
        self, read: Callable[[Callable[[Connection, int], Changed], int], Awaitable[Changed]]
    ) -> tuple[Node, ...]:
        """Return every node whose row can be read, by id; the same object as long as nothing
        changed.

        One reads at a time, and whoever asked before that reading began is answered by it: a
        thousand journeys that ask at once would each parse all that has changed.
        """
        begun = self._begun
        async with self._turn:
            if self._answered <= begun:
                self._begun += 1
                self._take(await read(_after, self._seen))
                self._answered = self._begun
        return self._nodes

    def list_cabled(self, switches: Iterable[str]) -> list[Node]:
        """Return the readable nodes of the last reading with a port at one of these switches, by
        id.
        """
        names = set[str]().union(*(self._cabled.get(switch, ()) for switch in switches))
        nodes = (self._known[name][1] for name in sorted(names))
        return [node for node in nodes if node.generation != STAND_IN]

    def _index_ports(self, before: Sequence[Port], node: Node) -> None:
        old = {p.switch for p in before}
        new = {p.switch for p in node.ports}
        for switch in old - new:
            self._cabled[switch].remove(node.id)
        for switch in new - old:
            self._cabled.setdefault(switch, set()).add(node.id)

    def _take(self, changed: Changed) -> None:
        more = False
        guarded = False
        for number, node in changed:
            before = self._known.get(node.id)
            self._index_ports(before[1].ports if before else (), node)
            self._known[node.id] = number, node
            if node.origin is not Origin.TAKEN_IN:
                self._guarded[node.id] = node
                guarded = True
            elif self._guarded.pop(node.id, None) is not None:
                guarded = True
            self._seen = max(self._seen, number)
            place = self._places.get(node.id)
            if place is None or node.generation == STAND_IN:
                more = True  # a new one, one that cannot be read, or one that can be again
            else:
                self._listed[place] = node
        if more:
            self._sort()
        if guarded:  # asked at every request, and changed seldom
            self.guarded = tuple(self._guarded[name] for name in sorted(self._guarded))
        if changed:
            self._nodes = tuple(self._listed)

    def _sort(self) -> None:
        """List all nodes anew, by id."""
        self._known = dict(sorted(self._known.items()))
        all_nodes = [node for _, node in self._known.values()]
        self._listed = [n for n in all_nodes if n.generation != STAND_IN]
        self._places = {node.id: place for place, node in enumerate(self._listed)}
        self.damaged = tuple(n for n in all_nodes if n.generation == STAND_IN)


def _after(connection: Connection, number: int) -> Changed:
    rows = connection.execute(_CHANGED, {"seen": number}).all()
    # past the cache of single nodes: a whole fleet would only drive everything else out of it
    return tuple((changed, _parse(connection, name, body)) for changed, name, body in rows)


def _parse(connection: Connection, name: str, body: str) -> Node:
    try:
        return parse(Node, body, f"nodes, {name}")
    except DamagedRow:
        return parse_or_stand_in(connection, name, body)


def read_named(connection: Connection, names: Collection[str]) -> dict[str, Node]:
    """Return the nodes of these names that there are."""
    return {
        name: parse_or_stand_in(connection, name, body)
        for name, _, body in _read_rows(connection, names)
    }


def read_unassigned(connection: Connection, names: Collection[str]) -> dict[str, Node]:
    """Return the certified hosts without a tenant among these names; the others are not parsed."""
    return {
        name: parse_or_stand_in(connection, name, body)
        for name, columns, body in _read_rows(connection, names)
        if columns == _UNASSIGNED
    }


def _read_rows(
    connection: Connection, names: Collection[str]
) -> Iterator[tuple[str, tuple[str, str, str], str]]:
    """Yield the name, the columns (kind, state, tenant) and the body of each of these nodes."""
    ordered = sorted(names)
    for begin in range(0, len(ordered), NAMES_MAX):
        rows = connection.execute(_NAMED, {"names": ordered[begin : begin + NAMES_MAX]}).all()
        for name, kind, state, tenant, body in rows:
            yield name, (kind, state, tenant), body
