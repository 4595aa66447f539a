"""`ports.doors.Directory` on the daemon's own database, and whom it shuts out.

A person counts as shut out by a name where the directory has that name and no active person with
it. Names that a person had before count while it is not active: providers rename whom they
deactivate, and a session or a token bears the old name. The read is a part of each request, so that
every daemon of a site knows it at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from provisioner.model.access import RequestState, Session
from provisioner.model.directory import DirectoryEntry, EntryKind, ShutOut, Standing
from provisioner.model.events.request_events import DirectoryChanged
from provisioner.ports.doors import NameTaken
from provisioner.ports.errors import StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal, request_rows
from provisioner.store.rows.records import canonical, clean, parse_each
from provisioner.store.schema.directory_tables import directory_entries as entries
from provisioner.store.schema.directory_tables import directory_names as names
from provisioner.store.schema.schema import console_sessions as sessions

GONE_KEPT_S = 400 * 86400.0  # longer than any token lives, which a deleted person may have
GONE_CLEARED_MAX = 1000  # old rows that one write clears away
FORMER_MAX = 100  # names that a person had before, the newest


class SqlDirectoryRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get(self, kind: EntryKind, entry_id: str) -> DirectoryEntry | None:
        found = await self._transactions.read(lambda c: _read(c, kind, entries.c.id == entry_id))
        return found[0] if found else None

    async def list(self, kind: EntryKind, *, gone: bool = False) -> Sequence[DirectoryEntry]:
        return await self._transactions.read(lambda c: _read(c, kind, gone=gone))

    async def find(self, kind: EntryKind, name: str) -> Sequence[DirectoryEntry]:
        return await self._transactions.read(lambda c: _find(c, kind, name))

    async def count(self, kind: EntryKind) -> int:
        return await self._transactions.read(lambda c: _count(c, kind))

    async def save(self, entry: DirectoryEntry, by: str, now: float) -> ShutOut:
        return await self._transactions.write(lambda c: save_entry(c, entry, by, now))

    async def is_shut_out(self, called: Collection[str]) -> bool:
        """Return whether the directory has one of these names, and nobody active with it."""
        return await self._transactions.recall(is_shut_out, tuple(sorted(called)))


def is_shut_out(connection: Connection, called: Collection[str]) -> bool:
    wanted = {clean(name.casefold()) for name in called if name}
    joined = names.join(entries, names.c.entry == entries.c.id)
    query = select(names.c.name, entries.c.standing).select_from(joined)
    found: dict[str, bool] = {}
    for name, standing in connection.execute(query.where(names.c.name.in_(wanted))):
        found[name] = found.get(name, False) or standing == Standing.ACTIVE
    return not all(found.values())


def save_entry(connection: Connection, entry: DirectoryEntry, by: str, now: float) -> ShutOut:
    """Store an entry; see `Directory.save`."""
    before = _read(connection, entry.kind, entries.c.id == entry.id)
    if bool(entry.generation) != bool(before) or (
        before and before[0].generation != entry.generation
    ):
        raise StaleWrite(f"{entry.kind} {entry.id} is no longer at generation {entry.generation}")
    name = clean(entry.name.casefold())
    taken = (entries.c.name == name) & (entries.c.kind == entry.kind) & (entries.c.id != entry.id)
    if entry.standing is not Standing.GONE and connection.scalar(
        select(entries.c.id).where(taken & (entries.c.standing != Standing.GONE))
    ):
        raise NameTaken(entry.name)
    former = _list_former(entry, before[0] if before else None)
    fields = {"generation": entry.generation + 1, "changed_at": now, "former": former}
    stored = entry.model_copy(update=fields)
    _write(connection, stored, name, is_new=not before)
    ended = ShutOut()
    if entry.kind is EntryKind.PERSON and entry.standing is not Standing.ACTIVE:
        ended = _shut_out(connection, stored, by, now)
    _forget_gone(connection, stored, now)
    event = DirectoryChanged(
        entry=entry.id,
        kind_of_entry=entry.kind,
        name=entry.name,
        was=before[0].standing if before else None,
        standing=entry.standing,
        by=by,
        sessions=ended.sessions,
        tokens=ended.tokens,
        requests=ended.requests,
    )
    journal.append(connection, event, now)
    return ended


def _list_former(entry: DirectoryEntry, before: DirectoryEntry | None) -> tuple[str, ...]:
    had = (*before.names, *before.former) if before is not None else ()
    now = {clean(n.casefold()) for n in entry.names}
    return tuple(n for n in dict.fromkeys(had) if clean(n.casefold()) not in now)[:FORMER_MAX]


def _names_of(entry: DirectoryEntry) -> list[str]:
    """Return the names that the directory answers for: of whom is not active, the former too."""
    all_names = entry.names if entry.standing is Standing.ACTIVE else (*entry.names, *entry.former)
    return sorted({clean(n.casefold()) for n in all_names if n})


def _write(connection: Connection, stored: DirectoryEntry, name: str, *, is_new: bool) -> None:
    values = {
        "kind": str(stored.kind),
        "name": name,
        "standing": str(stored.standing),
        "made_at": stored.made_at,
        "changed_at": stored.changed_at,
        "generation": stored.generation,
        "body": canonical(stored.model_dump(mode="json")),
    }
    if is_new:
        connection.execute(insert(entries).values(id=stored.id, **values))
    else:
        connection.execute(update(entries).where(entries.c.id == stored.id).values(**values))
    connection.execute(delete(names).where(names.c.entry == stored.id))
    for each in _names_of(stored):
        connection.execute(insert(names).values(name=each, entry=stored.id))


def _shut_out(connection: Connection, person: DirectoryEntry, by: str, now: float) -> ShutOut:
    """End all that a person has; a name that another active person has too ends nothing."""
    own = [name for name in _names_of(person) if is_shut_out(connection, [name])]
    why = f"{person.name} was {'deleted' if person.standing is Standing.GONE else 'deactivated'}"
    why = f"{why} in the directory"[:200]
    living = select(sessions.c.id, sessions.c.body).where(sessions.c.ended_at == 0.0)
    rows = ((r.id, "", r.body) for r in connection.execute(living).all())
    theirs = [
        session
        for session in parse_each(connection, Session, "console_sessions", rows)
        if {n.casefold() for n in (session.subject, *session.also)} & set(own)
    ]
    which = sessions.c.id.in_([s.id for s in theirs])
    ended = request_rows.end_sessions(connection, which, why, now)
    subjects = set(own) | {s.subject.casefold() for s in theirs}
    revoked = [
        token.id
        for token in request_rows.read_tokens(connection)
        if token.subject.casefold() in subjects and not token.revoked_at
    ]
    for token_id in revoked:
        request_rows.revoke_token(connection, token_id, now)
    waiting = request_rows.read_requests(
        connection, limit=request_rows.WAITING_MAX, states=[RequestState.WAITING]
    )
    refused = [r for r in waiting if r.asked_by.casefold() in subjects]
    for asked in refused:
        fields = {"state": RequestState.REFUSED, "decided_by": by, "decided_at": now}
        over = asked.model_copy(update={**fields, "ended_at": now, "note": why})
        request_rows.save_request(connection, over, by, now)
    return ShutOut(
        sessions=tuple(ended), tokens=tuple(revoked), requests=tuple(r.id for r in refused)
    )


def _forget_gone(connection: Connection, stored: DirectoryEntry, now: float) -> None:
    """Forget deleted people that are too old, or that came back under their name."""
    old = (entries.c.standing == Standing.GONE) & (entries.c.changed_at < now - GONE_KEPT_S)
    ids = set(connection.scalars(select(entries.c.id).where(old).limit(GONE_CLEARED_MAX)))
    if stored.kind is EntryKind.GROUP and stored.standing is Standing.GONE:
        ids.add(stored.id)
    if stored.standing is Standing.ACTIVE:
        gone = select(entries.c.id).where(entries.c.standing == Standing.GONE)
        same = entries.c.name == clean(stored.name.casefold())
        ids |= set(connection.scalars(gone.where(same)))
        # somebody else may have an address that two people shared: the other names stay shut
        shared = names.c.name.in_(_names_of(stored)) & names.c.entry.in_(gone)
        connection.execute(delete(names).where(shared))
    connection.execute(delete(names).where(names.c.entry.in_(ids)))
    connection.execute(delete(entries).where(entries.c.id.in_(ids)))


def _read(
    connection: Connection,
    kind: EntryKind,
    which: ColumnElement[bool] | None = None,
    *,
    gone: bool = False,
) -> tuple[DirectoryEntry, ...]:
    mine = entries.c.kind == kind
    if not gone:
        mine &= entries.c.standing != Standing.GONE
    query = select(entries.c.id, entries.c.body).where(mine if which is None else mine & which)
    ordered = query.order_by(entries.c.made_at, entries.c.id)
    rows = ((r.id, "", r.body) for r in connection.execute(ordered))
    return parse_each(connection, DirectoryEntry, "directory_entries", rows)


def _find(connection: Connection, kind: EntryKind, name: str) -> tuple[DirectoryEntry, ...]:
    wanted = clean(name.casefold())
    called = select(names.c.entry).where(names.c.name == wanted)
    return _read(connection, kind, (entries.c.name == wanted) | entries.c.id.in_(called))


def _count(connection: Connection, kind: EntryKind) -> int:
    mine = (entries.c.kind == kind) & (entries.c.standing != Standing.GONE)
    return connection.scalar(select(func.count()).select_from(entries).where(mine)) or 0
