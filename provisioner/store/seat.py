"""A daemon's seat among its peers on one PostgreSQL: a session that holds advisory locks.

The server is the judge of who lives. A session that says nothing for `lease_s` is ended by the
server itself (`idle_session_timeout`), with it go its locks, and whoever can take a daemon's lock
knows that it is gone. The daemon counts the same time from before its last word was sent, so that
it knows earlier than anybody else that it may have lost its seat, and acts no more.

The rule that a reader would otherwise break: this connection is never pooled, never reopened, and
goes through no proxy that shares sessions (PgBouncer in transaction mode): the locks are its own.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from zlib import crc32

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import make_url

from provisioner.model.operation import OperationStatus
from provisioner.store.postgres import CONNECT, LOCK_SPACE, postgres_url

# First numbers of advisory locks; `postgres.LOCK_SPACE` is that of single locks.
SEATS = LOCK_SPACE + 1  # by number of the daemon
TURNS = LOCK_SPACE + 2  # by CRC of a name: two that share one only wait for each other
LEADER = 3

SAFE_PART = 0.75  # of a lease: the rest is for clocks that drift and answers that are late
FORGET_S = 600.0  # a dead daemon is looked after so long: what it claimed as it died is found


@dataclass(frozen=True)
class Peer:
    """A daemon that has, or had, a seat."""

    number: int
    id: str


def steady_s() -> float:
    """Seconds that go on while this process is stopped, and while its machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Seat:
    """One daemon's seat. Every method blocks, and belongs into one thread of its own.

    Any `psycopg.Error` from any of them means that the seat is lost.
    """

    def __init__(self, database: str, id_: str, version: str, lease_s: float) -> None:
        self.id = id_
        self.number = 0
        self.leads = False
        self.lease_s = lease_s
        self.sure_until = 0.0  # by `steady_s`
        self._url = postgres_url(database)
        self._version = version
        self._connection: psycopg.Connection[dict[str, object]] | None = None
        self._turns: set[int] = set()

    def take(self) -> None:
        """Connect and sit down; raises `psycopg.Error` if that is not possible."""
        before = steady_s()
        url = make_url(self._url).set(drivername="postgresql")
        options = f"-c idle_session_timeout={int(self.lease_s * 1000)}"
        self._connection = psycopg.connect(
            url.render_as_string(hide_password=False),
            autocommit=True,
            row_factory=dict_row,
            **{**CONNECT, "application_name": "provisioner seat", "options": options},
        )
        with self._connection.transaction():  # nobody sees the row before its lock is taken
            row = self._ask(
                "INSERT INTO executors (id, host, version, started_at, died_at) "
                "VALUES (%s, %s, %s, extract(epoch FROM clock_timestamp()), 0) RETURNING number",
                (self.id, socket.gethostname(), self._version),
            )[0]
            self.number = int(str(row["number"]))
            assert self._lock(SEATS, self.number), "a new number is nobody's"
        self.sure_until = before + self.lease_s * SAFE_PART

    def beat(self) -> None:
        """Say that we live, and ask for the lead if nobody has it."""
        before = steady_s()
        if not self.leads:
            self.leads = self._lock(LOCK_SPACE, LEADER)
        else:
            self._ask("SELECT 1 AS one", ())
        self.sure_until = before + self.lease_s * SAFE_PART

    def dead(self) -> Sequence[Peer]:
        """Daemons whose seat is empty; each is held empty until `let_go`."""
        rows = self._ask("SELECT number, id FROM executors WHERE number <> %s", (self.number,))
        peers = [Peer(int(str(r["number"])), str(r["id"])) for r in rows]
        return [p for p in peers if self._lock(SEATS, p.number)]

    def let_go(self, peer: Peer) -> None:
        """Its work was taken over. After a while it is forgotten."""
        self._ask(
            "UPDATE executors SET died_at = extract(epoch FROM clock_timestamp()) "
            "WHERE number = %s AND died_at = 0 RETURNING 1",
            (peer.number,),
        )
        self._ask(
            "DELETE FROM executors WHERE number = %s AND died_at > 0 "
            "AND died_at < extract(epoch FROM clock_timestamp()) - %s RETURNING 1",
            (peer.number, FORGET_S),
        )
        self._ask("SELECT pg_advisory_unlock(%s, %s)", (SEATS, peer.number))

    def living(self) -> frozenset[str]:
        """The ids of daemons that have a seat now, ours among them."""
        rows = self._ask(
            "SELECT e.id FROM executors e JOIN pg_locks l ON l.locktype = 'advisory' "
            "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND l.classid = %s::bigint::oid AND l.objid = e.number::bigint::oid AND l.granted",
            (SEATS,),
        )
        return frozenset(str(r["id"]) for r in rows)

    def active(self) -> int:
        """How many operations are active in the whole site."""
        [row] = self._ask(
            "SELECT count(*)::integer AS active FROM operations WHERE status = %s",
            (str(OperationStatus.ACTIVE),),
        )
        return cast(int, row["active"])

    def try_turn(self, name: str) -> bool:
        """Take the turn of one name among all daemons, if it is free. Ours never overlap."""
        key = _signed(crc32(name.encode()))
        if key in self._turns or not self._lock(TURNS, key):
            return False
        self._turns.add(key)
        return True

    def end_turn(self, name: str) -> None:
        """Give a turn back."""
        key = _signed(crc32(name.encode()))
        self._turns.discard(key)
        self._ask("SELECT pg_advisory_unlock(%s, %s)", (TURNS, key))

    def leave(self) -> None:
        """Stand up: peers take over at once what is left."""
        if self._connection is not None:
            self._connection.close()

    def _lock(self, space: int, number: int) -> bool:
        rows = self._ask("SELECT pg_try_advisory_lock(%s, %s) AS taken", (space, number))
        return bool(rows[0]["taken"])

    def _ask(self, statement: str, values: tuple[object, ...]) -> list[dict[str, object]]:
        assert self._connection is not None, "not seated"
        return self._connection.execute(statement.encode(), values).fetchall()


def _signed(number: int) -> int:
    """32 bits as PostgreSQL's integer."""
    return number - 2**32 if number >= 2**31 else number
