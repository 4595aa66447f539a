"""The high-water mark: a data directory's record of its database, to notice a restore.

Each transaction that a daemon commits raises a count in its directory's row of the database, and
the count is then written to a file of the directory, with the journal's head. After a restore, or a
failover that lost writes, the database's count is behind the file's.

The file is never ahead of the committed transactions, so that a crash between the two is no alarm.
It is not synced: a loss of power can only set it back.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal_column,
    select,
    update,
)

from provisioner.model.events.fleet_events import LookOnlyBegun
from provisioner.model.input_error import InputError
from provisioner.model.recovery import DatabasePosition, HighWater, Revocation, RevokedKind
from provisioner.runtime.whole_files import replace_file, write_private
from provisioner.store.rows import evidence_rows, request_rows
from provisioner.store.rows import journal as chain
from provisioner.store.rows.journal import GENESIS, is_pruned
from provisioner.store.schema.schema import (
    certificates,
    differences,
    journal,
    marks,
    signing_keys,
    site_state,
)

log = logging.getLogger(__name__)

MARK_FILE = "high-water"
RESTORED_FILE = "restored"  # left by `provisioner restore` until the restore is settled
SIZE = 1024  # of the file, always: less than a page, so that one write replaces it whole
_LAST_SEQ = select(func.max(journal.c.seq)).scalar_subquery()
_LAST_DIGEST = select(journal.c.digest).order_by(journal.c.seq.desc()).limit(1).scalar_subquery()
_LOOK_ONLY = select(site_state.c.look_only).scalar_subquery()
# As PostgreSQL takes them: a standby's disk, or more, was waited for.
_SYNCHRONOUS: ColumnElement[bool] = literal_column(
    "current_setting('synchronous_standby_names') <> '' "
    "AND current_setting('synchronous_commit') IN ('on', 'remote_apply')"
)
DAY_S = 86_400.0
RECENT_S = DAY_S  # a daemon that wrote nothing for a day was taken out of service


class MarkFile:
    """The file of one data directory; its daemon holds the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / MARK_FILE
        self._descriptor: int | None = None

    def read(self) -> HighWater | None:
        """The recorded mark; None if there is none. Raises `InputError` for an unreadable file."""
        try:
            content = self.path.read_bytes()[:SIZE]
        except FileNotFoundError:
            return None
        try:
            return HighWater.model_validate(json.loads(content))
        except (ValueError, ValidationError):
            raise InputError(
                str(self.path),
                "",
                "it remembers what this database was like, and cannot be read",
                "Start with --restored: rows and ports are compared before anything is written.",
            ) from None

    def write(self, mark: HighWater) -> None:
        """Replace the recorded mark; the file is made if there is none."""
        content = mark.model_dump_json().encode().ljust(SIZE)
        assert len(content) == SIZE, "identities and digests have fixed lengths"
        if self._descriptor is None:
            if not self.path.exists():
                write_private(self.path, content)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW)
        os.pwrite(self._descriptor, content, 0)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Marking:
    """Counts this daemon's transactions, in the database and in the file. See `lanes.Counting`.

    `stop` is called when the database says that nothing may be written to devices any more:
    another daemon has noticed that writes were lost. `written` is told of each new row of the
    journal.
    """

    def __init__(
        self,
        file: MarkFile,
        mark: HighWater,
        stop: Callable[[str], object] | None = None,
        written: Callable[[], object] | None = None,
    ) -> None:
        self._file = file
        self._mark = mark
        self._stop = stop
        self._written = written
        synchronous = _SYNCHRONOUS if mark.server else false()
        self._raise = (
            update(marks)
            .where(marks.c.place == mark.place)
            .values(count=marks.c.count + 1, seen_at=bindparam("now"))
            .returning(marks.c.count, _LAST_SEQ, _LAST_DIGEST, _LOOK_ONLY, synchronous)
        )

    def count(self, connection: Connection) -> object:
        """Raise the count, as the last statement of a transaction."""
        return tuple(connection.execute(self._raise, {"now": time.time()}).one())

    def keep(self, counted: object) -> None:
        assert isinstance(counted, tuple)
        count, rows, head, look_only, synchronous = counted
        changed = {
            "count": count,
            "journal_rows": rows or 0,
            "journal_head": head or GENESIS,
            "synchronous": bool(synchronous),
        }
        grew = changed["journal_rows"] != self._mark.journal_rows
        self._mark = self._mark.model_copy(update=changed)
        try:
            self._file.write(self._mark)
        except OSError as error:  # the recorded mark is older then: less is noticed, nothing wrong
            log.error("%s cannot be written: %s", self._file.path, error)
        if grew and self._written is not None:
            self._written()
        if look_only and self._stop is not None:
            self._stop(str(look_only))

    def close(self) -> None:
        self._file.close()


def look(connection: Connection, place: str, kept: HighWater | None) -> DatabasePosition:
    """Return the database's own position, beside this directory's record of it."""
    state = connection.execute(select(site_state)).first()
    server, timeline = identify_server(connection)
    return DatabasePosition(
        site=state.site if state else "",
        recorded_server=state.server if state else "",
        recorded_timeline=state.timeline if state else 0,
        look_only=state.look_only if state else "",
        server=server,
        timeline=timeline,
        count=connection.scalar(select(marks.c.count).where(marks.c.place == place)),
        other_places=connection.scalar(
            select(func.count()).select_from(marks).where(marks.c.place != place)
        )
        or 0,
        unconfirmed=_unconfirmed(connection, place, timeline),
        head="" if kept is None else _known_head(connection, kept),
        journal_rows=connection.scalar(select(_LAST_SEQ)) or 0,
    )


def _known_head(connection: Connection, kept: HighWater) -> str:
    """Return the digest of the row that is remembered.

    A row that was archived and removed cannot be compared: the database has it and more, so that
    the count of transactions alone decides.
    """
    if is_pruned(connection, kept.journal_rows):
        return kept.journal_head
    return chain.digest_at(connection, kept.journal_rows)


def _unconfirmed(connection: Connection, place: str, timeline: int) -> tuple[str, ...]:
    newest = select(func.max(marks.c.seen_at)).scalar_subquery()
    places = (
        select(marks.c.place)
        .where(marks.c.place != place, marks.c.timeline < timeline)
        .where(marks.c.seen_at >= newest - RECENT_S)
        .order_by(marks.c.place)
    )
    return tuple(connection.scalars(places))


def confirm(connection: Connection, place: str) -> None:
    """Record that this directory's daemon found all of its writes on the present server."""
    _, timeline = identify_server(connection)
    connection.execute(update(marks).where(marks.c.place == place).values(timeline=timeline))


def settle_mark(
    connection: Connection, place: str, kept: HighWater | None, look_only: str, now: float
) -> HighWater:
    """Write identity, server and this directory's row into the database; the mark to go on from.

    `look_only`: why nothing may be written to devices, until the restore is settled.
    """
    server, timeline = identify_server(connection)
    state = connection.execute(select(site_state)).first()
    values = {"server": server, "timeline": timeline}
    if state is None:
        site = uuid.uuid4().hex
        row = {"id": 1, "site": site, "look_only": look_only, "surveyed_at": 0.0, **values}
        connection.execute(insert(site_state).values(**row))
    else:
        site = state.site
        changed = {"look_only": look_only, "surveyed_at": 0.0} if look_only else {}
        connection.execute(update(site_state).values(**values, **changed))
    if look_only and (state is None or not state.look_only):
        connection.execute(delete(differences))  # words on ports, given after an earlier restore
        chain.append(connection, LookOnlyBegun(why=look_only), now)
    count = connection.scalar(select(marks.c.count).where(marks.c.place == place))
    last = max(count or 0, kept.count if kept is not None else 0) + 1
    if count is None:
        row = {"place": place, "count": last, "timeline": timeline, "seen_at": time.time()}
        connection.execute(insert(marks).values(**row))
    else:
        row = {"count": last, "timeline": timeline, "seen_at": time.time()}
        connection.execute(update(marks).where(marks.c.place == place).values(**row))
    rows, head = connection.execute(select(_LAST_SEQ, _LAST_DIGEST)).one()
    return HighWater(
        site=site,
        place=place,
        count=last,
        journal_rows=rows or 0,
        journal_head=head or GENESIS,
        server=server,
        timeline=timeline,
    )


def identify_server(connection: Connection) -> tuple[str, int]:
    """Return a PostgreSQL database's identity and timeline; ("", 0) for a file.

    The system identifier is made by initdb and shared by standbys; a promotion begins a new
    timeline. A dump that is restored elsewhere, or under another name, has another identity.
    """
    if connection.dialect.name != "postgresql":
        return "", 0
    row = connection.exec_driver_sql(
        "SELECT s.system_identifier, d.oid, "
        "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int "
        "FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()"
    ).one()
    return f"{row[0]}/{row[1]}", int(row[2])


# ------------------------------------------------------------------------------
# Revocations, remembered beside the mark: a backup is older than some of them, and a restore must
# not bring back what was revoked since. Each is a line, on disk when `add` returns; nothing undoes
# one, so that they are applied at every start.


REVOCATIONS_FILE = "revocations"
REVOCATIONS_MAX = 64 * 1024 * 1024  # bytes: some half a million
REVOKED_KEPT_S = 2 * 365 * DAY_S  # no token and no certificate is in force longer


STANDING = frozenset({RevokedKind.TENANT, RevokedKind.WEBHOOK, RevokedKind.CAPABILITY})


class RevocationFile:
    """The revocations that one data directory remembers; its daemon holds the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / REVOCATIONS_FILE

    def read(self) -> tuple[Revocation, ...]:
        """Return all of them. A last line that was cut off is none. Raises `InputError`."""
        try:
            with self.path.open("rb") as stream:
                content = stream.read(REVOCATIONS_MAX + 1)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(f"cannot be read ({error.strerror})") from None
        if len(content) > REVOCATIONS_MAX:
            raise self._unusable(f"has more than {REVOCATIONS_MAX} bytes")
        lines = content.split(b"\n")
        found = []
        for number, line in enumerate(lines[:-1], start=1):
            try:
                found.append(Revocation.model_validate_json(line))
            except ValidationError:
                raise self._unusable(f"line {number} is no revocation") from None
        return tuple(found)

    def add(self, revocations: Collection[Revocation]) -> None:
        """Append; a line that a crash cut off is replaced. Raises OSError."""
        lines = b"".join(r.model_dump_json().encode() + b"\n" for r in revocations)
        if not self.path.exists():
            write_private(self.path, lines)
            return
        with self.path.open("r+b") as stream:
            whole = stream.read().rfind(b"\n") + 1
            stream.truncate(whole)
            stream.seek(whole)
            stream.write(lines)
            stream.flush()
            os.fsync(stream.fileno())

    def tidy(self, now: float) -> tuple[Revocation, ...]:
        """Return all that still matter, and forget the others. Raises `InputError`."""
        found = self.read()
        newest = {(r.kind, r.id): r for r in found if r.kind in STANDING}
        kept = tuple(
            r
            for r in found
            if (r is newest.get((r.kind, r.id)) if r.kind in STANDING else _still_matters(r, now))
        )
        if len(kept) < len(found):
            lines = b"".join(r.model_dump_json().encode() + b"\n" for r in kept)
            replace_file(self.path, lines, lasting=True)
        return kept

    def _unusable(self, problem: str) -> InputError:
        remedy = "Remove what is damaged; what it named may be in force again after a restore."
        return InputError(str(self.path), "", problem, remedy)


def _still_matters(told: Revocation, now: float) -> bool:
    return told.kind is RevokedKind.SIGNING_KEY or now - told.at < REVOKED_KEPT_S


def read_revocations(connection: Connection) -> tuple[Revocation, ...]:
    kind = RevokedKind
    c = certificates.c
    k = signing_keys.c
    return (
        *(
            Revocation(kind=kind.TOKEN, id=t.id, at=t.revoked_at)
            for t in request_rows.read_tokens(connection)
            if t.revoked_at
        ),
        *(
            Revocation(kind=kind.CERTIFICATE, id=row.id, at=row.revoked_at, why=row.revoked_reason)
            for row in connection.execute(
                select(c.id, c.revoked_at, c.revoked_reason).where(c.revoked_at.is_not(None))
            )
            if isinstance(row.revoked_at, float)
        ),
        *(
            Revocation(kind=kind.SIGNING_KEY, id=row.key_id, at=row.withdrawn_at)
            for row in connection.execute(
                select(k.key_id, k.withdrawn_at).where(k.withdrawn_at.is_not(None))
            )
            if isinstance(row.withdrawn_at, float)
        ),
    )


def apply_revocations(
    connection: Connection, kept: Collection[Revocation], now: float
) -> tuple[Revocation, ...]:
    """Revoke again what the database has in force; return that."""
    known = {(r.kind, r.id) for r in read_revocations(connection)}
    missing = [r for r in kept if (r.kind, r.id) not in known]
    return tuple(r for r in missing if _revoke_again(connection, r, now))


def _revoke_again(connection: Connection, told: Revocation, now: float) -> bool:
    if told.kind is RevokedKind.TOKEN:
        token = request_rows.read_token(connection, told.id)
        if token is None or token.made_at > told.at:
            return False
        request_rows.revoke_token(connection, told.id, now)
        return True
    if told.kind is RevokedKind.CERTIFICATE:
        issued = select(certificates.c.issued_at).where(certificates.c.id == told.id)
        at = connection.scalar(issued)
        if not isinstance(at, float) or at > told.at:
            return False
        evidence_rows.revoke(connection, told.id, told.why or "revoked before the restore", now)
        return True
    withdrawn = update(signing_keys).where(signing_keys.c.key_id == told.id)
    changed = withdrawn.values(withdrawn_at=told.at, private=None)
    return connection.execute(changed).rowcount > 0
