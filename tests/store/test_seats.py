"""Seats and turns of several daemons on one PostgreSQL, which may keep them waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import NoReturn

import psycopg
import pytest

from provisioner.control.engine import cluster as cluster_module
from provisioner.control.engine.cluster import Cluster, SharedTime
from provisioner.model.input_error import InputError
from provisioner.planning.watch import membership
from provisioner.planning.watch.membership import Standing, WorksBy
from provisioner.runtime import permit
from provisioner.runtime.database_clock import DatabaseClock, read_boot_clock
from provisioner.store.database.seat import Seat, read_members

LEASE_S = 2.0  # the seat is sure for three quarters of it
LIMIT_S = 30.0


class Daemon:
    """A seat with its cluster; `ends` records why it would have ended the process."""

    def __init__(
        self, database: str, name: str, ahead_s: float = 0.0, works: WorksBy | None = None
    ) -> None:
        """`ahead_s`: of this daemon's machine, against the database's clock."""
        self.ends: list[str] = []
        self.ended = threading.Event()
        self.ahead_s = ahead_s
        self.clock = DatabaseClock()
        wall = lambda: time.time() + self.ahead_s  # noqa: E731
        self.seat = Seat(database, name, "test", LEASE_S, wall, works)
        self.cluster = Cluster(self.seat, self._end, SharedTime(self.clock, 30.0))

    def _end(self, why: str) -> NoReturn:
        self.ends.append(why)
        self.ended.set()
        raise SystemExit(why)


@asynccontextmanager
async def seated(database: str, *names: str) -> AsyncIterator[list[Daemon]]:
    daemons = [Daemon(database, name) for name in names]
    for daemon in daemons:
        await daemon.cluster.start()
    try:
        yield daemons
    finally:
        for daemon in daemons:
            await daemon.cluster.stop()


@pytest.mark.parametrize("table", ["executors", "operations"])
def test_a_lock_on_a_table_that_outlasts_the_lease_ends_no_daemon(database, table):
    async def scenario() -> list[list[str]]:
        async with seated(database, "a", "b") as daemons:
            person = psycopg.connect(database)
            person.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            began = read_boot_clock()
            waiting = [
                asyncio.ensure_future(ask())
                for d in daemons
                for ask in (d.cluster.find_dead, d.cluster.find_living, d.cluster.count_active)
            ]
            while read_boot_clock() < began + 2 * LEASE_S:
                await asyncio.sleep(0.1)
                for daemon in daemons:
                    daemon.cluster.check()
            assert not all(task.done() for task in waiting), "nothing waited for the table"
            await asyncio.wait_for(daemons[0].cluster.take("leaf"), LIMIT_S)  # moves go on
            person.rollback()
            person.close()
            await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_S)
            return [d.ends for d in daemons]

    assert asyncio.run(scenario()) == [[], []]


def test_a_turn_whose_waiter_was_cancelled_is_given_back(database):
    """It was cancelled after the database had been asked, and before the answer was there."""

    async def scenario() -> list[list[str]]:
        async with seated(database, "a", "b") as daemons:
            ours, peer = daemons
            for _ in range(20):
                waiter = asyncio.ensure_future(ours.cluster.take("leaf"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
            for cluster in (peer.cluster, ours.cluster):
                await asyncio.wait_for(cluster.take("leaf"), LIMIT_S)
                await cluster.give_back("leaf")
            return [d.ends for d in daemons]

    assert asyncio.run(scenario()) == [[], []]


def test_a_daemon_whose_clock_differs_goes_by_the_databases_and_reports_it(database, caplog):
    async def scenario() -> tuple[float, float]:
        daemon = Daemon(database, "a", ahead_s=-20.0)
        await daemon.cluster.start()
        try:
            return daemon.cluster.apart_s, daemon.clock.now() - time.time()
        finally:
            await daemon.cluster.stop()

    apart_s, off_s = asyncio.run(scenario())

    assert -21.0 < apart_s < -19.0
    assert abs(off_s) < 1.0  # the database is on this machine
    assert "s behind the database's: look at its NTP" in caplog.text


def test_a_daemon_whose_clock_is_beyond_the_limit_is_refused(database):
    async def scenario() -> None:
        await Daemon(database, "a", ahead_s=60.0).cluster.start()

    with pytest.raises(InputError, match=r"60\.\d s ahead of the database's.*NTP"):
        asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_daemon_whose_clock_goes_beyond_the_limit_ends(database):
    async def scenario() -> list[str]:
        async with seated(database, "a") as [daemon]:
            daemon.ahead_s = 60.0
            await asyncio.to_thread(daemon.ended.wait, LIMIT_S)
            return daemon.ends

    [why, *_] = asyncio.run(scenario())

    assert "ahead of the database's" in why


OLD = WorksBy(digests={"code": "1", "matrix": "a"})
NEW = WorksBy(digests={"code": "1", "matrix": "b"})


def test_a_daemon_with_another_matrix_is_refused_and_its_peers_stay(database):
    async def scenario() -> tuple[list[str], list[str]]:
        first, second = Daemon(database, "a", works=OLD), Daemon(database, "b", works=NEW)
        await first.cluster.start()
        try:
            with pytest.raises(InputError, match=r"another matrix than a.*--change-until"):
                await second.cluster.start()
            return [m.id for m in read_members(database)], sorted(await first.cluster.find_living())
        finally:
            await first.cluster.stop()

    assert asyncio.run(scenario()) == (["a"], ["a"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_declared_change_rolls_through_and_at_its_end_the_old_daemon_ends(database, caplog):
    async def scenario() -> tuple[tuple[str, ...], list[str], list[str]]:
        old = Daemon(database, "old", works=OLD)
        until = WorksBy(digests=NEW.digests, change_until=time.time() + 4.0)
        new = Daemon(database, "new", works=until)
        await old.cluster.start()
        await new.cluster.start()
        await old.cluster.find_living()
        told = old.cluster.mixed
        await asyncio.sleep(until.change_until - time.time() + 0.5)
        with pytest.raises(SystemExit):
            await old.cluster.find_living()
        await new.cluster.find_living()
        await new.cluster.stop()
        await old.cluster.stop()
        return told, old.ends, new.ends

    told, old, new = asyncio.run(scenario())

    assert told == ("new works by another matrix",)
    assert "while a change rolls through: new works by another matrix" in caplog.text
    assert "which joined later; the change has ended" in old[0]
    assert new == []


DEVICES = tuple(f"10.0.0.{i}:443" for i in range(6))


class Reaching:
    """A seated daemon with a process of its own, and the devices that it has a way to."""

    def __init__(self, database: str, name: str, place: str, ways: set[str]) -> None:
        self.ways = ways
        self.scope = permit.Scope()
        self.ends: list[str] = []
        self.seat = Seat(database, name, "test", LEASE_S, place=place)
        self.cluster = Cluster(self.seat, self._end, probe=self._probe)

    async def _probe(self, where: str, _limit_s: float) -> bool:
        return where in self.ways

    def _end(self, why: str) -> NoReturn:
        self.ends.append(why)
        raise LookupError(why)  # as the end of the process: nothing of it goes on

    async def start(self) -> None:
        context = copy_context()
        context.run(permit.set_simulated_scope, self.scope)
        await asyncio.create_task(self.cluster.start(), context=context)

    def asks(self, *devices: str) -> None:
        for where in devices:
            self.scope.heard[where] = (read_boot_clock(), where in self.ways)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110  (of threads)
            await asyncio.sleep(0.05)


def test_a_daemon_without_a_way_to_its_devices_gives_up_work_and_lead_until_it_has_one(
    database, monkeypatch, caplog
):
    monkeypatch.setattr(cluster_module, "LOOK_S", 0.1)
    monkeypatch.setattr(membership, "HOLD_S", 0.3)
    monkeypatch.setattr(membership, "RETURN_S", 0.5)

    async def scenario() -> tuple[list[str], list[bool], tuple[str, ...]]:
        cut = Reaching(database, "cut", "machine 1", set())
        peer = Reaching(database, "peer", "machine 2", set(DEVICES))
        await cut.start()
        await until(lambda: cut.cluster.leads)
        await peer.start()
        cut.asks(*DEVICES)
        with pytest.raises(LookupError):
            await asyncio.wait_for(cut.cluster.failed(), LIMIT_S)
        await cut.cluster.stop()
        await until(lambda: peer.cluster.leads)
        again = Reaching(database, "again", "machine 1", set())
        await again.start()
        told = again.scope.notices["reach"]
        stood = [again.cluster.fit]
        await until(lambda: bool(peer.scope.notices.get("reach of peers")))
        stood.append(await peer.cluster.count_fit() == 1)
        await asyncio.sleep(1.0)
        stood.append(again.cluster.fit)
        again.ways = set(DEVICES)
        await asyncio.wait_for(again.cluster.wait_until_fit(), LIMIT_S)
        await until(lambda: not peer.scope.notices["reach of peers"])
        stood.append(await peer.cluster.count_fit() == 2)
        await again.cluster.stop()
        await peer.cluster.stop()
        return cut.ends, stood, told

    ends, stood, told = asyncio.run(scenario())

    assert (
        "its work goes to its peers: 0 of 6 devices that it asked answered; of 6 silent"
        in (ends[0])
    )
    assert stood == [False, True, False, True]
    why = "its last life gave its work to its peers"
    assert told == (f"this daemon drives nothing, its peers do its work: {why}",)
    assert "it reaches what its peers reach" in caplog.text


def test_an_unfit_daemon_whose_last_peer_ends_takes_the_work_and_the_lead(database, monkeypatch):
    monkeypatch.setattr(cluster_module, "LOOK_S", 0.1)

    async def scenario() -> bool:
        peer = Reaching(database, "peer", "machine 2", set(DEVICES))
        await peer.start()
        await until(lambda: peer.cluster.leads)
        gone = Seat(database, "gone", "test", LEASE_S, place="machine 1")
        gone.take()
        unfit = Standing(fit=False, place="machine 1", sample=DEVICES, at=time.time())
        gone.state(unfit)
        gone.leave()
        again = Reaching(database, "again", "machine 1", set())
        await again.start()
        await asyncio.sleep(0.5)
        before = again.cluster.fit
        await peer.cluster.stop()
        await asyncio.wait_for(again.cluster.wait_until_fit(), LIMIT_S)
        await until(lambda: again.cluster.leads)
        await again.cluster.stop()
        return before

    assert asyncio.run(scenario()) is False


def read_rows(database: str) -> list[tuple[str, str]]:
    """Where each daemon's row is, and by which transaction it was written."""
    with psycopg.connect(database) as person:
        places = "SELECT ctid::text, xmin::text FROM executors ORDER BY number"
        return [(str(ctid), str(xmin)) for ctid, xmin in person.execute(places).fetchall()]


@pytest.mark.parametrize("count", [1, 3])
def test_daemons_that_reach_all_write_no_row_at_their_looks_and_stay_fresh(
    database, monkeypatch, count
):
    """However many they are: the database's writes for a node do not grow with the daemons."""
    monkeypatch.setattr(cluster_module, "LOOK_S", 0.1)

    async def scenario() -> tuple[list[list[tuple[str, str]]], list[float]]:
        members = [Reaching(database, f"d{i}", f"machine {i}", set(DEVICES)) for i in range(count)]
        reader = Seat(database, "reader", "test", 10 * LIMIT_S)
        reader.take()
        for member in members:
            await member.start()
        heard: list[dict[str, float]] = []

        async def hear(times: int) -> None:
            """Wait until each has stated at so many seconds."""
            async with asyncio.timeout(LIMIT_S):
                while any(len({h.get(m.seat.id) for h in heard}) < times for m in members):
                    for member in members:
                        member.asks(*DEVICES)
                    told = await asyncio.to_thread(reader.state, Standing(at=1.0))
                    heard.append({one.id: one.at for one in told if one.at})
                    await asyncio.sleep(0.1)

        await hear(4)
        rows = [read_rows(database)]
        heard.clear()
        await hear(4)
        rows.append(read_rows(database))
        now = time.time()
        for member in members:
            await member.cluster.stop()
        reader.leave()
        return rows, [now - at for at in heard[-1].values()]

    (before, after), ages = asyncio.run(scenario())

    assert before == after
    assert len(ages) == count
    assert max(ages) < membership.FRESH_S


def test_a_statement_grows_old_with_the_daemon_that_no_longer_makes_it(database):
    """Its seat still lives: a loop that hangs is given no work."""
    one, other = (Seat(database, name, "test", LIMIT_S) for name in ("a", "b"))
    one.take()
    other.take()

    def hear() -> list[float]:
        return [told.at for told in other.state(Standing(at=1.0))]

    well = Standing(at=100.0, tried=9, round_trip_ms=1.0)
    one.state(well)
    rows = read_rows(database)
    one.state(well.model_copy(update={"at": 106.5, "tried": 11}))
    heard = [hear(), hear()]
    kept = read_rows(database)[0] == rows[0]
    one.state(well.model_copy(update={"at": 107.0}), written=True)  # for a peer of another version
    written = read_rows(database)[0] != rows[0]
    one.state(well.model_copy(update={"at": 120.0}))
    heard.append(hear())
    one.leave()
    again = Seat(database, "c", "test", LIMIT_S)
    again.take()
    heard.append(hear())
    again.leave()
    other.leave()

    assert heard == [[106.0], [106.0], [120.0], [0.0]]
    assert (kept, written) == (True, True)


def test_two_that_would_give_up_at_once_are_asked_one_after_the_other(database):
    """The second one sees that the first one has given up, and keeps its work."""
    seats = [Seat(database, name, "test", LEASE_S) for name in ("a", "b")]
    for seat in seats:
        seat.take()
    told = [seat.state(Standing(fit=False, at=1.0)) for seat in seats]
    for seat in seats:
        seat.leave()

    assert [[(s.id, s.fit) for s in peers] for peers in told] == [[("b", True)], [("a", False)]]
