"""`access.SessionRepository` on the daemon's own database."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from provisioner.model.access import Session, Token
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import session_rows, token_rows


def read_session(connection: Connection, digest: str) -> tuple[Session, Token | None] | None:
    """Return a session and the token that began it, as they are at one time."""
    session = session_rows.find_session(connection, digest)
    if session is None:
        return None
    return session, token_rows.read_token(connection, session.token) if session.token else None


class SqlSessionRepository:
    """Reads and touches sessions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find_session(self, digest: str) -> tuple[Session, Token | None] | None:
        return await self._transactions.read(partial(read_session, digest=digest))

    async def use_session(self, session_id: str, now: float) -> None:
        work = partial(session_rows.use_session, session_id=session_id, now=now)
        await self._transactions.write(work)
