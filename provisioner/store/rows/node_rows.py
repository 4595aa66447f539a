"""Rows of nodes. Each function is one part of a transaction on `connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

from sqlalchemy import BigInteger, Connection, Double, bindparam, cast, func, select

from provisioner.model.campaign import CampaignState
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.planning.lifecycle.journey import describe_transition
from provisioner.planning.lifecycle.requested_ends import ENDS
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.rows import evidence_rows, journal, records, request_rows
from provisioner.store.rows.records import STAND_IN, json_text, parse, parse_node
from provisioner.store.rows.statements import find_value, insert_row, update_rows
from provisioner.store.schema.schema import alerts, campaign_nodes, campaigns, certificates, nodes

# made once: to build a statement costs more than to run it
_NODE = select(nodes.c.body).where(nodes.c.id == bindparam("name"))
_STORED = select(nodes.c.state, nodes.c.body).where(
    nodes.c.id == bindparam("name"), nodes.c.generation == bindparam("generation")
)
# SQLite keeps whatever it is given, and takes each text for greater than each number
COUNTED_BELOW = 2**62
FIRST = -(2**63)  # a reader begins below a damaged number too
LAST_CHANGE = select(func.coalesce(func.max(nodes.c.changed), 0)).where(
    nodes.c.changed < bindparam("below", COUNTED_BELOW, BigInteger)
)


def add_node(connection: Connection, node: Node) -> Node:
    """Return a new row, with the generation that the node has; `StaleWrite` if the id is taken."""
    if find_value(connection, nodes.c.id, id=node.id) is not None:
        raise StaleWrite(f"there is a node {node.id} already")
    row = _columns(node) | {"changed": _next_change(connection)}
    insert_row(connection, nodes, {"id": node.id, **row})
    return node


def read_node(connection: Connection, node_id: str) -> Node | None:
    """Return the present node, or None; a stand-in (`damage`) if its row cannot be read."""
    body = connection.scalar(_NODE, {"name": node_id})
    return None if body is None else parse_or_stand_in(connection, node_id, body)


def parse_or_stand_in(connection: Connection, node_id: str, body: str) -> Node:
    """Return the node in `body`, or its readable part."""
    try:
        return parse_node(body)
    except DamagedRow as error:
        named = DamagedRow(f"nodes, {node_id}", error.problem)
        records.record(connection.engine, node_id, named)
        row = connection.execute(select(nodes).where(nodes.c.id == node_id)).one()
        return records.stand_in(dict(row._mapping), named)


def save_node(connection: Connection, node: Node) -> Node:
    """Return the node with its generation raised; `StaleWrite` if it changed since it was read.

    A changed state is an event of the journal in the same transaction, and may end requests.
    `StaleWrite` also for a stand-in: nothing is written over a damaged row, so that it can be
    repaired.
    """
    if node.generation == records.STAND_IN:
        raise StaleWrite(f"the row of {node.id} is damaged, and nothing is written over it")
    saved = node.model_copy(update={"generation": node.generation + 1})
    row = {"name": node.id, "generation": node.generation}
    stored = connection.execute(_STORED, row).first()
    if stored is not None and stored.state != node.state:
        event = describe_transition(parse_node(stored.body), saved)
        assert event is not None
        journal.append(connection, event, saved.entered_at)
        if saved.state in ENDS:
            request_rows.end_requests(connection, saved)
    values = _columns(saved) | {"changed": _next_change(connection)}
    mine = {"id": node.id, "generation": node.generation}
    if update_rows(connection, nodes, mine, values) != 1:
        raise StaleWrite(f"node {node.id} is no longer at generation {node.generation}")
    return saved


def write_node_request(
    connection: Connection, node: Node, event: RequestCarriedOut, now: float
) -> Node:
    """Save a node as a person asked for it. `StaleWrite` if it changed since it was read."""
    saved = save_node(connection, node)
    journal.append(connection, event, now, node.id)
    return saved


def write_detachment(
    connection: Connection, node: Node, certificate: str, event: RequestCarriedOut, now: float
) -> None:
    """Save a node that is given back, and revoke its certificate. `StaleWrite` if it changed."""
    write_node_request(connection, node, event, now)
    if certificate:
        evidence_rows.revoke(connection, certificate, node.note, now)


def _next_change(connection: Connection) -> int:
    """A number above every other one. Writers take turns: it is unique, and none comes late."""
    return int(connection.scalar(LAST_CHANGE) or 0) + 1


def number_change(value: object) -> int:
    """Return the number of a change, by which a reader goes on; 0 of a damaged cell: its node is
    read at each look, until the next write numbers it again.
    """
    return value if isinstance(value, int) and value < COUNTED_BELOW else 0


def _columns(node: Node) -> dict[str, object]:
    return {
        "kind": str(node.kind),
        "state": str(node.state),
        "generation": node.generation,
        "tenant": node.tenant,
        "release": node.release,
        "profile": node.profile,
        "rack": node.location.rack,
        "body": node.model_dump_json(),
    }


# ------------------------------------------------------------------------------
# All nodes, read again only as far as they changed: the start of every tick of the daemon.
#
# A node of eight rails takes 50 µs to parse, so that 65,536 of them would cost seconds at each
# look. Each write of a node gives it a number above all others (`node_rows`); writers take turns on
# SQLite and on PostgreSQL, so that a reader of all up to a number finds the rest by asking for
# greater ones.
#
# The cache changes in the event loop only, after the transaction that read it has ended; work on a
# lane may be rolled back and run again.


Changed = Sequence[tuple[int, Node]]
# made once: every tick and every turn asks
_CHANGED = (
    select(nodes.c.changed, nodes.c.id, nodes.c.body)
    .where(nodes.c.changed > bindparam("seen", type_=BigInteger))
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
        self._seen = FIRST
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
        """The readable nodes of the last reading with a port at one of these switches, by id."""
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
    return tuple((number_change(c), _parse(connection, name, body)) for c, name, body in rows)


def _parse(connection: Connection, name: str, body: str) -> Node:
    try:
        return parse(Node, body, f"nodes, {name}")
    except DamagedRow:
        return parse_or_stand_in(connection, name, body)


def read_named(connection: Connection, names: Collection[str]) -> dict[str, Node]:
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


# ------------------------------------------------------------------------------
# One word of each node that its own record does not have: for the colours of the fleet's map.
#
# The database reads single values of the stored records, and no record is built.


UNDER_WAY = tuple(
    state.value
    for state in CampaignState
    if state not in (CampaignState.DRAFT, CampaignState.DONE, CampaignState.ABORTED)
)
DAY_S = 86_400.0
# (seconds that are left at most, word), the shortest first
LEFT = (
    (0.0, "expired"),
    (DAY_S, "within a day"),
    (7 * DAY_S, "within a week"),
    (30 * DAY_S, "within 30 days"),
)
LATER = "later"

Marks = Sequence[tuple[str, str]]  # (node, word), by node


def read_certificate_marks(connection: Connection, now: float) -> Marks:
    """Return the span within which the certificate of a node ends; revoked ones are none."""
    ends_at = cast(json_text(certificates.c.body, "expires_at"), Double)
    held = json_text(nodes.c.body, "certificate")
    query = (
        select(nodes.c.id, ends_at)
        .select_from(nodes.join(certificates, certificates.c.id == held))
        .where(certificates.c.revoked_at.is_(None), ends_at.is_not(None))
    )
    rows = connection.execute(query.order_by(nodes.c.id))
    return [(row[0], name_time_left(float(row[1]) - now)) for row in rows]


def name_time_left(left_s: float) -> str:
    """Return the word for the seconds that a certificate is still valid."""
    return next((word for most_s, word in LEFT if left_s <= most_s), LATER)


def read_alert_marks(connection: Connection, _now: float) -> Marks:
    """Return the active alert of a node: the first by name, where it has several."""
    query = select(alerts.c.node, func.min(alerts.c.id)).where(alerts.c.active == 1)
    rows = connection.execute(query.group_by(alerts.c.node).order_by(alerts.c.node))
    return [(row[0], row[1]) for row in rows]


def read_wave_marks(connection: Connection, _now: float) -> Marks:
    """Return the wave of a node in the campaign under way, the newest one of several."""
    wave = cast(func.coalesce(json_text(campaign_nodes.c.body, "progress.wave"), "0"), BigInteger)
    canaries = cast(json_text(campaigns.c.body, "policy.canary.size"), BigInteger)
    query = (
        select(campaign_nodes.c.node, campaigns.c.id, wave, canaries)
        .select_from(campaign_nodes.join(campaigns, campaigns.c.id == campaign_nodes.c.campaign))
        .where(campaigns.c.state.in_(UNDER_WAY))
        .order_by(campaigns.c.created_at, campaigns.c.id)
    )
    words = {
        node: f"{campaign} {_name_wave(number, has_canaries=size != 0)}"
        for node, campaign, number, size in connection.execute(query)
    }
    return sorted(words.items())


def _name_wave(number: int, *, has_canaries: bool) -> str:
    if has_canaries and number == 0:
        return "canaries"
    return f"wave {number + (0 if has_canaries else 1)}"
