"""Rows of maintenance agents' sessions. Each function is one part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, select, update

from provisioner.model.agent import AgentSession
from provisioner.store.rows.damage import parse_each
from provisioner.store.rows.records import clean, parse
from provisioner.store.schema.schema import agents


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
    updated = connection.execute(
        update(agents).where(agents.c.node == session.node).values(**values)
    )
    if updated.rowcount == 0:
        connection.execute(insert(agents).values(node=session.node, **values))
