"""Rows of maintenance agents' sessions. Each function is one part of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select, update

from provisioner.model.agent import AgentSession
from provisioner.store.records import clean, parse
from provisioner.store.schema import agents


def read_sessions(connection: Connection) -> Sequence[AgentSession]:
    """The last session of every node, by node."""
    rows = connection.execute(select(agents.c.node, agents.c.body).order_by(agents.c.node))
    return tuple(parse(AgentSession, row.body, f"agents, {row.node}") for row in rows)


def put_session(connection: Connection, session: AgentSession) -> None:
    """Make or replace the row of the session's node."""
    values = {"body": clean(session.model_dump_json()), "seen_at": session.seen_at}
    done = connection.execute(update(agents).where(agents.c.node == session.node).values(**values))
    if done.rowcount == 0:
        connection.execute(insert(agents).values(node=session.node, **values))
