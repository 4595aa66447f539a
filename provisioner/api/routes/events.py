"""Routes of events: pages of the journal, a stream with replay, and the audit of people.

The journal is append-only: the number of a row is the cursor, for pages and for `Last-Event-ID`. A
tenant learns that something happened to a node of its own since its allocation, and nothing of the
staff's text about it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal, Self

from aiohttp import web
from pydantic import Field, model_validator

from provisioner.api.changes import Forecast, Outcome, build_failure, decode_cursor, encode_cursor
from provisioner.api.console_pages import identify
from provisioner.api.fleet_atlas import CHANGED_MAX, read_changes
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Effect, Paging, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.events import list_names, name_kind
from provisioner.model.events.event import EventKind
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import AT_EDGE, Detail, Instant, InstantOrNone
from provisioner.store.repositories.journal_archives import ROWS_MAX, Actor

# ------------------------------------------------------------------------------
# Routes of the journal's past: write older rows into signed files, remove rows that files hold.
#
# The files are in the daemon's own directory of archives: a caller names no path on its machine.


AUDIT_ARCHIVES_TAG = "audit"
DIRECTORY = "archives"  # of the data directory
SUBJECT = "journal"
DAY_S = 86_400.0


class Archiving(Record):
    """The body of an archiving: the age of the rows, by one of two fields."""

    until: Instant | None = Field(default=None, description="Archive rows up to this time.")
    older_than_days: float | None = Field(
        default=None, ge=0, le=36_500, description="Archive rows older than so many days."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.until is None) == (self.older_than_days is None):
            raise ValueError("give `until` or `older_than_days`, one of them")
        return self


async def archive_journal(ask: Ask) -> Reply:
    """Ask for an archiving. A relative age counts from the request, not from its approval."""
    _require_directory(ask.parts)
    until = ask.body.until
    if until is None:
        until = ask.now - ask.body.older_than_days * DAY_S
    arguments = {"until": until}
    kind = ChangeKind.AUDIT_ARCHIVE
    return await ask.parts.works.submit_change(ask, kind, SUBJECT, "", arguments)


async def prune_journal(ask: Ask) -> Reply:
    _require_directory(ask.parts)
    return await ask.parts.works.submit_change(ask, ChangeKind.AUDIT_PRUNE, SUBJECT, "", {})


async def change_journal(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out an archiving or a prune."""
    assert parts.directory is not None
    assert parts.signer is not None
    directory = parts.directory / DIRECTORY
    actor = Actor(asked.asked_by, parts.clock.now(), version("gpu-provisioner"))
    archives = parts.store.archives
    try:
        if asked.kind is ChangeKind.AUDIT_PRUNE:
            survey = await archives.survey_removal(directory, actor.now)
            removed = await archives.prune_rows(directory, parts.signer, actor)
            return Outcome(RequestState.DONE, {"removed": removed, "kept": survey.staying})
        until = float(asked.arguments["until"])
        written = await archives.write_archives(directory, until, parts.signer, actor)
    except InputError as error:
        return build_failure(_build_blocker(error))
    files = [
        {
            "file": str(one.file),
            "first": one.statement.first,
            "last": one.statement.last,
            "head": one.statement.head,
            "sha256": one.sha256,
        }
        for one in written
    ]
    rows = sum(one.statement.last - one.statement.first + 1 for one in written)
    result = {"archived": rows, "directory": str(directory), "archives": files}
    return Outcome(RequestState.DONE, result)


async def foresee_archiving(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the rows that would be written, and into how many files."""
    assert parts.directory is not None
    directory = parts.directory / DIRECTORY
    try:
        first, last = await parts.store.archives.find_rows(
            directory, float(asked.arguments["until"])
        )
    except InputError as error:
        return Forecast(blockers=(_build_blocker(error),))
    if last < first:
        return Forecast(("No row is old enough that no archive holds yet.",))
    files = -(-(last - first + 1) // ROWS_MAX)
    line = f"Rows {first} to {last} would be written into {directory}: {files} signed files."
    return Forecast((line, "Nothing is removed from the database: `audit prune` does."))


async def foresee_prune(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the number of rows that would go, and the reasons of those that stay."""
    assert parts.directory is not None
    assert asked.kind is ChangeKind.AUDIT_PRUNE
    directory = parts.directory / DIRECTORY
    try:
        survey = await parts.store.archives.survey_removal(directory, parts.clock.now())
    except InputError as error:
        return Forecast(blockers=(_build_blocker(error),))
    lines = (
        f"{survey.going} rows are removed; {survey.archives} archives in {directory} hold them.",
        f"{survey.staying} rows stay, since live decisions need them.",
        *(f"  {count}: {why}" for why, count in sorted(survey.reasons.items())),
    )
    return Forecast(lines)


def _require_directory(parts: ApiParts) -> None:
    """Raise Refused in a process that has no data directory, or no signing key."""
    if parts.directory is None or parts.signer is None:
        detail = "This process has no data directory with a signing key"
        raise build_refusal(409, "vault", detail, "Ask the daemon of the site.")


def _build_blocker(error: InputError) -> Blocker:
    return Blocker(
        reason=Reason.PRECONDITION, subject=error.source, detail=error.problem, unblock=error.remedy
    )


_ASKED = {200: OperationView, 202: OperationView}
AUDIT_ARCHIVES_ROUTES = (
    Route(
        "POST",
        "/audit/archives",
        "archive_journal",
        AUDIT_ARCHIVES_TAG,
        "Write older rows into signed files that continue each other; nothing is removed.",
        OPERATORS,
        archive_journal,
        _ASKED,
        effect=Effect.LASTING,
        body=Archiving,
        refusals={409: "An archive is not intact, or the process has no signing key."},
        example={"older_than_days": 90},
        site=True,
    ),
    Route(
        "POST",
        "/audit/prune",
        "prune_journal",
        AUDIT_ARCHIVES_TAG,
        "Remove rows that verified archives hold; rows that live decisions need stay.",
        OPERATORS,
        prune_journal,
        _ASKED,
        effect=Effect.LASTING,
        refusals={409: "The journal or an archive is not intact, or a restore is not settled."},
        site=True,
    ),
)


TAG = "events"
TOLD_MAX = 300  # characters of what an act changed
PAGE = 200  # rows that a stream reads at once
ALIVE_S = 15.0  # seconds between comments: proxies cut silent connections after a minute
# kinds of events that record actions of people
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
DONE = ("begun", "ended", "made", "revoked")  # fields of events of tokens and sessions
INTERNAL = ("generation", "why", "reason", "note", "sealed")  # told elsewhere, or for us alone
STALLED_S = 30.0  # seconds; a listener that takes nothing for so long is cut off
SEQ_MAX = 2**53  # the largest integer that readers of JSON hold exactly


class Event(Record):
    """One row of the journal."""

    seq: int
    at: Instant
    kind: str
    node: str = ""
    detail: Detail = Field(default_factory=dict)


class AuditRow(Event):
    """One row of the journal, with its place in the chain."""

    sha256: str = Field(description="Digest over this row and the previous one.")
    who: str = Field("", description="Who did it.")
    what: str = Field("", description="The act: the change or the request, in its own word.")
    on: str = Field("", description="The object: its id or name.")
    state: str = Field("", description="How far it is: waiting, done, refused.")
    before: str = Field("", description="What was there before, where the act recorded it.")
    after: str = Field("", description="What it was changed to, where the act recorded it.")
    why: str = Field("", description="The reason that was given.")


class EventPage(Record):
    """A page of the journal, the oldest first unless the newest were asked for.

    `next` is the place to continue, also when it is empty.
    """

    items: tuple[Event, ...]
    next: str = ""


class AuditPage(Record):
    """Requests of people, the newest first."""

    items: tuple[AuditRow, ...]
    next: str = ""


class AuditHead(Record):
    """The newest row. Store it elsewhere: `provisioner audit verify --known ROWS:HEAD`."""

    rows: int
    head: str


class ExportView(Record):
    """A receiver of the exported journal, and how far it has taken it."""

    receiver: str = Field(description="Receiver: syslog or otlp.")
    position: int = Field(description="Number of the last row that it has taken.")
    waiting: int = Field(description="Rows of the journal after that one.")
    rejected: int = Field(description="Rows that it refused for good.")
    taken_at: InstantOrNone = Field(description="Time at which it took rows last; null: never.")
    failing_since: InstantOrNone = Field(
        description="Time since which every try has failed; null: the last one went well."
    )
    error: str = Field(description="Reason of the last failure or refusal; empty: none yet.")


class ExportList(Record):
    """All receivers of the exported journal, by name."""

    items: tuple[ExportView, ...]


class EventQuery(Record):
    """The selection of rows."""

    limit: int = Field(100, ge=1, le=500, description="Number of rows of one page.")
    cursor: str = Field("", max_length=400, description="`next` of the previous page.")
    node: str = Field("", max_length=128, description="Select this node.")
    kind: str = Field("", max_length=64, description="Select this kind.")
    newest: Literal["true", "false"] = Field("false", description="true: the newest rows first.")


class StreamQuery(Record):
    """The beginning of a stream."""

    after: int = Field(
        -1, ge=-1, le=SEQ_MAX, description="Number of the last row that is known; -1: from now on."
    )
    node: str = Field("", max_length=128, description="Select this node.")
    kind: str = Field("", max_length=64, description="Select this kind.")
    fleet: int = Field(
        -1,
        ge=-1,
        le=SEQ_MAX,
        description="Send events `fleet` too: the map of the nodes that changed after this number "
        "(`change` of `GET /fleet/map` or of the last such event). -1: none.",
    )


async def list_events(ask: Ask) -> Reply:
    started = decode_cursor(ask.query.cursor, int)
    after = int(started[0]) if started else 0
    node = ask.query.node
    kinds = list_names(ask.query.kind)
    backwards = ask.query.newest == "true"
    rows, last = await ask.parts.store.journal.list_page(
        after=after, limit=ask.query.limit, kinds=kinds, node=node, backwards=backwards
    )
    items = tuple(await _seen(ask, rows))
    if backwards:
        return Reply(EventPage(items=items, next=encode_cursor(last) if last > 1 else ""))
    return Reply(EventPage(items=items, next=encode_cursor(max(last, after))))


async def _seen(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> list[Event]:
    """Return the rows in the form that the caller may see."""
    if ask.caller.staff:
        return [build_event(row) for row in rows]
    shown = []
    nodes: dict[str, Any] = {}
    for row in rows:
        name = str(row["node"])
        if name and name not in nodes:
            nodes[name] = await ask.parts.store.nodes.get(name)
        node = nodes.get(name)
        if node is not None and ask.may_see(node) and row["at"] >= node.entered_at:
            shown.append(build_event(row).model_copy(update={"detail": {}}))
    return shown


def build_event(row: Mapping[str, Any]) -> Event:
    """Return a row of the journal by the present name of its kind."""
    fields = ("seq", "at", "kind", "node", "detail")
    return Event(**{name: row[name] for name in fields} | {"kind": name_kind(row["kind"])})


async def list_audit(ask: Ask) -> Reply:
    """List requests of people, the newest first."""
    started = decode_cursor(ask.query.cursor, int)
    before = int(started[0]) if started else 0
    rows, last = await ask.parts.store.journal.list_page(
        after=before, limit=ask.query.limit, kinds=AUDIT, backwards=True
    )
    items = tuple(_audit_row(row) for row in rows)
    return Reply(AuditPage(items=items, next=encode_cursor(last) if last > 1 else ""))


def _audit_row(row: Mapping[str, Any]) -> AuditRow:
    """Return a row with its act in words: who, what, on which object, before and after."""
    event = build_event(row)
    detail = row["detail"]
    # of a token or a session, what was done and its record: {"begun": {"subject": …}}
    done, record = next(((n, v) for n, v in detail.items() if n in DONE and v), ("", ""))
    inner = record if isinstance(record, Mapping) else {"id": record}
    named = {**inner, **detail}
    arguments = detail.get("arguments")
    after = arguments if isinstance(arguments, Mapping) else detail.get("after", "")
    if isinstance(after, Mapping):
        after = {n: v for n, v in after.items() if n not in INTERNAL}
    about = ("subject", "tenant") if "arguments" in detail else ("token", "id", "tenant", "name")
    return AuditRow(
        **event.model_dump(),
        sha256=row["digest"],
        who=_first(named, ("by", "asked_by", "subject")),
        what=str(detail.get("kind") or detail.get("request") or f"{event.kind} {done}".strip()),
        on=str(row["node"] or "") or _first(named, about),
        state=str(detail.get("state") or detail.get("did") or ""),
        before=_name_values(detail.get("before", detail.get("was", ""))),
        after=_name_values(after),
        why=_first(named, ("why", "reason", "note")) or _first(after, ("why", "reason", "note")),
    )


def _first(record: object, names: Sequence[str]) -> str:
    """Return the first of these fields that says something."""
    if not isinstance(record, Mapping):
        return ""
    said = next((record[n] for n in names if record.get(n)), "")
    if isinstance(said, Mapping) and said.get("name"):  # the whole object: its name stands for it
        said = said["name"]
    return _name_values(said)


def _name_values(value: object) -> str:
    """Return a value in one bounded line; of many fields those that say something."""
    if isinstance(value, Mapping):
        said = [(k, v) for k, v in value.items() if v not in (None, "", [], {}, False)]
        return ", ".join(f"{k}={_name_value(v)}" for k, v in said)[:TOLD_MAX]
    return _name_value(value)[:TOLD_MAX]


def _name_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + _name_values(value) + "}"
    if isinstance(value, list | tuple):
        return " ".join(_name_value(v) for v in value)
    return "" if value is None else str(value)


async def show_head(ask: Ask) -> Reply:
    """Return the newest row's number and digest, to be stored elsewhere."""
    rows, digest = await ask.parts.store.journal.get_head()
    return Reply(AuditHead(rows=rows, head=digest))


async def list_exports(ask: Ask) -> Reply:
    """Return how far each receiver has taken the journal."""
    exports = await ask.parts.store.audit_exports.list()
    return Reply(ExportList(items=tuple(ExportView(**dict(e)) for e in exports)))


async def stream_events(ask: Ask) -> web.StreamResponse:
    """Send server-sent events: the events missed since the cursor, then new ones."""
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
            pass  # the listener is gone, or continues with a new stream
        if ask.request.transport is not None and answer.prepared:
            answer.force_close()
    return answer


async def _follow(ask: Ask, answer: web.StreamResponse, after: int) -> None:
    """Write events until the token is no longer valid."""
    feed = ask.parts.feed
    change = ask.query.fleet
    await answer.prepare(ask.request)
    await _write(ask, answer, f"id: {after}\nevent: cursor\ndata: {after}\n\n".encode())
    while await _still_good(ask):
        if change >= 0:
            change = await _write_changes(ask, answer, change)
        after, text = await _next(ask, after)
        if text:
            await _write(ask, answer, text)
        elif not await feed.wait_for_newer(after, ALIVE_S):
            await _write(ask, answer, b": alive\n\n")


async def _write_changes(ask: Ask, answer: web.StreamResponse, since: int) -> int:
    """Write the fields of the nodes that changed; return the number of the newest change.

    The event has no id: a listener continues at the journal's row, and at this number.
    """
    tenant = None if ask.caller.staff else ask.caller.tenant
    more = True
    while more:
        before = since
        raw, since, count = await read_changes(ask.parts.store, since, tenant, CHANGED_MAX)
        more = count == CHANGED_MAX and since > before
        if count:
            await _write(ask, answer, b"event: fleet\ndata: " + raw + b"\n\n")
    return since


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
    """Return the first row; `Last-Event-ID` of a returning listener precedes `after`."""
    last_id = ask.request.headers.get("Last-Event-ID", "")
    if last_id:
        if not (last_id.isascii() and last_id.isdigit() and len(last_id) < 17):
            unblock = "Send the id of an event, or begin without one."
            raise build_refusal(400, "cursor", "Last-Event-ID is no number of an event", unblock)
        return int(last_id)
    if ask.query.after >= 0:
        return int(ask.query.after)
    return (await ask.parts.store.journal.get_head())[0]


async def _still_good(ask: Ask) -> bool:
    """Return whether the caller's token or session is valid; a stream is no use of a session."""
    return await identify(ask.parts, ask.request, attended=False) == ask.caller


async def _next(ask: Ask, after: int) -> tuple[int, bytes]:
    """Return the rows after a number, as text, and the number of the last row that was read."""
    kinds = list_names(ask.query.kind)
    rows, last = await ask.parts.store.journal.list_page(
        after=after, limit=PAGE, kinds=kinds, node=ask.query.node
    )
    texts = [
        f"id: {e.seq}\nevent: {_line(e.kind)}\ndata: {e.model_dump_json(context=AT_EDGE)}\n\n"
        for e in await _seen(ask, rows)
    ]
    if last > after and not texts:  # nothing for this listener, which need not ask again
        texts = [f"id: {last}\nevent: cursor\ndata: {json.dumps(last)}\n\n"]
    return max(last, after), "".join(texts).encode()


def _line(kind: str) -> str:
    return "".join(c if c.isprintable() else " " for c in kind)[:64]


ROUTES = (
    Route(
        "GET",
        "/events",
        "list_events",
        TAG,
        "List events, the oldest first.",
        ANYBODY,
        list_events,
        {200: EventPage},
        query=EventQuery,
    ),
    Route(
        "GET",
        "/events/stream",
        "stream_events",
        TAG,
        "Follow events as server-sent events, with replay: send `Last-Event-ID`, or `after`.",
        ANYBODY,
        stream_events,
        {200: Event},
        query=StreamQuery,
        media="text/event-stream",
        refusals={429: "The caller has too many streams.", 503: "Too many streams are open."},
    ),
    Route(
        "GET",
        "/audit",
        "list_audit",
        "audit",
        "List requests of people, the newest first.",
        VIEWERS,
        list_audit,
        {200: AuditPage},
        query=Paging,
    ),
    Route(
        "GET",
        "/audit/head",
        "show_audit_head",
        "audit",
        "Show number and digest of the newest row, to be stored elsewhere.",
        VIEWERS,
        show_head,
        {200: AuditHead},
    ),
    Route(
        "GET",
        "/audit/exports",
        "list_audit_exports",
        "audit",
        "List how far each receiver has taken the exported journal, and its last failure.",
        VIEWERS,
        list_exports,
        {200: ExportList},
    ),
)
