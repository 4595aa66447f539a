"""Sessions of maintenance agents and of browsers, saved views, tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)

from provisioner.model.access import SavedView, Session, SessionLimits, Token
from provisioner.ports import DamagedRow, Run
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import agent_rows, request_rows
from provisioner.store.rows.records import parse_each
from provisioner.store.schema.schema import runs
from provisioner.store.schema.usage_tables import saved_views

# ------------------------------------------------------------------------------
# Rows of playbook runs: those that a new daemon follows on, and the result of each call.


OPEN = "open"


class SqlRunRepository:
    """`ports.RunRepository` in the daemon's database.

    `place` names the data directory that has the runs' folders, where several daemons share a
    database: each follows, ends and forgets its own runs only.
    """

    def __init__(self, transactions: Transactions, place: str = "") -> None:
        self._transactions = transactions
        self._place = place

    async def begin(self, run: Run) -> None:
        values = {**vars(run), "hosts": json.dumps(dict(run.hosts)), "place": self._place}
        await self._transactions.write(lambda c: c.execute(insert(runs).values(**values)))

    async def end(self, run_id: str, state: str, now: float) -> None:
        ended = update(runs).where(runs.c.id == run_id).values(state=state, ended_at=now)
        await self._transactions.write(lambda c: c.execute(ended))

    async def list_open(self) -> Sequence[Run]:
        mine = (runs.c.state == OPEN) & (runs.c.place == self._place)
        return await self._select(select(runs).where(mine).order_by(*_AGE))

    async def list_since(self, host: str, at: float) -> Sequence[Run]:
        # few rows begin within a ledger entry's lifetime: searching their hosts needs no table
        mine = (runs.c.started_at >= at) & (runs.c.place == self._place)
        later = select(runs).where(mine).order_by(*_AGE)
        return [r for r in reversed(await self._select(later)) if host in r.hosts]

    async def list_ended_before(self, at: float) -> Sequence[Run]:
        over = (runs.c.state != OPEN) & (runs.c.ended_at < at) & (runs.c.place == self._place)
        return await self._select(select(runs).where(over).order_by(*_AGE))

    async def find_end_elsewhere(self, host: str) -> float:
        elsewhere = select(runs).where(runs.c.state == OPEN, runs.c.place != self._place)
        mine = [r for r in await self._select(elsewhere.order_by(*_AGE)) if host in r.hosts]
        return max((r.started_at + r.limit_s for r in mine), default=0.0)

    async def forget(self, run_id: str) -> None:
        removal = delete(runs).where(runs.c.id == run_id)
        await self._transactions.write(lambda c: c.execute(removal))

    async def _select(self, query: Select[tuple[object, ...]]) -> list[Run]:
        rows = await self._transactions.read(lambda c: c.execute(query).all())
        return [_run(row) for row in rows]


_AGE = (runs.c.started_at, runs.c.id)


def _run(row: Row[tuple[object, ...]]) -> Run:
    values = dict(row._mapping)
    try:
        hosts = json.loads(values["hosts"])
    except ValueError:
        raise DamagedRow(f"runs, {row.id}", "its hosts are no JSON") from None
    values.pop("place")
    return Run(**{**values, "hosts": hosts})


# ------------------------------------------------------------------------------
# `access.SessionRepository` on the daemon's own database.


def read_session(connection: Connection, digest: str) -> tuple[Session, Token | None] | None:
    """Return a session and the token that began it, as they are at one time."""
    session = request_rows.find_session(connection, digest)
    if session is None:
        return None
    return session, request_rows.read_token(connection, session.token) if session.token else None


class SqlSessionRepository:
    """Reads and touches sessions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find_session(self, digest: str) -> tuple[Session, Token | None] | None:
        return await self._transactions.read(partial(read_session, digest=digest))

    async def use_session(self, session_id: str, now: float) -> None:
        work = partial(request_rows.use_session, session_id=session_id, now=now)
        await self._transactions.write(work)

    async def begin(self, session: Session, limits: SessionLimits, replaces: str = "") -> bool:
        """Store a new session in place of another; return False after too many sign-ins."""
        return await self._transactions.write(
            lambda c: request_rows.begin_session(c, session, limits, replaces)
        )

    # Return the session with this digest, valid or not.
    find = reads(request_rows.find_session)
    # Return the sessions that are not over, the latest used first.
    list = reads(request_rows.read_sessions)
    # End one session; return False if there is none with this id.
    end = writes(request_rows.end_session)
    # End every session of a person; return their ids.
    end_of_subject = writes(request_rows.end_sessions_of_subject)


# ------------------------------------------------------------------------------
# Addresses of the console that people keep.

VIEWS_MAX = 100  # of one person
VIEWS_OF_SIDE_MAX = 2_000  # of the staff, and of each tenant: none takes another's room


class SqlViewRepository:
    """Saved views: each is its owner's, seen by others of the same side where it is shared."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, side: str, owner: str) -> Sequence[SavedView]:
        """Return a person's own views and the shared ones of the others, by name."""
        seen = (saved_views.c.owner == owner) | (saved_views.c.shared == 1)
        asked = select(saved_views).where(saved_views.c.side == side, seen)
        ordered = asked.order_by(saved_views.c.name, saved_views.c.owner).limit(VIEWS_OF_SIDE_MAX)

        def read(connection: Connection) -> Sequence[SavedView]:
            rows = ((f"{r.owner} {r.name}", "", r.body) for r in connection.execute(ordered))
            return parse_each(connection, SavedView, "saved_views", rows)

        return await self._transactions.read(read)

    async def put(self, side: str, view: SavedView) -> bool:
        """Save a view, in place of its owner's of that name; return False where there are too
        many others, and then nothing changed."""
        same = _one_view(side, view.owner, view.name)

        def write(connection: Connection) -> bool:
            counted = select(func.count()).where(saved_views.c.side == side, ~same)
            of_owner = counted.where(saved_views.c.owner == view.owner)
            if (connection.scalar(of_owner) or 0) >= VIEWS_MAX or (
                connection.scalar(counted) or 0
            ) >= VIEWS_OF_SIDE_MAX:
                return False
            connection.execute(delete(saved_views).where(same))
            row = {
                "side": side,
                "owner": view.owner,
                "name": view.name,
                "shared": int(view.shared),
                "body": view.model_dump_json(),
            }
            connection.execute(insert(saved_views).values(row))
            return True

        return await self._transactions.write(write)

    async def drop(self, side: str, owner: str, name: str) -> bool:
        """Remove a view; return False if there is none."""
        gone = delete(saved_views).where(_one_view(side, owner, name))
        return await self._transactions.write(lambda c: c.execute(gone).rowcount > 0)


def _one_view(side: str, owner: str, name: str) -> ColumnElement[bool]:
    return and_(
        saved_views.c.side == side, saved_views.c.owner == owner, saved_views.c.name == name
    )


# ------------------------------------------------------------------------------
# Tokens of the API's callers.


class SqlTokenRepository:
    """Tokens by their digest; each write has its row of the journal."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Return the token with this SHA-256, also one that is over.
    find = reads(request_rows.find_token)
    list = reads(request_rows.read_tokens)
    add = writes(request_rows.add_token)
    # Revoke a token and return it; None if there is none with this id.
    revoke = writes(request_rows.revoke_token)


class SqlAgentRepository:
    """`ports.AgentRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    list_sessions = reads(agent_rows.read_sessions)
    put_session = writes(agent_rows.put_session)
    hand_out_token = writes(agent_rows.hand_out)
    change_session = writes(agent_rows.change_session)
