"""`access.SessionRepository` on the daemon's own database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection

from provisioner.model.access import Session, SessionLimits, Token
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

    async def begin(self, session: Session, limits: SessionLimits, replaces: str = "") -> bool:
        """Store a new session in place of another; return False after too many sign-ins."""
        return await self._transactions.write(
            lambda c: session_rows.begin_session(c, session, limits, replaces)
        )

    async def find(self, digest: str) -> Session | None:
        """Return the session with this digest, valid or not."""
        return await self._transactions.read(lambda c: session_rows.find_session(c, digest))

    async def list(self, limits: SessionLimits, now: float) -> tuple[Session, ...]:
        """Return the sessions that are not over, the latest used first."""
        return await self._transactions.read(lambda c: session_rows.read_sessions(c, limits, now))

    async def end(self, session_id: str, why: str, now: float) -> bool:
        """End one session; return False if there is none with this id."""
        return await self._transactions.write(
            lambda c: session_rows.end_session(c, session_id, why, now)
        )

    async def end_of_subject(self, subject: str, why: str, now: float) -> Sequence[str]:
        """End every session of a person; return their ids."""
        return await self._transactions.write(
            lambda c: session_rows.end_sessions_of_subject(c, subject, why, now)
        )
