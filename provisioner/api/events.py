"""Routes of what happened: pages of the journal, a stream with replay, and the audit of people.

The journal is append-only: the number of a row is the cursor, for pages and for `Last-Event-ID`.
A tenant is told that something happened to a node of its own since it is where it is now, and
nothing of what our words say about it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from pydantic import Field

from provisioner.api.console_cookie import identify
from provisioner.api.cursor import cursor, place
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import no
from provisioner.api.route import ANYBODY, VIEWERS, Paging, Route
from provisioner.model.base import Record
from provisioner.model.events import list_names, name_kind
from provisioner.model.events.event import EventKind

TAG = "events"
PAGE = 200  # rows that a stream reads at once
ALIVE_S = 15.0  # a comment this often: proxies cut silent connections after a minute
# what people did
AUDIT = (
    EventKind.ASKED,
    EventKind.REQUEST,
    EventKind.TOKEN,
    EventKind.SESSION,
    EventKind.TENANT,
    EventKind.LIMITED,
    EventKind.JOURNAL_ARCHIVED,
    EventKind.JOURNAL_PRUNED,
)
STALLED_S = 30.0  # a listener that takes nothing for so long does not listen
SEQ_MAX = 2**53  # what JSON's readers can hold


class Event(Record):
    """One row of the journal."""

    seq: int
    at: float
    kind: str
    node: str = ""
    detail: dict[str, Any] = Field(default_factory=dict)


class AuditRow(Event):
    """One row of the journal, with its place in the chain."""

    sha256: str = Field(description="Over this row and the one before.")


class EventPage(Record):
    """A part of the journal, the oldest first. `next` is where to go on, also when it is empty."""

    items: tuple[Event, ...]
    next: str = ""


class AuditPage(Record):
    """What people asked for, the newest first."""

    items: tuple[AuditRow, ...]
    next: str = ""


class AuditHead(Record):
    """The newest row. Keep it elsewhere: `provisioner audit verify --known ROWS:HEAD`."""

    rows: int
    head: str


class EventQuery(Record):
    """Which rows."""

    limit: int = Field(100, ge=1, le=500, description="Rows of one page.")
    cursor: str = Field("", max_length=400, description="`next` of the page before.")
    node: str = Field("", max_length=128, description="Of this node only.")
    kind: str = Field("", max_length=64, description="Of this kind only.")


class StreamQuery(Record):
    """Where a stream begins."""

    after: int = Field(
        -1, ge=-1, le=SEQ_MAX, description="Number of the last row that is known; -1: from now on."
    )
    node: str = Field("", max_length=128, description="Of this node only.")
    kind: str = Field("", max_length=64, description="Of this kind only.")


async def page(ask: Ask) -> Reply:
    """A part of it."""
    started = place(ask.query.cursor, int)
    after = int(started[0]) if started else 0
    node, kinds = ask.query.node, list_names(ask.query.kind)
    rows, last = await ask.parts.store.journal.list_page(
        after=after, limit=ask.query.limit, kinds=kinds, node=node
    )
    items = tuple(await _seen(ask, rows))
    return Reply(EventPage(items=items, next=cursor(max(last, after))))


async def _seen(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> list[Event]:
    """The rows as the caller may see them."""
    if ask.caller.staff:
        return [_event(row) for row in rows]
    shown = []
    nodes: dict[str, Any] = {}
    for row in rows:
        name = str(row["node"])
        if name and name not in nodes:
            nodes[name] = await ask.parts.store.nodes.get(name)
        node = nodes.get(name)
        if node is not None and ask.may_see(node) and row["at"] >= node.entered_at:
            shown.append(_event(row).model_copy(update={"detail": {}}))
    return shown


def _event(row: Mapping[str, Any]) -> Event:
    fields = ("seq", "at", "kind", "node", "detail")
    return Event(**{name: row[name] for name in fields} | {"kind": name_kind(row["kind"])})


async def audit(ask: Ask) -> Reply:
    """The newest first."""
    started = place(ask.query.cursor, int)
    before = int(started[0]) if started else 0
    rows, last = await ask.parts.store.journal.list_page(
        after=before, limit=ask.query.limit, kinds=AUDIT, backwards=True
    )
    items = tuple(AuditRow(**_event(row).model_dump(), sha256=row["digest"]) for row in rows)
    return Reply(AuditPage(items=items, next=cursor(last) if last > 1 else ""))


async def head(ask: Ask) -> Reply:
    """To be kept elsewhere."""
    rows, digest = await ask.parts.store.journal.get_head()
    return Reply(AuditHead(rows=rows, head=digest))


async def stream(ask: Ask) -> web.StreamResponse:
    """Server-sent events: what was missed since the cursor, then what happens."""
    after = await _beginning(ask)
    with ask.parts.callers.hold_stream(ask.caller):
        answer = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        try:
            async with asyncio.timeout(ask.parts.settings.api_stream_life_s):
                await _follow(ask, answer, after)
        except (ConnectionError, TimeoutError):
            pass  # the listener is gone, or goes on with a new stream
        if ask.request.transport is not None and answer.prepared:
            answer.force_close()
    return answer


async def _follow(ask: Ask, answer: web.StreamResponse, after: int) -> None:
    """Write events until the token is no longer good."""
    feed = ask.parts.feed
    await answer.prepare(ask.request)
    await _write(ask, answer, f"id: {after}\nevent: cursor\ndata: {after}\n\n".encode())
    while await _still_good(ask):
        after, text = await _next(ask, after)
        if text:
            await _write(ask, answer, text)
        elif not await feed.newer(after, ALIVE_S):
            await _write(ask, answer, b": alive\n\n")


async def _write(ask: Ask, answer: web.StreamResponse, text: bytes) -> None:
    """Write to a listener; one that takes nothing for STALLED_S is cut off."""
    try:
        async with asyncio.timeout(STALLED_S):
            await answer.write(text)
    except TimeoutError:
        if ask.request.transport is not None:
            ask.request.transport.abort()
        raise ConnectionError("the listener takes nothing") from None


async def _beginning(ask: Ask) -> int:
    """`Last-Event-ID` of a listener that comes back goes before `after`."""
    known = ask.request.headers.get("Last-Event-ID", "")
    if known:
        if not (known.isascii() and known.isdigit() and len(known) < 17):
            unblock = "Send the id of an event, or begin without one."
            raise no(400, "cursor", "Last-Event-ID is no number of an event", unblock)
        return int(known)
    if ask.query.after >= 0:
        return int(ask.query.after)
    return (await ask.parts.store.journal.get_head())[0]


async def _still_good(ask: Ask) -> bool:
    """A token or a session that is over ends its streams; an open stream is no use of a session."""
    return await identify(ask.parts, ask.request, attended=False) == ask.caller


async def _next(ask: Ask, after: int) -> tuple[int, bytes]:
    """The rows after a number, as text, and the number that was looked at last."""
    kinds = list_names(ask.query.kind)
    rows, last = await ask.parts.store.journal.list_page(
        after=after, limit=PAGE, kinds=kinds, node=ask.query.node
    )
    told = [
        f"id: {e.seq}\nevent: {_line(e.kind)}\ndata: {e.model_dump_json()}\n\n"
        for e in await _seen(ask, rows)
    ]
    if last > after and not told:  # nothing for this listener, who need not ask again
        told = [f"id: {last}\nevent: cursor\ndata: {json.dumps(last)}\n\n"]
    return max(last, after), "".join(told).encode()


def _line(kind: str) -> str:
    return "".join(c if c.isprintable() else " " for c in kind)[:64]


ROUTES = (
    Route("GET", "/events", "list_events", TAG, "What happened, the oldest first.", ANYBODY, page,
          {200: EventPage}, query=EventQuery),
    Route("GET", "/events/stream", "stream_events", TAG,
          "The same as server-sent events, with replay: send `Last-Event-ID`, or `after`.",
          ANYBODY, stream, {200: Event}, query=StreamQuery, media="text/event-stream",
          refusals={429: "The caller has too many streams.", 503: "Too many streams are open."}),
    Route("GET", "/audit", "list_audit", "audit", "What people asked for, the newest first.",
          VIEWERS, audit, {200: AuditPage}, query=Paging),
    Route("GET", "/audit/head", "show_audit_head", "audit",
          "Number and digest of the newest row, to be kept elsewhere.", VIEWERS, head,
          {200: AuditHead}),
)  # fmt: skip
