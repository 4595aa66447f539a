"""The whole fleet by column, kept between requests: what the console's map is made of.

A node's place is read once for each of its generations and kept; an answer is kept until the
journal or a node moves on.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import Field

from provisioner.api.problem import refuse_expression
from provisioner.control.campaigns.selecting import begin_reading
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.campaigns.fleet_fields import ABOUT_FIELDS, TENANT_FIELDS
from provisioner.planning.campaigns.select_expression import Expression, Facts, parse, read_fields
from provisioner.ports import StoreFailed
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.repositories.atlas import (
    FIELDS,
    BlockedGroup,
    Place,
    Placed,
    Waits,
    group_blocked,
)
from provisioner.store.repositories.atlas import Facts as AtlasFacts
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Selects nodes by an expression, a bounded number of rows at a time.
#
# The expression is evaluated on node after node, in the order of ids. So a page may hold fewer
# nodes than its limit, or none, while there are more: the cursor says where the search stopped.


HIDDEN: Facts = {"reason": (), "tag": ()}  # the staff's words, which no tenant searches by
LOOKED_MAX = 700  # nodes that one page reads: some 15 ms (`make bench NAME=api`)


@dataclass(frozen=True)
class Picked:
    """The selection of nodes.

    `tenant` not "": of that tenant only, whatever the expression says.
    """

    where: str
    kind: NodeKind | None
    tenant: str


async def select_nodes(
    store: SqlStore, matrix: Matrix, now: float, wanted: Picked, after: str, limit: int
) -> tuple[tuple[Node, ...], str]:
    """Return the nodes, and the id to continue after ("": no more). Refused if it is wrong."""
    asked = wanted.where.strip()
    expression = parse_where(wanted.where, staff=not wanted.tenant) if asked else None
    narrowed: dict[str, Collection[str]] = {}
    if wanted.kind is not None:
        narrowed["kind"] = {wanted.kind.value}
    if wanted.tenant:
        narrowed["tenant"] = {wanted.tenant}
    looks = limit if expression is None else LOOKED_MAX
    rows = await store.nodes.list_page(after=after, limit=looks + 1, narrowed=narrowed)
    selected: list[Node] = []
    names = [row.id for row in rows[:looks]]
    more = None
    if expression is not None:
        more = await begin_reading(expression, store, matrix, now, names)
    hidden = HIDDEN if wanted.tenant else {}
    for row in rows[:looks]:
        if (
            expression is None
            or more is None
            or expression.matches_facts({**read_fields(row), **more.read(row), **hidden})
        ):
            selected.append(row)
            if len(selected) == limit:
                return tuple(selected), "" if row is rows[-1] else row.id
    return tuple(selected), rows[looks - 1].id if len(rows) > looks else ""


@lru_cache(maxsize=256)
def _parsed(text: str, *, staff: bool) -> Expression:
    return parse(text, ABOUT_FIELDS if staff else TENANT_FIELDS, "where")


def parse_where(text: str, *, staff: bool) -> Expression:
    """Return an expression over the fields that a caller may see. Raises Refused."""
    try:
        return _parsed(text, staff=staff)
    except InputError as error:
        raise refuse_expression(error, "where") from None


# ------------------------------------------------------------------------------
# Wakes the listeners that wait for new rows of the journal.
#
# One query per second serves all of them together, and none is made while there is no listener; the
# journal's number is the cursor.


LOOK_S = 1.0  # seconds of delay of an event; another process may have written it


class Feed:
    """The feed of new rows. `head` reads the number of the newest row."""

    def __init__(self, head: Callable[[], Awaitable[int]]) -> None:
        self._head = head
        self._seen = 0
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.listeners = 0  # number of listeners that wait now

    async def wait_for_newer(self, than: int, timeout_s: float) -> bool:
        """Return whether there is a row after `than` within this time."""
        self.listeners += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look(), name="journal feed")
            async with asyncio.timeout(timeout_s):
                while self._seen <= than:
                    await self._news.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.listeners -= 1

    async def _look(self) -> None:
        while self.listeners:
            try:
                head = await self._head()
            except StoreFailed:
                return  # the daemon ends by itself
            if head > self._seen:
                self._seen = head
                self._news.set()
                self._news = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        await end_tasks(self._looking)


PLACES_AT_ONCE = 8192  # rows of one turn of the readers
READ_AT_ONCE = 1024  # bodies; some 30 ms of the store's thread, so that others get their turn
CHANGED_MAX = 5000  # nodes of one answer or event
_STAFF_ONLY = frozenset(map(FIELDS.index, ("reason", "tag")))
_TENANT = FIELDS.index("tenant")


class Room(Record):
    """Hosts of one place. `free`: certified and without a tenant."""

    place: str = Field(description='"pod 0, unit 3", or the number of a rail.')
    hosts: int
    certified: int = Field(description="Certified or released.")
    free: int


class Capacity(Record):
    """Hosts that are not retired, by scalable unit and by rail."""

    hosts: int
    certified: int
    free: int
    units: tuple[Room, ...]
    rails: tuple[Room, ...] = Field(description="Hosts that have a cable of each rail.")


class Atlas:
    """Where every node is and what it is, by generation; and the answers made of it."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[int, AtlasFacts]] = {}
        self._known: dict[AtlasFacts, AtlasFacts] = {}  # nodes of a rack share one
        self._answers: dict[str, tuple[str, bytes, bytes]] = {}
        self._turn = asyncio.Lock()
        self._places: dict[str, Place] = {}
        self._known_places: dict[Place, Place] = {}  # nodes of a unit share one
        self._places_count = Counter[Place]()
        self._blocked: dict[str, tuple[str, Waits]] = {}
        self._places_seen = 0  # number of the newest change among them
        self._places_turn = asyncio.Lock()

    async def build_answer(self, store: SqlStore, tenant: str | None) -> tuple[str, bytes, bytes]:
        """(ETag, JSON, the same packed) of all nodes, or of one tenant's; made once for all."""
        async with self._turn:
            seq = (await store.journal.get_head())[0]
            tag = f'"j{seq}-{await store.atlas.get_mark()}"'
            key = "" if tenant is None else f"t{tenant}"
            kept = self._answers.get(key)
            if kept is not None and kept[0] == tag:
                return kept
            change = await store.atlas.get_newest_change()  # before the rows: they are not older
            await self._look(store)
            raw = await asyncio.to_thread(format_map, seq, self._rows(tenant), change)
            made = tag, raw, await asyncio.to_thread(gzip.compress, raw, 5)
            if key not in self._answers and len(self._answers) >= 64:
                self._answers.clear()
            self._answers[key] = made
            return made

    async def count_capacity(self, store: SqlStore) -> Capacity:
        async with self._places_turn:
            await self._look_at_places(store)
            return build_capacity(self._places_count)

    async def list_blocked(
        self, store: SqlStore, with_case: Collection[str]
    ) -> tuple[BlockedGroup, ...]:
        """Return the nodes that wait for a remedy, by group, without those that have a case."""
        async with self._places_turn:
            await self._look_at_places(store)
            return group_blocked(self._blocked, with_case)

    async def _look_at_places(self, store: SqlStore) -> None:
        """Read the places that changed since the last look, and all where a node is gone."""
        total = sum(group[-1] for group in await store.nodes.count_groups(None))
        while moved := await store.atlas.list_moved(self._places_seen, PLACES_AT_ONCE):
            before = self._places_seen
            self._put(moved)
            if self._places_seen == before:
                break  # only nodes whose number is damaged, which come at each look
        if len(self._places) == total:
            return
        self._places = {}
        self._places_count = Counter()
        self._blocked = {}
        after = ""
        while placed := await store.atlas.list_places(after, PLACES_AT_ONCE):
            self._put(placed)
            after = placed[-1].node

    def _put(self, placed: Sequence[Placed]) -> None:
        for change, name, place, waits in placed:
            old = self._places.get(name)
            if old is not None:
                self._places_count[old] -= 1
            self._places[name] = self._known_places.setdefault(place, place)
            self._places_count[place] += 1
            self._places_seen = max(self._places_seen, change)
            if waits is None or place.state == State.RETIRED:
                self._blocked.pop(name, None)
            else:
                self._blocked[name] = place.state, waits

    async def _look(self, store: SqlStore) -> None:
        """Read what changed since the last look."""
        now = dict(await store.atlas.list_generations())
        for gone in self._facts.keys() - now.keys():
            del self._facts[gone]
        changed = [n for n, g in now.items() if self._facts.get(n, (-1,))[0] != g]
        for begin in range(0, len(changed), READ_AT_ONCE):
            names = changed[begin : begin + READ_AT_ONCE]
            for name, generation, facts in await store.atlas.list_facts(names):
                self._facts[name] = generation, self._known.setdefault(facts, facts)
        if len(self._known) > 4 * len(self._facts) + 1000:
            self._known = {facts: facts for _, facts in self._facts.values()}

    def _rows(self, tenant: str | None) -> list[tuple[str, AtlasFacts]]:
        rows = [(name, facts) for name, (_, facts) in sorted(self._facts.items())]
        return rows if tenant is None else select_tenant(rows, tenant)


async def read_changes(
    store: SqlStore, since: int, tenant: str | None, limit: int
) -> tuple[bytes, int, int]:
    """Return (map of the nodes that changed later, its newest change, number of changed nodes)."""
    seq = (await store.journal.get_head())[0]
    changed = await store.atlas.list_changed(since, limit)
    rows = [(n, f) for n, _, f in await store.atlas.list_facts([name for name, _ in changed])]
    newest = max(since, *(number for _, number in changed)) if changed else since
    shown = rows if tenant is None else select_tenant(rows, tenant)
    return format_map(seq, shown, newest), newest, len(changed)


def select_tenant(
    rows: Iterable[tuple[str, AtlasFacts]], tenant: str
) -> list[tuple[str, AtlasFacts]]:
    """Its own only, without what our words say of them."""
    own = [(n, f) for n, f in rows if tenant and f[_TENANT] == (tenant,)]
    return [
        (n, tuple(() if i in _STAFF_ONLY else values for i, values in enumerate(f))) for n, f in own
    ]


def build_capacity(counts: Mapping[Place, int]) -> Capacity:
    """Return the room of a fleet. A host whose row is damaged is in no unit, and never free."""
    total = [0, 0, 0]
    units: dict[tuple[int, int], list[int]] = {}
    rails: dict[int, list[int]] = {}
    for place, number in counts.items():
        if place.kind != NodeKind.HOST or place.state == State.RETIRED or not number:
            continue
        certified = number if place.state in (State.CERTIFIED, State.RELEASED) else 0
        is_free = place.state == State.CERTIFIED and not place.taken and place.unit is not None
        rooms = [rails.setdefault(r, [0, 0, 0]) for r in place.rails if r >= 0]
        if place.unit is not None:
            rooms.append(units.setdefault(place.unit, [0, 0, 0]))
        for room in (total, *rooms):
            for column, more in enumerate((number, certified, number if is_free else 0)):
                room[column] += more
    return Capacity(
        hosts=total[0],
        certified=total[1],
        free=total[2],
        units=tuple(
            _build_room(f"pod {pod}, unit {unit}", units[pod, unit]) for pod, unit in sorted(units)
        ),
        rails=tuple(_build_room(str(rail), rails[rail]) for rail in sorted(rails)),
    )


def _build_room(place: str, counts: list[int]) -> Room:
    return Room(place=place, hosts=counts[0], certified=counts[1], free=counts[2])


def format_map(seq: int, rows: Sequence[tuple[str, AtlasFacts]], change: int = 0) -> bytes:
    fields = {}
    for number, name in enumerate(FIELDS):
        places: dict[tuple[str, ...], int] = {}
        index = [places.setdefault(f[number], len(places)) for _, f in rows]
        fields[name] = {"values": list(places), "index": index}
    names = [name for name, _ in rows]
    view = {"seq": seq, "change": change, "nodes": names, "fields": fields}
    return json.dumps(view, separators=(",", ":")).encode()
