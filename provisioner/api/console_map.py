"""Routes of the whole fleet at once: by column, each distinct value written once, and packed.

65,536 nodes are some 2 MB so, and 200 KB packed. What a node's body says of its place is read once
for each of its generations and kept; an answer is kept until the journal or a node moves on.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import Field
from sqlalchemy import Connection, func, select

from provisioner.api.console_pages import accepts_gzip
from provisioner.api.route import ANYBODY, Ask, Nothing, Route
from provisioner.model.base import Record
from provisioner.model.outcome import Reason
from provisioner.ports import DamagedRow
from provisioner.store.rows import page_rows
from provisioner.store.rows.records import parse_object
from provisioner.store.schema.schema import nodes

if TYPE_CHECKING:
    from provisioner.store.database.sql_store import SqlStore

FIELDS = (
    "kind", "state", "profile", "release", "tenant", "vrf", "placement", "site", "pod", "su",
    "rack", "ports", "reason",
)  # fmt: skip
READ_AT_ONCE = 1024  # bodies; some 30 ms of the store's thread, so that others get their turn
NAMES_MAX = 200
_REASON, _TENANT = FIELDS.index("reason"), FIELDS.index("tenant")

Facts = tuple[tuple[str, ...], ...]  # by FIELDS


class MapColumn(Record):
    """One field of every node: `index` points into `values`; a value may be several words."""

    values: tuple[tuple[str, ...], ...]
    index: tuple[int, ...]


class FleetMap(Record):
    """The fleet by column. `ports` has "RAIL SWITCH" for each cable."""

    seq: int = Field(description="Number of the journal's row that this holds for: go on there.")
    nodes: tuple[str, ...]
    fields: dict[str, MapColumn]


class MapQuery(Nothing):
    """Which nodes."""

    nodes: str = Field(
        "", max_length=16_000, description="These only, by comma; at most 200. Without: all."
    )


class Atlas:
    """Where every node is and what it is, by generation; and the answers made of it."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[int, Facts]] = {}
        self._known: dict[Facts, Facts] = {}  # nodes of a rack share one
        self._answers: dict[str, tuple[str, bytes, bytes]] = {}
        self._turn = asyncio.Lock()

    async def answer(self, store: SqlStore, tenant: str | None) -> tuple[str, bytes, bytes]:
        """(ETag, JSON, the same packed) of all nodes, or of one tenant's; made once for all."""
        async with self._turn:
            seq = (await store.read(page_rows.journal_head))[0]
            tag = f'"j{seq}-{await store.read(_sum)}"'
            key = "" if tenant is None else f"t{tenant}"
            kept = self._answers.get(key)
            if kept is not None and kept[0] == tag:
                return kept
            await self._look(store)
            raw = await asyncio.to_thread(_text, seq, self._rows(tenant))
            made = tag, raw, await asyncio.to_thread(gzip.compress, raw, 5)
            if key not in self._answers and len(self._answers) >= 64:
                self._answers.clear()
            self._answers[key] = made
            return made

    async def _look(self, store: SqlStore) -> None:
        """Read what changed since the last look."""
        now = dict(await store.read(_generations))
        for gone in self._facts.keys() - now.keys():
            del self._facts[gone]
        changed = [n for n, g in now.items() if self._facts.get(n, (-1,))[0] != g]
        for begin in range(0, len(changed), READ_AT_ONCE):
            names = changed[begin : begin + READ_AT_ONCE]
            for name, generation, facts in await store.read(partial(_read, names=names)):
                self._facts[name] = generation, self._known.setdefault(facts, facts)
        if len(self._known) > 4 * len(self._facts) + 1000:
            self._known = {facts: facts for _, facts in self._facts.values()}

    def _rows(self, tenant: str | None) -> list[tuple[str, Facts]]:
        rows = [(name, facts) for name, (_, facts) in sorted(self._facts.items())]
        return rows if tenant is None else _of_tenant(rows, tenant)


def _of_tenant(rows: Iterable[tuple[str, Facts]], tenant: str) -> list[tuple[str, Facts]]:
    """Its own only, without what our words say of them."""
    own = [(n, f) for n, f in rows if tenant and f[_TENANT] == (tenant,)]
    return [(n, (*f[:_REASON], (), *f[_REASON + 1 :])) for n, f in own]


def _sum(connection: Connection) -> str:
    """Moves on with every change of any node: generations only grow."""
    count, total = connection.execute(select(func.count(), func.sum(nodes.c.generation))).one()
    return f"{count}-{total or 0}"


def _generations(connection: Connection) -> list[tuple[str, int]]:
    return [(r[0], r[1]) for r in connection.execute(select(nodes.c.id, nodes.c.generation))]


def _read(connection: Connection, names: Sequence[str]) -> list[tuple[str, int, Facts]]:
    query = select(nodes.c.id, nodes.c.generation, nodes.c.body).where(nodes.c.id.in_(names))
    found = connection.execute(query.order_by(nodes.c.id))
    return [(r.id, r.generation, _facts(_body(r.id, r.body))) for r in found]


def _body(name: str, text: str) -> Mapping[str, Any]:
    """The fields of a stored node; of a damaged row, the reason why there are none."""
    try:
        return parse_object(text, f"nodes, {name}")
    except DamagedRow:
        return {"blockers": [{"reason": Reason.DAMAGED_ROW.value}]}


def _facts(body: Mapping[str, Any]) -> Facts:
    """What `select_expression.NODE_FIELDS` reads, from a stored node."""
    place = body.get("location") or {}
    ports = sorted({(int(p["rail"]), str(p["switch"])) for p in body.get("ports") or ()})
    plain = ("kind", "state", "profile", "release", "tenant", "vrf", "placement")
    return (
        *((str(body.get(name, "")),) for name in plain),
        (str(place.get("site", "site")),),
        (str(place.get("pod", 0)),),
        (str(place.get("scalable_unit", 0)),),
        (str(place.get("rack", "")),),
        tuple(f"{rail} {switch}" for rail, switch in ports),
        tuple(sorted({str(b["reason"]) for b in body.get("blockers") or ()})),
    )


def _text(seq: int, rows: Sequence[tuple[str, Facts]]) -> bytes:
    fields = {}
    for number, name in enumerate(FIELDS):
        places: dict[tuple[str, ...], int] = {}
        index = [places.setdefault(f[number], len(places)) for _, f in rows]
        fields[name] = {"values": list(places), "index": index}
    told = {"seq": seq, "nodes": [name for name, _ in rows], "fields": fields}
    return json.dumps(told, separators=(",", ":")).encode()


async def show(ask: Ask) -> web.Response:
    """The fleet, or a few nodes of it."""
    store, tenant = ask.parts.store, None if ask.caller.staff else ask.caller.tenant
    names = [n for n in ask.query.nodes.split(",") if n][:NAMES_MAX]
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if names:
        seq = (await store.read(page_rows.journal_head))[0]
        rows = [(n, f) for n, _, f in await store.read(partial(_read, names=names))]
        raw = _text(seq, rows if tenant is None else _of_tenant(rows, tenant))
        return web.Response(body=raw, content_type="application/json", headers=headers)
    tag, raw, packed = await ask.parts.atlas.answer(store, tenant)
    headers["ETag"] = tag
    if accepts_gzip(ask.request):
        raw, headers["Content-Encoding"] = packed, "gzip"
    return web.Response(body=raw, content_type="application/json", headers=headers)


ROUTES = (
    Route("GET", "/fleet/map", "show_fleet_map", "nodes",
          "Every node with what it can be filtered by, column by column.", ANYBODY, show,
          {200: FleetMap}, query=MapQuery),
)  # fmt: skip
