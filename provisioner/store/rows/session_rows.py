"""Rows of browsers' sessions. Each function is one part of a transaction on `connection`.

When a session was used and ended stands in columns, so that a use never writes over an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from provisioner.model.access import Session, SessionLimits
from provisioner.model.events.request_events import SessionChanged, SessionFacts
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import journal as chain
from provisioner.store.rows.damage import record
from provisioner.store.rows.records import clean, parse
from provisioner.store.schema.access_schema import console_sessions as table

KEPT_S = 3600.0  # an ended session's row: sign-ins of the last minute are counted by rows
DELETED_MAX = 1000  # old rows that one sign-in clears away, so that none takes long
BEGUN_S = 60.0
BEGUN_MAX = 20  # sign-ins of one person within BEGUN_S: a person makes one or two


def begin_session(
    connection: Connection, session: Session, limits: SessionLimits, replaces: str = ""
) -> bool:
    """Keep a new session and end the one that it replaces; False: too many in a short time."""
    now = session.made_at
    old = select(table.c.id).where(_is_over(limits, now) & (table.c.made_at < now - KEPT_S))
    ids = connection.scalars(old.limit(DELETED_MAX)).all()
    connection.execute(delete(table).where(table.c.id.in_(ids)))
    person = clean(session.person)
    of_person = table.c.person == person
    young = of_person & (table.c.made_at > now - BEGUN_S)
    if (connection.scalar(select(func.count()).where(young)) or 0) >= BEGUN_MAX:
        return False
    end_sessions(connection, (table.c.id == replaces) & of_person, "it signed in again", now)
    living = select(table.c.id).where(of_person & ~_is_over(limits, now))
    ids = connection.scalars(living.order_by(table.c.used_at.desc(), table.c.id)).all()
    over = ids[limits.per_person - 1 :]
    end_sessions(connection, table.c.id.in_(over), "the person has too many", now)
    connection.execute(
        insert(table).values(
            id=session.id,
            digest=session.sha256,
            person=person,
            token=session.token,
            made_at=now,
            used_at=now,
            ended_at=0.0,
            body=session.model_dump_json(),
        )
    )
    chain.append(connection, SessionChanged(begun=_describe(session)), now)
    return True


def find_session(connection: Connection, digest: str) -> Session | None:
    """Return the session with this digest, good or not; one that cannot be read is none."""
    row = connection.execute(select(table).where(table.c.digest == digest)).first()
    return None if row is None else _read(connection, row)


def use_session(connection: Connection, session_id: str, now: float) -> None:
    """Write down that it was used; an older time never replaces a newer one."""
    older = (table.c.id == session_id) & (table.c.used_at < now)
    connection.execute(update(table).where(older).values(used_at=now))


def read_sessions(
    connection: Connection, limits: SessionLimits, now: float, limit: int = 10_000
) -> tuple[Session, ...]:
    """Return the sessions that are not over, the one that was used last first."""
    query = select(table).where(~_is_over(limits, now)).limit(limit)
    rows = connection.execute(query.order_by(table.c.used_at.desc(), table.c.id)).all()
    sessions = (_read(connection, row) for row in rows)
    return tuple(s for s in sessions if s is not None and s.is_valid(limits, now))


def end_session(connection: Connection, session_id: str, why: str, now: float) -> bool:
    """End one session; False if there is none with this id."""
    end_sessions(connection, table.c.id == session_id, why, now)
    return connection.scalar(select(table.c.id).where(table.c.id == session_id)) is not None


def end_sessions_of_subject(
    connection: Connection, subject: str, why: str, now: float
) -> Sequence[str]:
    """End every session of a person, whatever tokens began them; return their ids."""
    living = select(table.c.person).where(table.c.ended_at == 0.0).distinct()
    name = clean(subject.casefold())
    people = [p for p in connection.scalars(living) if p.rpartition("\n")[2] == name]
    return end_sessions(connection, table.c.person.in_(people), why, now)


def end_sessions_of_token(
    connection: Connection, token_id: str, why: str, now: float
) -> Sequence[str]:
    """End every session that a local token began; return their ids."""
    return end_sessions(connection, table.c.token == token_id, why, now)


def end_sessions(
    connection: Connection, which: ColumnElement[bool], why: str, now: float
) -> Sequence[str]:
    """End those of them that are not ended, with a row of the journal each; return their ids."""
    living = select(table.c.id).where(which & (table.c.ended_at == 0.0)).order_by(table.c.id)
    ids = connection.scalars(living).all()
    for number in ids:
        connection.execute(update(table).where(table.c.id == number).values(ended_at=now or 1.0))
        chain.append(connection, SessionChanged(ended=number, why=why), now)
    return ids


def _is_over(limits: SessionLimits, now: float) -> ColumnElement[bool]:
    """Return whether its columns say that it is over; its token may have ended it before."""
    idle = table.c.used_at <= now - limits.idle_s
    old = table.c.made_at <= now - limits.whole_s
    return (table.c.ended_at != 0.0) | idle | old


def _read(connection: Connection, row: Row[Any]) -> Session | None:
    try:
        session = parse(Session, row.body, f"console_sessions, {row.id}")
    except DamagedRow as error:
        record(connection.engine, "", error)
        return None
    times = {"used_at": row.used_at, "ended_at": row.ended_at}
    return session.model_copy(update=times)


def _describe(session: Session) -> SessionFacts:
    return SessionFacts(**session.model_dump(include=set(SessionFacts.model_fields)))
