"""Rows of maintenance agents' sessions. Each function is one part of a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from provisioner.model.agent import AgentSession
from provisioner.model.operation import KeptAnswer, TooManyKeys
from provisioner.store.rows.records import clean, parse, parse_each, parse_object
from provisioner.store.rows.statements import insert_row, update_rows
from provisioner.store.schema.schema import agents, answers, clock_marks

# ------------------------------------------------------------------------------
# Rows of answers that are kept, so that a change that is asked for twice is made once.
#
# The row is written before the change begins. One without an answer means that the change may or
# may not have been made: it is never made again under the same key.


DELETED_MAX = 1000  # old rows that one change clears away, so that none takes long


def begin(
    connection: Connection,
    caller: str,
    key: str,
    fingerprint: str,
    now: float,
    keep_s: float,
    keys_max: int,
) -> KeptAnswer | None:
    """Return the answer stored under this key; None: it is new, and taken from now on.

    Raises `TooManyKeys` for a new key of a caller that has `keys_max` of them.
    """
    old = select(answers.c.caller, answers.c.key).where(answers.c.asked_at < now - keep_s)
    for row in connection.execute(old.limit(DELETED_MAX)).all():
        connection.execute(delete(answers).where(_is(row.caller, row.key)))
    stored = connection.execute(select(answers).where(_is(caller, key))).first()
    if stored is not None:
        headers = {str(k): str(v) for k, v in parse_object(stored.headers, "answers").items()}
        return KeptAnswer(stored.fingerprint, stored.status, headers, stored.body)
    counted = select(func.count(), func.min(answers.c.asked_at)).where(answers.c.caller == caller)
    count, oldest_at = connection.execute(counted).one()
    if count >= keys_max:
        raise TooManyKeys(max(1.0, oldest_at + keep_s - now))
    connection.execute(
        insert(answers).values(
            caller=caller,
            key=key,
            fingerprint=fingerprint,
            asked_at=now,
            status=0,
            headers="{}",
            body="",
        )
    )
    return None


def finish(
    connection: Connection,
    caller: str,
    key: str,
    status: int,
    headers: Mapping[str, str],
    body: str,
) -> None:
    """Record the answer; the same is returned from now on."""
    row = {"status": status, "headers": json.dumps(dict(headers)), "body": clean(body)}
    connection.execute(update(answers).where(_is(caller, key)).values(**row))


def release(connection: Connection, caller: str, key: str) -> None:
    """Free a key under which nothing was begun."""
    connection.execute(delete(answers).where(_is(caller, key) & (answers.c.status == 0)))


def _is(caller: str, key: str) -> ColumnElement[bool]:
    return (answers.c.caller == caller) & (answers.c.key == key)


# ------------------------------------------------------------------------------
# Marks of time. Each function is one part of a transaction on `connection`.


LAST = "last"  # that a daemon went by
ACCEPTED = "accepted"  # when a person said that the machine's clock is right


def read_mark(connection: Connection, name: str) -> float | None:
    at = connection.scalar(select(clock_marks.c.at).where(clock_marks.c.name == name))
    return None if at is None else float(at)


def put_mark(connection: Connection, name: str, at: float) -> None:
    updated = connection.execute(
        update(clock_marks).where(clock_marks.c.name == name).values(at=at)
    )
    if updated.rowcount == 0:
        connection.execute(insert(clock_marks).values(name=name, at=at))


def read_sessions(connection: Connection) -> Sequence[AgentSession]:
    """Return the last session of every node, by node."""
    rows = connection.execute(select(agents.c.node, agents.c.body).order_by(agents.c.node))
    listed = ((r.node, r.node, r.body) for r in rows)
    return parse_each(connection, AgentSession, "agents", listed)


def hand_out(connection: Connection, session: AgentSession) -> bool:
    """Record that a token was handed out, unless another caller was faster, or the boot is
    another.
    """
    stored = {s.node: s for s in read_sessions(connection)}.get(session.node)
    if stored is None or stored.handed_at or stored.expected_at != session.expected_at:
        return False
    put_session(connection, session)
    return True


def change_session(connection: Connection, node: str, changes: Mapping[str, object]) -> None:
    """Change the session as it is in this transaction: another daemon may write it too."""
    body = connection.scalar(select(agents.c.body).where(agents.c.node == node))
    assert body is not None, f"{node} has no session"
    stored = parse(AgentSession, body, f"agents, {node}")
    put_session(connection, stored.model_copy(update=dict(changes)))


def put_session(connection: Connection, session: AgentSession) -> None:
    """Make or replace the row of the session's node."""
    values = {"body": clean(session.model_dump_json()), "seen_at": session.seen_at}
    mine = {"node": session.node}
    if not update_rows(connection, agents, mine, values):
        insert_row(connection, agents, mine | values)
