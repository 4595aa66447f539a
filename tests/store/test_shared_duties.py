"""Duties that several daemons share on one PostgreSQL: each shard has one owner, and always one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import NoReturn

import psycopg
import pytest
from test_seats import LEASE_S, LIMIT_S, Daemon

from provisioner.control.watch import shards as shards_module
from provisioner.control.watch.shards import Shards
from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind
from provisioner.planning.watch.shards import find_shard
from provisioner.store import SqlStore, open_store
from provisioner.store.database.postgres import LOCK_SPACE
from provisioner.store.database.seat import LEADER

UNITS = 12


def make_host(unit: int, number: int) -> Node:
    place = Location(scalable_unit=unit, index=number, rack="r")
    return Node(id=f"u{unit}-n{number}", kind=NodeKind.HOST, location=place)


HOSTS = tuple(make_host(unit, number) for unit in range(UNITS) for number in range(4))
ALL = frozenset(find_shard(node) for node in HOSTS)


class Sharer(Daemon):
    """A daemon with its shards, and a duty that records which it left."""

    def __init__(self, database: str, name: str, store: SqlStore, ahead_s: float = 0.0) -> None:
        super().__init__(database, name, ahead_s)
        self.shards = Shards(store, self.clock, self.cluster)
        self.shards.attend(self)
        self.duty = "looks"
        self.left: list[int] = []
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        self.undone = float("inf")
        self._loop: asyncio.Task[None] | None = None

    async def leave(self, shards: Collection[int]) -> float:
        await self.may_leave.wait()
        self.left += shards
        return self.undone

    async def start(self) -> None:
        await self.cluster.start()
        self._loop = asyncio.create_task(self.shards.run())

    def _end(self, why: str) -> NoReturn:
        self.ends.append(why)
        raise LookupError(why)  # as the end of the process: nothing of it goes on

    async def end(self) -> None:
        """Its process is gone; what it holds is the server's to take away."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            await self.cluster.stop()
        self._loop = None

    @property
    def held(self) -> frozenset[int]:
        return frozenset(find_shard(node) for node in HOSTS if self.shards.holds(node))


@asynccontextmanager
async def site(database: str) -> AsyncIterator[Callable[..., Sharer]]:
    """Yield what makes daemons of one site of twelve units; they end with it."""
    stores, made = [open_store(database)], []
    for node in HOSTS:
        await stores[0].nodes.add(node)

    def make(name: str, ahead_s: float = 0.0) -> Sharer:
        stores.append(open_store(database))
        made.append(Sharer(database, name, stores[-1], ahead_s))
        return made[-1]

    try:
        yield make
    finally:
        for sharer in made:
            await sharer.end()
        for store in stores:
            await store.close()


async def share_out(*sharers: Sharer) -> None:
    """Wait until these hold everything, each its part; at no time do two hold one."""
    part = len(ALL) // len(sharers)
    async with asyncio.timeout(LIMIT_S):
        while True:
            held = [s.held for s in sharers]
            assert sum(map(len, held)) == len(frozenset().union(*held)), "two hold one shard"
            if frozenset().union(*held) == ALL and all(len(h) <= part + 1 for h in held):
                return
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(shards_module, "LOOK_S", 0.1)


def test_daemons_that_come_get_a_part_and_one_alone_has_all(database):
    async def scenario() -> list[list[str]]:
        async with site(database) as make:
            a, b, c = make("a", ahead_s=-20.0), make("b", ahead_s=20.0), make("c")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            await c.start()
            await share_out(a, b, c)
            moved = len(a.left) + len(b.left)
            assert moved <= len(ALL) // 2 + len(ALL) // 3, "more moved than had to"
            await c.end()
            await share_out(a, b)
            return [a.ends, b.ends]

    assert asyncio.run(scenario()) == [[], []]


def test_of_a_daemon_that_is_killed_the_shards_are_taken_with_the_looks_it_may_have_missed(
    database,
):
    async def scenario() -> tuple[float, set[float]]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            taken = a.held
            killed_at = b.clock.now()
            await a.end()
            await share_out(b)
            return (
                killed_at,
                {b.shards.find_start(n, "looks") for n in HOSTS if find_shard(n) in taken},
            )

    killed_at, since = asyncio.run(scenario())

    assert all(killed_at - 2 * LEASE_S < at <= killed_at for at in since)


def test_a_shard_is_given_only_once_its_duties_ended_and_the_successor_goes_on_from_there(database):
    async def scenario() -> tuple[float, set[float], int]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            a.may_leave.clear()
            a.undone = a.clock.now() - 7.0  # a turn that was overdue
            await b.start()
            await asyncio.sleep(1.0)
            early = len(b.held)
            a.may_leave.set()
            await share_out(a, b)
            return (
                a.undone,
                {b.shards.find_start(n, "looks") for n in HOSTS if b.shards.holds(n)},
                early,
            )

    undone, since, early = asyncio.run(scenario())

    assert since == {undone}
    assert early == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_daemon_whose_session_the_server_ended_holds_nothing_that_a_peer_takes(database):
    """Cut off, it ends before it acts; its locks went with the session."""

    async def scenario() -> list[str]:
        async with site(database) as make:
            a, b = make("a"), make("b")
            await a.start()
            await share_out(a)
            await b.start()
            await share_out(a, b)
            with psycopg.connect(database, autocommit=True) as person:
                person.execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = "
                    "'advisory' AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid",
                    (LOCK_SPACE + 1, a.seat.number),
                )
            with pytest.raises(LookupError):
                await a.cluster.take_shards(ALL)
            async with asyncio.timeout(LIMIT_S):
                while b.held != ALL:  # noqa: ASYNC110  (of the database)
                    await asyncio.sleep(0.05)
            return a.ends

    [why, *_] = asyncio.run(scenario())

    assert "the database ended the session" in why


def test_while_a_daemon_of_an_older_version_leads_it_alone_looks(database):
    async def scenario() -> tuple[frozenset[int], frozenset[int]]:
        async with site(database) as make:
            with psycopg.connect(database, autocommit=True) as older:
                older.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK_SPACE, LEADER))
                a = make("a")
                await a.start()
                await asyncio.sleep(1.0)
                beside = a.held
            await share_out(a)
            return beside, a.held

    assert asyncio.run(scenario()) == (frozenset(), ALL)
