"""A daemon's lease among its peers on one PostgreSQL: a session that holds advisory locks.

The server decides which daemons live. A session that is silent for `lease_s` is ended by the server
itself (`idle_session_timeout`), with it go its locks, and a peer that can take a daemon's lock
knows that it is gone. The daemon counts the same time from before its last message was sent, so
that it knows earlier than any peer that it may have lost its lease, and acts no more.

The session is never pooled, never reopened, and goes through no proxy that shares sessions
(PgBouncer in transaction mode): the locks are its own. It also never reads or writes a table: a
person's lock on one would delay its next message, and end every daemon at once. Tables are read by
a second connection, the desk, which may wait.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from zlib import crc32

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import make_url

from provisioner.model.input_error import InputError
from provisioner.model.operation import OperationStatus
from provisioner.planning.watch import membership
from provisioner.planning.watch.membership import Joined, Standing, WorksBy, read_standing
from provisioner.runtime.database_clock import Reading, read_boot_clock, take_reading
from provisioner.store.database import waits
from provisioner.store.database.postgres import CONNECT, LOCK_SPACE, postgres_url, wait_for_room

# First numbers of advisory locks; `postgres.LOCK_SPACE` is that of single locks.
SEATS = LOCK_SPACE + 1  # by number of the daemon
TURNS = LOCK_SPACE + 2  # by CRC of a name: two that share one only wait for each other
KEYS = LOCK_SPACE + 3  # by CRC of a master key's id: shared by the daemons that have this key
SHARING = LOCK_SPACE + 4  # by number: daemons of a version that shares duties
WILLING = LOCK_SPACE + 5  # by number: those among them that do duties now
SHARDS = LOCK_SPACE + 6  # by number of the shard
LEADER = 3

Session = psycopg.Connection[dict[str, object]]

SAFE_PART = 0.75  # of a lease: the rest is for clocks that drift and answers that are late
JOINING = 5
STATING = 6
LIVING = (
    "FROM executors e "
    "JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid = %s::bigint::oid AND l.objid = e.number::bigint::oid "
    "WHERE e.died_at = 0"
)
SHARED = (
    "SELECT pid, classid::bigint AS space, "
    "string_agg(objid::bigint::text, ' ' ORDER BY objid::bigint) AS numbers FROM pg_locks "
    "WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid::bigint = ANY(%s) OR classid::bigint = %s AND objid::bigint = %s) "
    "GROUP BY pid, classid"
)
MEMBERS = f"SELECT e.number, e.id, e.digests, e.change_until {LIVING} ORDER BY e.number"
MEMBERS_SHARDS = MEMBERS.replace(
    " FROM executors",
    ", ARRAY(SELECT s.objid::bigint::integer FROM pg_locks s WHERE s.pid = l.pid AND s.locktype = "
    "'advisory' AND s.granted AND s.classid::bigint = %s) AS shards FROM executors",
)
# When a daemon showed last that its statement holds: a shared lock of its desk on its number and
# this second, of the kind with one key of 64 bits, which no other lock here is.
SHOWN = (
    "(SELECT max(s.objid::bigint) FROM pg_locks s WHERE s.locktype = 'advisory' AND s.granted "
    "AND s.objsubid = 1 AND s.database = l.database AND s.classid = l.objid)"
)
STANDINGS = (
    f"SELECT e.id, e.standing, coalesce({SHOWN}, 0) AS shown {LIVING} AND e.number <> %s "
    "ORDER BY e.number"
)
JOIN_REMEDY = (
    "Give all daemons the same version, matrix, overlays and settings; or, while a change rolls "
    "through, start the changed ones with `serve --change-until TIME`."
)
FORGET_S = 600.0  # a dead daemon is looked after so long, so that claims at its death are noticed


@dataclass(frozen=True)
class Peer:
    """A daemon that has, or had, a seat."""

    number: int
    id: str


class Seat:
    """One daemon's seat. Every method blocks; any `psycopg.Error` means that the seat is lost.

    `beat`, `try_turn`, `end_turn` wait for no table, and belong into one thread. The others use the
    desk, may wait as long as a table is locked, and belong into another.
    """

    def __init__(
        self,
        database: str,
        id_: str,
        version: str,
        lease_s: float,
        wall: Callable[[], float] = time.time,
        works: WorksBy | None = None,
        place: str = "",
        list_keys: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`works`: this daemon's parts, as digests; None is accepted by peers without any.

        `place` names its data directory: what its last life there stated is inherited. `list_keys`:
        ids of the master keys at hand.
        """
        self.id = id_
        self.place = place
        self.inherited = Standing()  # what the last life in this place stated
        self.may_lead = True  # False: the lead is left to others
        self._works = works or WorksBy()
        self.number = 0
        self.leads = False
        self.lease_s = lease_s
        self.sure_until = 0.0  # by `since_boot`
        self.reading: Reading | None = None  # the database's clock, as it was read last
        self._url = postgres_url(database)
        self._version = version
        self._wall = wall  # this machine's own clock
        self._session: Session | None = None
        self._desk: Session | None = None
        self._turns: set[int] = set()
        self._stated = Standing()  # as it is in our row
        self._shown = 0  # the key of the lock that shows when it held last
        self._told_sharing: dict[tuple[object, int], str] = {}
        self._sharing: Mapping[int, frozenset[int]] = {}
        self._list_keys = list_keys
        self._keys: set[int] = set()  # those that are shown

    def take(self) -> None:
        """Connect and sit down.

        Raises `psycopg.Error` if that is not possible, `InputError` if living peers work by
        something else and no change is declared.
        """
        self._desk = self._connect("provisioner desk", 0)
        # the row is invisible before its lock is taken
        with waits.on("joining the other daemons"), self._desk.transaction():
            # one joins after the other: two that differ must not overlook each other
            self._read("SELECT pg_advisory_xact_lock(%s, %s)::text", (LOCK_SPACE, JOINING))
            # not before: the server ends it where it is silent, as while others join
            before = read_boot_clock()
            self._session = self._connect("provisioner seat", int(self.lease_s * 1000))
            row = self._read(
                "INSERT INTO executors "
                "(id, host, version, started_at, died_at, digests, change_until) "
                "VALUES (%s, %s, %s, extract(epoch FROM clock_timestamp()), 0, %s, %s) "
                "RETURNING number",
                (
                    self.id,
                    socket.gethostname(),
                    self._version,
                    json.dumps(dict(self._works.digests)),
                    self._works.change_until,
                ),
            )[0]
            self.number = int(str(row["number"]))
            is_ours = self._lock(SEATS, self.number)
            assert is_ours, "a new number is nobody's"
            self._lock(SHARING, self.number)
            self.inherited = self._inherit()
            peers = [m for m in self.members() if m.id != self.id]
            if why := membership.find_join_refusal(self.joined, peers, self._time()):
                raise InputError("daemons", "", why, JOIN_REMEDY)
        self.reading = take_reading(self._time, wall=self._wall)
        self.sure_until = before + self.lease_s * SAFE_PART

    def beat(self) -> None:
        """Renew the lease, read the database's clock, and ask for the lead if it is free."""
        before = read_boot_clock()
        if not self.leads and self.may_lead:
            self.leads = self._lock(LOCK_SPACE, LEADER)
        self.reading = take_reading(self._time, wall=self._wall)
        self.sure_until = before + self.lease_s * SAFE_PART
        for key in map(_number_key, self._list_keys()):
            if key not in self._keys:
                self._ask("SELECT pg_try_advisory_lock_shared(%s, %s) AS taken", (KEYS, key))
                self._keys.add(key)

    def try_turn(self, name: str) -> bool:
        """Take the turn of one name among all daemons, if it is free. Ours never overlap."""
        key = _signed(crc32(name.encode()))
        if key in self._turns or not self._lock(TURNS, key):
            return False
        self._turns.add(key)
        return True

    def end_turn(self, name: str) -> None:
        key = _signed(crc32(name.encode()))
        self._turns.discard(key)
        self._ask("SELECT pg_advisory_unlock(%s, %s)", (TURNS, key))

    # --- duties that are shared

    def share(self) -> None:
        """Show that this daemon does duties, and may be given shards."""
        self._lock(WILLING, self.number)

    def try_shards(self, shards: Collection[int]) -> frozenset[int]:
        """Take those of these shards that are free, and return them; none may be ours already."""
        query = "SELECT n, pg_try_advisory_lock(%s, n) AS taken FROM unnest(%s::integer[]) AS n"
        rows = self._ask(query, (SHARDS, sorted(shards)))
        return frozenset(int(str(row["n"])) for row in rows if row["taken"])

    def end_shards(self, shards: Collection[int]) -> None:
        query = "SELECT pg_advisory_unlock(%s, n) FROM unnest(%s::integer[]) AS n"
        self._ask(query, (SHARDS, sorted(shards)))

    def read_sharing(self) -> Mapping[int, frozenset[int]]:
        """Return the shards of each daemon that does duties, by its number.

        Empty while a daemon of an older version leads: it does all of them. The same object as long
        as nothing changed: a site has thousands of shards, and asks each two seconds.
        """
        rows = self._ask(SHARED, ([SHARING, WILLING, SHARDS], LOCK_SPACE, LEADER))
        told: dict[tuple[object, int], str] = {
            (row["pid"], int(str(row["space"]))): str(row["numbers"]) for row in rows
        }
        if told == self._told_sharing:
            return self._sharing
        held: dict[object, dict[int, frozenset[int]]] = {}  # session -> space -> numbers
        for (session, space), numbers in told.items():
            held.setdefault(session, {})[space] = frozenset(map(int, numbers.split()))
        willing = [spaces for spaces in held.values() if WILLING in spaces]
        if any(LOCK_SPACE in spaces and SHARING not in spaces for spaces in held.values()):
            willing = []
        self._told_sharing = told
        self._sharing = {min(s[WILLING]): s.get(SHARDS, frozenset()) for s in willing}
        return self._sharing

    # --- at the desk

    def dead(self) -> Sequence[Peer]:
        """Return daemons whose lease has ended; each is held until `let_go`."""
        rows = self._read("SELECT number, id FROM executors WHERE number <> %s", (self.number,))
        peers = [Peer(int(str(r["number"])), str(r["id"])) for r in rows]
        return [p for p in peers if self._lock(SEATS, p.number)]

    def let_go(self, peer: Peer) -> None:
        """Record that its work was taken over. After a while it is forgotten."""
        self._read(
            "UPDATE executors SET died_at = extract(epoch FROM clock_timestamp()) "
            "WHERE number = %s AND died_at = 0 RETURNING 1",
            (peer.number,),
        )
        self._read(
            "DELETE FROM executors WHERE number = %s AND died_at > 0 "
            "AND died_at < extract(epoch FROM clock_timestamp()) - %s RETURNING 1",
            (peer.number, FORGET_S),
        )
        self._ask("SELECT pg_advisory_unlock(%s, %s)", (SEATS, peer.number))

    @property
    def joined(self) -> Joined:
        works = self._works
        return Joined(
            id=self.id, number=self.number, digests=works.digests, change_until=works.change_until
        )

    def members(self) -> Sequence[Joined]:
        """Return the daemons that have a seat now, ours among them, and what each works by."""
        return [_joined(row) for row in self._read(MEMBERS, (SEATS,))]

    def state(self, standing: Standing, *, written: bool = False) -> Sequence[Standing]:
        """State this daemon's own reach; return what its living peers state.

        The row is written where it changed for a reader, or if `written`, for peers of a version
        that reads the row alone; else a lock shows that it still holds. One after the other, so
        that of two that would give their work away at the same moment the second one sees that
        the first one has.
        """
        assert self._desk is not None, "not seated"
        with waits.on("a look at the other daemons", limited=False), self._desk.transaction():
            self._read("SELECT pg_advisory_xact_lock(%s, %s)::text", (LOCK_SPACE, STATING))
            changed = written or not membership.says_the_same(self._stated, standing)
            if changed:
                self._read(
                    "UPDATE executors SET standing = %s WHERE number = %s RETURNING 1",
                    (standing.model_dump_json(exclude={"id"}), self.number),
                )
            self._show(int(standing.at))
            rows = self._read(STANDINGS, (SEATS, self.number))
        if changed:  # and committed: a lock must not show that a row holds which was not written
            self._stated = standing
        return [
            read_standing(str(row["id"]), str(row["standing"]), float(str(row["shown"])))
            for row in rows
        ]

    def _show(self, at_s: int) -> None:
        """Show to peers, without a write, that what was stated holds at this second."""
        key = self.number << 32 | at_s
        if key != self._shown:
            self._read("SELECT pg_advisory_lock_shared(%s)::text", (key,))
            if self._shown:
                self._read("SELECT pg_advisory_unlock_shared(%s)", (self._shown,))
            self._shown = key

    def _inherit(self) -> Standing:
        """Return what the last life in this place stated, if that was lately."""
        if not self.place:
            return Standing()
        rows = self._read(
            "SELECT id, standing FROM executors WHERE number <> %s AND standing <> '' AND (died_at "
            "= 0 OR died_at > extract(epoch FROM clock_timestamp()) - %s) ORDER BY number DESC",
            (self.number, FORGET_S),
        )
        told = (read_standing(str(row["id"]), str(row["standing"])) for row in rows)
        return next((s for s in told if s.place == self.place), Standing())

    def active(self) -> int:
        """Return how many operations are active in the whole site."""
        [row] = self._read(
            "SELECT count(*)::integer AS active FROM operations WHERE status = %s",
            (str(OperationStatus.ACTIVE),),
        )
        return cast(int, row["active"])

    def leave(self) -> None:
        """Give the lease up: peers take over the remaining work at once."""
        for session in (self._session, self._desk):
            if session is not None:
                session.close()

    def _connect(self, name: str, idle_ms: int) -> Session:
        url = make_url(self._url).set(drivername="postgresql")
        # a server's own limits would end the seat where nothing but a wait is needed
        options = f"-c idle_session_timeout={idle_ms} -c lock_timeout=0 -c statement_timeout=0"
        return wait_for_room(
            lambda: psycopg.connect(
                url.render_as_string(hide_password=False),
                autocommit=True,
                row_factory=dict_row,
                **{**CONNECT, "application_name": name, "options": options},
            )
        )

    def _time(self) -> float:
        [row] = self._ask("SELECT extract(epoch FROM clock_timestamp())::float8 AS now", ())
        return cast(float, row["now"])

    def _lock(self, space: int, number: int) -> bool:
        rows = self._ask("SELECT pg_try_advisory_lock(%s, %s) AS taken", (space, number))
        return bool(rows[0]["taken"])

    def _ask(self, statement: str, values: tuple[object, ...]) -> list[dict[str, object]]:
        """Run a statement, which names no table, in the session that holds the locks."""
        assert self._session is not None, "not seated"
        return self._session.execute(statement.encode(), values).fetchall()

    def _read(self, statement: str, values: tuple[object, ...]) -> list[dict[str, object]]:
        """Run a statement at the desk, where it may wait for a table."""
        assert self._desk is not None, "not seated"
        with waits.on("a look at the other daemons", limited=False):
            return self._desk.execute(statement.encode(), values).fetchall()


def read_members(database: str) -> Sequence[Joined]:
    """Return the daemons that have a seat now, and the shards of each, for who has no seat.

    Blocks; raises `psycopg.Error`.
    """
    url = make_url(postgres_url(database)).set(drivername="postgresql")
    text = url.render_as_string(hide_password=False)
    with psycopg.connect(text, row_factory=dict_row, **CONNECT) as connection:
        return [_joined(row) for row in connection.execute(MEMBERS_SHARDS, (SHARDS, SEATS))]


def count_key_holders(database: str, key_id: str) -> int:
    """Return how many daemons have this master key at hand. Blocks; raises `psycopg.Error`."""
    url = make_url(postgres_url(database)).set(drivername="postgresql")
    text = url.render_as_string(hide_password=False)
    query = (
        "SELECT count(DISTINCT pid)::integer AS holders FROM pg_locks "
        "WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND classid = %s::bigint::oid AND objid = %s::bigint::oid"
    )
    with psycopg.connect(text, row_factory=dict_row, **CONNECT) as connection:
        [row] = connection.execute(query, (KEYS, crc32(key_id.encode()))).fetchall()
        return cast(int, row["holders"])


def _number_key(key_id: str) -> int:
    return _signed(crc32(key_id.encode()))


def _joined(row: Mapping[str, object]) -> Joined:
    return Joined(
        id=str(row["id"]),
        number=int(str(row["number"])),
        digests=json.loads(str(row["digests"])),
        change_until=float(str(row["change_until"])),
        shards=frozenset(cast(Sequence[int], row.get("shards", ()))),
    )


def _signed(number: int) -> int:
    """Return 32 bits as PostgreSQL's integer."""
    return number - 2**32 if number >= 2**31 else number
