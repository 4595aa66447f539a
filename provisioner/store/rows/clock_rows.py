"""Marks of time. Each function is one part of a transaction on `connection`."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from provisioner.store.schema.schema import clock_marks

LAST = "last"  # that a daemon went by
ACCEPTED = "accepted"  # when a person said that the machine's clock is right


def read_mark(connection: Connection, name: str) -> float | None:
    """Return the mark of this name, or None if there is none."""
    at = connection.scalar(select(clock_marks.c.at).where(clock_marks.c.name == name))
    return None if at is None else float(at)


def put_mark(connection: Connection, name: str, at: float) -> None:
    """Set the mark of this name."""
    updated = connection.execute(
        update(clock_marks).where(clock_marks.c.name == name).values(at=at)
    )
    if updated.rowcount == 0:
        connection.execute(insert(clock_marks).values(name=name, at=at))
