"""The rows of receivers of the exported journal: how far each has taken it."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, func, insert, select, update

from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow
from provisioner.store.rows.records import clean, parse_object
from provisioner.store.schema.journal_schema import audit_exports as exports
from provisioner.store.schema.schema import journal


def set_receivers(connection: Connection, receivers: Collection[str]) -> None:
    """Forget the positions of other receivers, which would hold rows back from a prune."""
    connection.execute(delete(exports).where(exports.c.receiver.not_in(sorted(receivers))))
    present = set(connection.scalars(select(exports.c.receiver)))
    for receiver in sorted(set(receivers) - present):
        values = {"position": 0, "rejected": 0, "taken_at": 0.0, "failing_since": 0.0}
        connection.execute(insert(exports).values(receiver=receiver, error="", **values))


def read_exports(connection: Connection) -> tuple[ExportStatus, ...]:
    """Return every receiver by name, with the number of rows that it has not taken."""
    waiting = (
        select(func.count())
        .select_from(journal)
        .where(journal.c.seq > exports.c.position)
        .scalar_subquery()
    )
    query = select(exports, waiting.label("waiting")).order_by(exports.c.receiver)
    return tuple(ExportStatus(**row._mapping) for row in connection.execute(query))


def read_rows(
    connection: Connection, receiver: str, most: int
) -> tuple[int, tuple[JournalRow, ...]]:
    """Return a receiver's position and its next rows; none of a receiver without a position."""
    position = connection.scalar(select(exports.c.position).where(exports.c.receiver == receiver))
    if position is None:
        return 0, ()
    page = select(journal).where(journal.c.seq > position).order_by(journal.c.seq).limit(most)
    rows = (
        JournalRow(
            seq=row.seq,
            at=row.at,
            kind=row.kind,
            node=row.node,
            detail=parse_object(row.detail, f"journal, {row.seq}"),
            sha256=row.digest,
        )
        for row in connection.execute(page)
    )
    return position, tuple(rows)


def record_taken(
    connection: Connection,
    receiver: str,
    position: int,
    last: int,
    outcome: ExportOutcome,
    now: float,
) -> None:
    """Move a position that is still where its rows were read from."""
    same = (exports.c.receiver == receiver) & (exports.c.position == position)
    values = {
        "position": last,
        "rejected": exports.c.rejected + outcome.rejected,
        "taken_at": now,
        "failing_since": 0.0,
    }
    if outcome.error:
        values["error"] = clean(outcome.error)
    connection.execute(update(exports).where(same).values(**values))


def record_failure(connection: Connection, receiver: str, error: str, now: float) -> None:
    """Record why the last try failed, and since when none has gone well."""
    mine = exports.c.receiver == receiver
    connection.execute(update(exports).where(mine).values(error=clean(error)))
    began = mine & (exports.c.failing_since == 0.0)
    connection.execute(update(exports).where(began).values(failing_since=now))
