"""Rows of fabric sessions, and of the newest session's outcome for each node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import Connection, delete, insert, select, update

from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.ports import Fenced
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import damage
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import fabric_outcomes, fabric_sessions

# made once: every waiting node asks
_OPEN = (
    select(fabric_sessions.c.id, fabric_sessions.c.body)
    .where(fabric_sessions.c.ended_at == 0.0)
    .order_by(fabric_sessions.c.id)
)


def put(
    connection: Connection, session: FabricSession, outcomes: Sequence[FabricOutcome]
) -> FabricSession:
    """Return a session with the outcomes that it came to."""
    put_outcomes(connection, outcomes)
    return put_session(connection, session)


def put_session(connection: Connection, session: FabricSession) -> FabricSession:
    """Write a session and raise its generation; `Fenced` if another writer was faster."""
    stored = session.model_copy(update={"generation": session.generation + 1})
    row = {
        "generation": stored.generation,
        "ended_at": stored.ended_at,
        "body": stored.model_dump_json(),
    }
    if session.generation == 0:
        connection.execute(insert(fabric_sessions).values(id=stored.id, **row))
        return stored
    mine = (fabric_sessions.c.id == session.id) & (
        fabric_sessions.c.generation == session.generation
    )
    if connection.execute(update(fabric_sessions).where(mine).values(**row)).rowcount != 1:
        raise Fenced(f"fabric session {session.id} was changed by another writer")
    return stored


def put_outcomes(connection: Connection, outcomes: Sequence[FabricOutcome]) -> None:
    """Store a session's outcomes of nodes in place of their former ones."""
    for outcome in outcomes:
        connection.execute(delete(fabric_outcomes).where(fabric_outcomes.c.node == outcome.node))
        connection.execute(
            insert(fabric_outcomes).values(
                node=outcome.node, session=outcome.session, body=outcome.model_dump_json()
            )
        )


def read_open(connection: Connection) -> tuple[FabricSession, ...]:
    """Return every session that is under way."""
    sessions = []
    for row in connection.execute(_OPEN):
        try:
            sessions.append(_session(row.body))
        except DamagedRow as error:
            named = DamagedRow(f"fabric_sessions, {row.id}", error.problem)
            damage.record(connection.engine, "", named)
    return tuple(sessions)


@lru_cache(maxsize=16)  # every waiting node looks at every session: parsed once after each round
def _session(body: str) -> FabricSession:
    return parse(FabricSession, body, "fabric_sessions")


def read_outcome(connection: Connection, node: str) -> FabricOutcome | None:
    """Return the newest session's outcome for a node."""
    query = select(fabric_outcomes.c.body).where(fabric_outcomes.c.node == node)
    body = connection.execute(query).scalar_one_or_none()
    return None if body is None else parse(FabricOutcome, body, f"fabric_outcomes, {node}")
