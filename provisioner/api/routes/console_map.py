"""Routes of the whole fleet at once: by column, each distinct value written once, compressed.

65,536 nodes take some 2 MB in this form, and 200 KB compressed. A node's place is read once for
each of its generations and cached; an answer is cached until the journal or a node changes.

Certificates, alerts and waves are no field of a node: its record does not change when an alert is
cleared or a day of its certificate is over. Their words are read anew for each answer.
"""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from provisioner.api.console_pages import accepts_gzip
from provisioner.api.fleet_atlas import CHANGED_MAX, format_map, read_changes, select_tenant
from provisioner.api.parts import Ask, Reply
from provisioner.api.route import ANYBODY, VIEWERS, Nothing, Route
from provisioner.model.base import Record
from provisioner.store.repositories.atlas import MarkKind

NAMES_MAX = 200


class MapColumn(Record):
    """One field of every node: `index` points into `values`; a value may be several words."""

    values: tuple[tuple[str, ...], ...]
    index: tuple[int, ...]


class FleetMap(Record):
    """The fleet by column. `ports` has "RAIL SWITCH" for each cable."""

    seq: int = Field(
        description="Number of the journal's row that this is valid for; continue there."
    )
    change: int = Field(0, description="Number of the newest change of a node; see `since`.")
    nodes: tuple[str, ...]
    fields: dict[str, MapColumn]


class MapQuery(Nothing):
    """The selection of nodes."""

    nodes: str = Field(
        "", max_length=16_000, description="These only, by comma; at most 200. Without: all."
    )
    since: int = Field(
        -1,
        ge=-1,
        le=2**53,
        description="Only nodes that changed after this number (`change` of an earlier answer), at "
        "most 5,000: ask again from the new one until there is none. -1: all.",
    )


class MarkQuery(Nothing):
    """The kind of words."""

    by: MarkKind = Field(MarkKind.CERTIFICATE, description="Kind of the words.")


class FleetMarks(Record):
    """A word of each node, column by column: `index` points into `values`."""

    values: tuple[str, ...] = Field(description="Distinct words, by name.")
    nodes: tuple[str, ...] = Field(description="Nodes that have a word, by name.")
    index: tuple[int, ...] = Field(description="The place of each node's word in `values`.")


async def show(ask: Ask) -> web.Response:
    """Return the fleet, or a few of its nodes."""
    store = ask.parts.store
    tenant = None if ask.caller.staff else ask.caller.tenant
    names = [n for n in ask.query.nodes.split(",") if n][:NAMES_MAX]
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if ask.query.since >= 0:
        raw, _, _ = await read_changes(store, ask.query.since, tenant, CHANGED_MAX)
        return web.Response(body=raw, content_type="application/json", headers=headers)
    if names:
        seq = (await store.journal.get_head())[0]
        rows = [(n, f) for n, _, f in await store.atlas.list_facts(names)]
        raw = format_map(seq, rows if tenant is None else select_tenant(rows, tenant))
        return web.Response(body=raw, content_type="application/json", headers=headers)
    tag, raw, packed = await ask.parts.atlas.build_answer(store, tenant)
    headers["ETag"] = tag
    if accepts_gzip(ask.request):
        raw = packed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=raw, content_type="application/json", headers=headers)


async def show_marks(ask: Ask) -> Reply:
    """Return the words of one kind."""
    rows = await ask.parts.store.atlas.list_marks(ask.query.by, ask.now)
    values = tuple(sorted({word for _, word in rows}))
    places = {word: place for place, word in enumerate(values)}
    marks = FleetMarks(
        values=values,
        nodes=tuple(node for node, _ in rows),
        index=tuple(places[word] for _, word in rows),
    )
    return Reply(marks)


ROUTES = (
    Route(
        "GET",
        "/fleet/map",
        "show_fleet_map",
        "nodes",
        "Show every node with the fields for filters, column by column.",
        ANYBODY,
        show,
        {200: FleetMap},
        query=MapQuery,
    ),
    Route(
        "GET",
        "/fleet/marks",
        "show_fleet_marks",
        "nodes",
        "Show when certificates end, active alerts, or waves of running campaigns, for each node.",
        VIEWERS,
        show_marks,
        {200: FleetMarks},
        query=MarkQuery,
        heavy=True,
    ),
)
