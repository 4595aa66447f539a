"""The database that simulated daemons share, under virtual time: sessions, locks, the queue.

It does what PostgreSQL does for seats (idle sessions are ended with their locks) and what DBOS does
for the queue (a row per operation, taken by one executor), and it can be lost, cut off and failed
over. Rules: PostgreSQL 15 documentation, "Client Connection Defaults" (idle_session_timeout) and
"Explicit Locking" (session-level advisory locks).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import psycopg

from provisioner.planning.watch.membership import Joined, Standing
from provisioner.ports import StoreFailed
from provisioner.runtime.database_clock import Reading
from provisioner.store.database.seat import SAFE_PART, Peer
from provisioner.store.sql_store import SqlStore

POLL_S = 0.5  # of the queue, as DBOS is told to


class Gate:
    """What a daemon's process can do now: nothing while it is stopped or dead."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._runs, self._reaches = asyncio.Event(), asyncio.Event()
        self._runs.set()
        self._reaches.set()
        self._stopped_at: float | None = None
        self.dead = asyncio.Event()
        self.why = ""

    def steady_s(self) -> float:
        """The boot clock as the process reads it: a stopped one reads nothing."""
        return self._now() if self._stopped_at is None else self._stopped_at

    @property
    def runs(self) -> bool:
        """Whether the process runs, and nothing is between it and the database."""
        return self._runs.is_set() and self._reaches.is_set() and not self.dead.is_set()

    def stop(self) -> None:
        """SIGSTOP."""
        self._stopped_at = self._now()
        self._runs.clear()

    def go_on(self) -> None:
        """SIGCONT."""
        self._stopped_at = None
        self._runs.set()

    def cut(self) -> None:
        """Nothing passes to the database and back, and nobody is told."""
        self._reaches.clear()

    def mend(self) -> None:
        self._reaches.set()

    def end(self, why: str) -> None:
        """The process is gone."""
        if not self.dead.is_set():
            self.why = why
        self.dead.set()
        self.go_on()
        self.mend()

    async def passes(self) -> None:
        """Go on as soon as the process runs. One that is dead does nothing any more."""
        while not self._runs.is_set():
            await self._runs.wait()
        if self.dead.is_set():
            raise asyncio.CancelledError

    async def database(self) -> None:
        """As soon as the database can be reached."""
        await self.passes()
        while not self._reaches.is_set():
            await self._reaches.wait()
            await self.passes()


@dataclass
class Session:
    number: int
    id: str
    lease_s: float
    heard_at: float
    living: bool = True
    standing: Standing = field(default_factory=Standing)


@dataclass
class Server:
    """The database server. `now` is its clock."""

    now: Callable[[], float]
    ended: Callable[[str, float], None]  # told of each session that is over
    sessions: dict[int, Session] = field(default_factory=dict)
    died: dict[int, float] = field(default_factory=dict)
    locks: dict[tuple[str, int], int] = field(default_factory=dict)
    queue: dict[str, list[str]] = field(default_factory=dict)  # workflow -> operation, executor
    allowed: int = 1
    generation: int = 0  # raised by each failover
    down_until: float = 0.0

    def connect(self, id_: str, lease_s: float) -> Session:
        self._up()
        session = Session(len(self.sessions) + 1, id_, lease_s, self.now())
        self.sessions[session.number] = session
        self.locks["seat", session.number] = session.number
        return session

    def hear(self, session: Session) -> None:
        """One statement of a session; those that were silent for too long are ended first."""
        self.expire()
        self._up()
        if not session.living:
            raise psycopg.OperationalError("terminating connection due to idle-session timeout")
        session.heard_at = self.now()

    def expire(self) -> None:
        for session in self.sessions.values():
            if session.living and self.now() - session.heard_at > session.lease_s:
                self.close(session)

    def close(self, session: Session) -> None:
        """A session is over: with it go its locks."""
        if session.living:
            session.living = False
            self.ended(session.id, self.now())
            for key in [k for k, holder in self.locks.items() if holder == session.number]:
                del self.locks[key]

    def fail_over(self, down_s: float) -> None:
        """The primary is gone; a synchronous standby, which has everything, takes its place."""
        for session in list(self.sessions.values()):
            self.close(session)
        self.generation += 1
        self.down_until = self.now() + down_s

    def lock(self, session: Session, space: str, number: int) -> bool:
        return self.locks.setdefault((space, number), session.number) == session.number

    def holder(self, name: str) -> str:
        """Whose turn this name is; "" if it is nobody's."""
        self.expire()
        number = self.locks.get(("turn", crc32(name.encode())))
        return "" if number is None else self.sessions[number].id

    def owner(self, shard: int) -> str:
        """Whose this shard is; "" if it is nobody's."""
        self.expire()
        number = self.locks.get(("shard", shard))
        return "" if number is None else self.sessions[number].id

    @property
    def is_up(self) -> bool:
        """Whether the server answers now."""
        return self.now() >= self.down_until

    def _up(self) -> None:
        if self.now() < self.down_until:
            raise psycopg.OperationalError("connection refused")


class MemorySeat:
    """`store.seat.Seat` on that server: the same promises, without a network."""

    def __init__(
        self,
        server: Server,
        id_: str,
        lease_s: float,
        gate: Gate,
        wall: Callable[[], float],
        place: str = "",
    ) -> None:
        self.id, self.lease_s, self.place = id_, lease_s, place
        self.inherited, self.may_lead = Standing(), True
        self.number, self.leads, self.sure_until = 0, False, 0.0
        self.reading: Reading | None = None
        self._server, self._gate, self._wall = server, gate, wall
        self._session: Session | None = None
        self._turns: set[int] = set()

    def take(self) -> None:
        told = [s.standing for s in self._server.sessions.values() if self.place]
        self.inherited = next((t for t in told[::-1] if t.place == self.place), Standing())
        self._session = self._server.connect(self.id, self.lease_s)
        self.number = self._session.number
        self._heard()

    def beat(self) -> None:
        session = self._live()
        self.leads = self.leads or (self.may_lead and self._server.lock(session, "leader", 0))
        self._heard()

    def try_turn(self, name: str) -> bool:
        key = crc32(name.encode())
        if key in self._turns or not self._server.lock(self._live(), "turn", key):
            return False
        self._turns.add(key)
        return True

    def end_turn(self, name: str) -> None:
        session, key = self._live(), crc32(name.encode())
        self._turns.discard(key)
        if self._server.locks.get(("turn", key)) == session.number:
            del self._server.locks["turn", key]

    def share(self) -> None:
        self._server.lock(self._live(), "willing", self.number)

    def try_shards(self, shards: Collection[int]) -> frozenset[int]:
        session = self._live()
        return frozenset(s for s in shards if self._server.lock(session, "shard", s))

    def end_shards(self, shards: Collection[int]) -> None:
        session = self._live()
        for shard in shards:
            if self._server.locks.get(("shard", shard)) == session.number:
                del self._server.locks["shard", shard]

    def read_sharing(self) -> Mapping[int, frozenset[int]]:
        self._live()
        locks = self._server.locks.items()
        held = {number: set() for (space, number), _ in locks if space == "willing"}
        for (space, number), holder in locks:
            if space == "shard":
                held[holder].add(number)
        return {number: frozenset(shards) for number, shards in held.items()}

    def dead(self) -> Sequence[Peer]:
        session, server = self._live(), self._server
        gone = [s for s in server.sessions.values() if not s.living and s.number not in server.died]
        return [Peer(s.number, s.id) for s in gone if server.lock(session, "seat", s.number)]

    def let_go(self, peer: Peer) -> None:
        self._live()
        self._server.died[peer.number] = self._server.now()
        self._server.locks.pop(("seat", peer.number), None)

    @property
    def joined(self) -> Joined:
        return Joined(id=self.id, number=self.number)

    @property
    def living(self) -> bool:
        """Whether the server still has its session."""
        return self._session is not None and self._session.living

    def members(self) -> Sequence[Joined]:
        self._live()
        living = [s for s in self._server.sessions.values() if s.living]
        return [Joined(id=s.id, number=s.number) for s in living]

    def state(self, standing: Standing, *, written: bool = False) -> Sequence[Standing]:
        session = self._live()
        session.standing = standing
        others = [s for s in self._server.sessions.values() if s.living and s is not session]
        return [s.standing.model_copy(update={"id": s.id}) for s in others]

    def active(self) -> int:
        self._live()
        return len(self._server.queue)

    def leave(self) -> None:
        if self._session is not None:
            self._server.close(self._session)

    def _live(self) -> Session:
        assert self._session is not None
        self._server.hear(self._session)
        return self._session

    def _heard(self) -> None:
        steady = self._gate.steady_s()
        self.reading = Reading(self._server.now(), steady, 0.01, self._wall())
        self.sure_until = steady + self.lease_s * SAFE_PART


class MemoryThreads:
    """`cluster.Threads` in the event loop; a database that cannot be reached keeps them waiting."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._beating: asyncio.Task[None] | None = None

    def steady_s(self) -> float:
        return self._gate.steady_s()

    async def at_seat(self, work: Callable[[], Any]) -> Any:
        await self._gate.database()
        return work()

    async def at_desk(self, work: Callable[[], Any]) -> Any:
        await self._gate.database()
        return work()

    def start_beating(self, beat: Callable[[], None], pause_s: float) -> None:
        async def run() -> None:
            while True:
                await asyncio.sleep(pause_s)
                await self._gate.database()
                beat()

        self._beating = asyncio.create_task(run(), name="beat")

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()


class MemoryQueue:
    """`WorkQueue` on that server: each executor polls, and takes what it may."""

    def __init__(self, server: Server, gate: Gate) -> None:
        self._server, self._gate = server, gate
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def open(self, executor: str, run: Callable[[str], Awaitable[None]]) -> None:
        self._polling = asyncio.create_task(self._poll(executor, run), name="queue")

    async def _poll(self, executor: str, run: Callable[[str], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._gate.database()
            waiting = [w for w, row in self._server.queue.items() if not row[1]]
            for workflow in waiting[: max(self._server.allowed - len(self._tasks), 0)]:
                self._server.queue[workflow][1] = executor
                work = self._run(workflow, run)
                self._tasks[workflow] = asyncio.create_task(work, name=workflow)

    async def _run(self, workflow: str, run: Callable[[str], Awaitable[None]]) -> None:
        try:
            await run(self._server.queue[workflow][0])
            await self._gate.database()
            del self._server.queue[workflow]
        finally:
            self._tasks.pop(workflow, None)

    async def put(self, operation_id: str, *, again: bool = False) -> None:
        await self._gate.database()
        name = operation_id
        while again and name in self._server.queue:
            name += "+"
        self._server.queue.setdefault(name, [operation_id, ""])

    async def requeue(self, executor: str) -> int:
        await self._gate.database()
        found = [row for row in self._server.queue.values() if row[1] == executor]
        for row in found:
            row[1] = ""
        return len(found)

    async def driven_by(self, living: frozenset[str]) -> frozenset[str]:
        await self._gate.database()
        rows = self._server.queue.values()
        return frozenset(row[0] for row in rows if not row[1] or row[1] in living)

    async def allow(self, count: int) -> None:
        await self._gate.database()
        self._server.allowed = count

    async def forget(self) -> None:
        pass

    def close(self) -> None:
        for task in (*self._tasks.values(), *([self._polling] if self._polling else [])):
            task.cancel()


class MemberStore(SqlStore):
    """One daemon's own connections to the rows that all share, with its own memory of nodes."""

    def __init__(self, shared: SqlStore, server: Server, gate: Gate) -> None:
        super().__init__(shared.engine, shared.writer, shared.reader)
        self._server, self._gate, self._generation = server, gate, server.generation

    @property
    def shared(self) -> bool:
        return True

    async def write(self, work: Any) -> Any:
        await self._reached()
        told = await super().write(work)
        await self._gate.database()  # the answer, if the daemon is there to hear it
        return told

    async def read(self, work: Any) -> Any:
        await self._reached()
        told = await super().read(work)
        await self._gate.passes()
        return told

    async def close(self) -> None:
        pass  # the rows are the others' too

    async def _reached(self) -> None:
        await self._gate.database()
        server = self._server
        if server.generation != self._generation or server.now() < server.down_until:
            raise StoreFailed("the database failed: server closed the connection")
