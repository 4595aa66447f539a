"""Daemons on one database: nobody waits for another's round trips, and all writes hold."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import psycopg
import pytest
from given_events import event_of
from proxy import Cable
from sqlalchemy import text
from test_seats import Reaching, until

from provisioner.control.engine import cluster as cluster_module
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.watch import membership
from provisioner.ports import Fenced, StaleWrite, StoreFailed
from provisioner.store import open_store
from provisioner.store.database import postgres
from provisioner.store.database.rehearsal import OVERTAKEN, Piece, Rehearsing
from provisioner.store.rows import node_rows, operation_rows

LOCK = (postgres.LOCK_SPACE, postgres.WRITER)


def nodes_and_operations(store, count):
    def work(connection):
        opened = []
        for i in range(count):
            node_rows.add_node(
                connection,
                Node(id=f"n{i:03}", kind=NodeKind.HOST, state=State.INTAKE, entered_at=0.0),
            )
            opened.append(operation_rows.open_operation(connection, f"n{i:03}", "converging", 1.0))
        return opened

    return store.write(work)


async def recording(store, operation, waits, stop, pause_s):
    """Write until told to stop; the seconds of each write go to `waits`."""
    while not stop.is_set():
        began = time.monotonic()
        operation, _ = await store.operations.record(operation, now=1.0)
        waits.append(time.monotonic() - began)
        await asyncio.sleep(pause_s)


def late(waits):
    return sorted(waits)[int(len(waits) * 0.99)]


async def beside_a_slow_member(server, name, delay_s, writers, seconds):
    """Return the waits of two healthy daemons alone, those beside a slow one, and its own."""
    cable = Cable(server.port)
    await cable.open()
    healthy = [open_store(server.url(name)) for _ in range(2)]
    slow = await asyncio.to_thread(open_store, server.url(name, cable.port))
    opened = await nodes_and_operations(healthy[0], writers + 4)
    ours = [await healthy[i % 2].operations.take(opened[i].id) for i in range(4)]
    theirs = [await slow.operations.take(o.id) for o in opened[4:]]
    alone, beside, far = [], [], []
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(recording(healthy[i % 2], o, alone, stop, 0.02))
        for i, o in enumerate(ours)
    ]
    await asyncio.sleep(seconds / 2)
    stop.set()
    await asyncio.gather(*tasks)
    ours = [await healthy[i % 2].operations.take(o.id) for i, o in enumerate(ours)]
    cable.delay_s = delay_s  # at once, also in the middle of a transaction
    stop = asyncio.Event()
    tasks = [
        *(recording(healthy[i % 2], o, beside, stop, 0.02) for i, o in enumerate(ours)),
        *(recording(slow, o, far, stop, 0.0) for o in theirs),
    ]
    running = [asyncio.create_task(t) for t in tasks]
    await asyncio.sleep(seconds)
    stop.set()
    await asyncio.gather(*running)
    cable.delay_s = 0.0
    is_far = slow.link is not None and slow.link.far
    check = await healthy[0].journal.verify()
    for store in (*healthy, slow):
        await store.close()
    await cable.close()
    assert check.intact
    return alone, beside, far, is_far


@pytest.mark.parametrize("delay_s", [0.05, 0.5])
def test_healthy_daemons_write_beside_a_slow_one_as_they_do_alone(server, database, delay_s):
    """Before, one write of theirs waited for the slow one's whole group: forty round trips."""
    alone, beside, far, is_far = asyncio.run(
        beside_a_slow_member(server[0], "one", delay_s, writers=12, seconds=6.0)
    )

    assert far, "the slow one writes too"
    assert is_far, "it is told that it is slow"
    # no transaction of the slow one held the lock when its link became slow
    assert sorted(beside)[len(beside) // 2] < 5 * max(sorted(alone)[len(alone) // 2], 0.01)
    assert late(beside) < 5 * max(late(alone), 0.05)


@pytest.mark.long
@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.5, 1.5])
def test_the_99th_percentile_of_healthy_writes_beside_forty_slow_writers(
    server, database, delay_s, capsys
):
    alone, beside, far, _ = asyncio.run(
        beside_a_slow_member(server[0], "one", delay_s, writers=40, seconds=20.0)
    )

    with capsys.disabled():
        sys.stdout.write(
            f"\n{delay_s * 1000:.0f} ms, 40 writers: P99 alone {late(alone) * 1000:.0f} ms, beside "
            f"{late(beside) * 1000:.0f} ms, longest {max(beside) * 1000:.0f} ms; "
            f"{len(far)} writes of the slow one\n"
        )
    assert late(beside) < 5 * max(late(alone), 0.05)


@pytest.fixture
def rehearsing(database):
    """A connection that rehearses, and a healthy writer on the same database."""
    engine = postgres.open_postgres(database)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    yield connection, Rehearsing(connection, LOCK, patience_s=5.0)
    connection.close()
    engine.dispose()


def commit(rehearsal_, *works):
    pieces = [Piece(work) for work in works]
    rehearsal_.commit(pieces, None, lambda _counted: None)
    return pieces


def add(name):
    return lambda c: node_rows.add_node(
        c, Node(id=name, kind=NodeKind.HOST, state=State.INTAKE, entered_at=0.0)
    )


def test_work_reads_its_own_writes_before_anything_is_written(rehearsing, database):
    _, rehearsal_ = rehearsing
    seen_elsewhere = []

    def work(c):
        add("n1")(c)
        ours = c.scalar(text("SELECT count(*) FROM nodes"))
        with psycopg.connect(database) as other:
            seen_elsewhere.append(other.execute("SELECT count(*) FROM nodes").fetchone()[0])
        return ours

    [piece] = commit(rehearsal_, work)

    assert (piece.result, piece.error, seen_elsewhere) == (1, None, [0])
    with psycopg.connect(database) as other:
        assert other.execute("SELECT count(*) FROM nodes").fetchone() == (1,)


def test_no_lock_is_held_while_work_runs(rehearsing, database):
    _, rehearsal_ = rehearsing
    free = []

    def work(c):
        add("n1")(c)
        c.execute(text("SELECT count(*) FROM nodes")).all()
        with psycopg.connect(database) as other:
            taken = other.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK).fetchone()
            locks = other.execute(
                "SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid() AND locktype IN "
                "('transactionid', 'advisory') AND database IS NOT DISTINCT FROM "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchone()
        free.append((taken[0], locks[0]))

    commit(rehearsal_, work)

    assert free == [(True, 0)]


def held_again(_rehearsing, pieces, _count, _keep, **_near):
    """`Rehearsing.commit` as if others had been faster with all: written while the lock is held."""
    for piece in pieces:
        piece.done = piece.overtaken = True
    return 0


@pytest.mark.parametrize("planted", [False, True])
def test_a_lock_that_is_held_across_the_round_trips_of_work_again_is_seen(
    database, monkeypatch, planted
):
    """The slow member's fault, planted: every other daemon would wait for this work."""
    if planted:
        monkeypatch.setattr(Rehearsing, "commit", held_again)
    free = []

    def work(c):
        add("n1")(c)
        with psycopg.connect(database) as other:
            taken = other.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK)
            free.append(taken.fetchone()[0])

    async def scenario():
        store = open_store(database)
        await store.write(work)
        await store.close()

    asyncio.run(scenario())

    assert set(free) == {not planted}


def test_what_others_changed_after_the_look_is_looked_at_again(rehearsing, database):
    _, rehearsal_ = rehearsing
    commit(rehearsal_, add("n1"))
    looks = []

    def work(c):
        looks.append(c.scalar(text("SELECT count(*) FROM nodes")))
        if len(looks) == 1:
            with psycopg.connect(database) as other:
                other.execute("UPDATE nodes SET id = 'n0' WHERE id = 'n1'")
                other.execute("DELETE FROM nodes")
        add(f"after {looks[-1]}")(c)

    [piece] = commit(rehearsal_, work)

    assert (looks, piece.error) == ([1, 0], None)
    with psycopg.connect(database) as other:
        assert other.execute("SELECT id FROM nodes").fetchall() == [("after 0",)]


def test_a_write_that_was_taken_for_granted_is_tried_before_it_is_refused(rehearsing):
    """Each error reaches its own caller, and the rest of the group is written."""
    _, rehearsal_ = rehearsing
    commit(rehearsal_, add("n1"))
    [opened] = commit(
        rehearsal_, lambda c: operation_rows.open_operation(c, "n1", "converging", 1.0)
    )
    stale = opened.result.model_copy(update={"epoch": 7})

    def insert_again(c):
        c.execute(text("INSERT INTO nodes SELECT * FROM nodes"))

    fenced, taken, again, doubled, stale_add = commit(
        rehearsal_,
        lambda c: operation_rows.fence(c, stale),
        lambda c: operation_rows.take(c, opened.result.id),
        lambda c: operation_rows.open_operation(c, "n1", "converging", 1.0),
        insert_again,
        add("n1"),
    )

    assert isinstance(stale_add.error, StaleWrite)
    assert isinstance(fenced.error, Fenced)
    assert (taken.result.epoch, taken.error) == (1, None)
    assert (again.result, again.error) == (None, None)
    assert isinstance(doubled.error, AssertionError)


@pytest.mark.parametrize("value", ["returning", "on its way, RETURNING *", "RETURNING id --"])
@pytest.mark.parametrize("write", ["UPDATE nodes SET rack = :v WHERE id = 'n1'",
                                   "DELETE FROM nodes WHERE rack = :v OR id = 'n1'"])  # fmt: skip
def test_a_value_with_a_word_of_sql_is_a_value(rehearsing, write, value):
    """Of a campaign's row, for one: "the node is returning" ended each daemon that led."""
    _, rehearsal_ = rehearsing
    commit(rehearsal_, add("n1"))

    def work(c):
        # taken for one row at first, so that the whole is tried without guesses
        nobody = c.execute(text("UPDATE nodes SET rack = 'x' WHERE id = 'nobody'")).rowcount
        return nobody, c.execute(text(write), {"v": value}).rowcount

    [done] = commit(rehearsal_, work)

    assert (done.result, done.error) == ((0, 1), None)


def test_work_that_is_always_overtaken_is_given_up_and_says_so(rehearsing, database):
    _, rehearsal_ = rehearsing
    rehearsal_._patience_s = 0.3
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("CREATE TABLE seen AS SELECT ''::text AS text_")

        def work(c):
            c.execute(text("SELECT text_ FROM seen")).all()
            other.execute("UPDATE seen SET text_ = text_ || 'x'")

        [piece] = commit(rehearsal_, work)

    assert isinstance(piece.error, TimeoutError)
    assert "others were faster" in str(piece.error)


def test_the_journal_of_a_far_daemon_and_a_near_one_is_one_chain(database, monkeypatch):
    far, near = open_store(database), open_store(database)
    monkeypatch.setattr(far.link, "near", lambda _connection: False)

    async def scenario():
        await asyncio.gather(
            *(
                (far, near)[i % 2].journal.append(event_of("x", f'n"{i}\\é'), i / 7)
                for i in range(80)
            )
        )
        check = await near.journal.verify()
        await far.close()
        await near.close()
        return check.intact, check.rows

    assert asyncio.run(scenario()) == (True, 80)


@pytest.mark.parametrize("stage", ["before its statements", "after its statements"])
def test_a_process_that_was_stopped_in_its_work_holds_nobody_up(database, stage):
    """It is kept, once; meanwhile another daemon writes as if the first did not exist."""
    ours, other = open_store(database), open_store(database)
    inside, go_on = threading.Event(), threading.Event()

    def work(connection):
        if stage == "after its statements":
            add("n1")(connection)
            assert connection.scalar(text("SELECT count(*) FROM nodes")) == 1
        inside.set()
        assert go_on.wait(30)
        if stage == "before its statements":
            add("n1")(connection)

    async def scenario():
        stopped = asyncio.create_task(ours.write(work))
        await asyncio.to_thread(inside.wait, 30)
        await other.journal.append(event_of("x", "n2"), 1.0)
        assert not stopped.done()
        go_on.set()
        await stopped
        held = await other.read(lambda c: c.scalars(text("SELECT id FROM nodes")).all())
        await ours.close()
        await other.close()
        return held

    assert asyncio.run(scenario()) == ["n1"]


class Torn(Cable):
    """A cable that passes the beginning of a long message, and nothing after it."""

    def __init__(self, target):
        super().__init__(target)
        self.passes = 0  # bytes of the message

    async def _pass(self, reader, writer):
        while data := await reader.read(65536):
            if self.passes and len(data) > self.passes:
                writer.write(data[: self.passes])
                await writer.drain()
                await asyncio.sleep(3600.0)
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("of", ["a read after writes", "the commit"])
@pytest.mark.parametrize("part", [300, 900, 2900])
def test_a_link_that_is_cut_in_the_middle_of_a_message_leaves_no_lock_behind(
    server, database, of, part
):
    """A server runs statements of a pipeline as they come, and waits in the middle for the rest."""

    def work(connection):
        for i in range(20):
            add(f"n{i}")(connection)
        if of == "a read after writes":
            connection.execute(text("SELECT count(*) FROM nodes")).all()

    async def scenario():
        cable = Torn(server[0].port)
        await cable.open()
        near = open_store(database)
        cut = await asyncio.to_thread(open_store, server[0].url("one", cable.port))
        await cut.journal.append(event_of("x", "n1"), 1.0)
        cable.passes = part
        lost = asyncio.create_task(cut.write(work))
        await asyncio.sleep(0.5)
        with psycopg.connect(database) as other:
            free = other.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK).fetchone()
        await near.journal.append(event_of("x", "n2"), 1.0)
        await cable.close()
        with pytest.raises(StoreFailed):
            await lost
        for store in (cut, near):
            await store.close()
        return free

    assert asyncio.run(scenario()) == (True,)


@pytest.mark.parametrize("near", [True, False])
def test_work_that_others_are_faster_than_is_written_holding_the_lock_by_a_near_one_alone(
    database, monkeypatch, near
):
    store = open_store(database)
    monkeypatch.setattr(store.link, "near", lambda _connection: near)
    if not near:
        monkeypatch.setattr(postgres, "PATIENCE_S", 0.5)
    runs = []
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("CREATE TABLE seen AS SELECT 0 AS number_")

        def work(c):
            runs.append(c.scalar(text("SELECT number_ FROM seen")))
            if not holds_the_lock():
                other.execute("UPDATE seen SET number_ = number_ + 1")
            add("n1")(c)

        def holds_the_lock():
            return not other.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", LOCK).fetchone()[0]

        async def scenario():
            try:
                await store.write(work)
                return "written"
            except StoreFailed as failed:
                return str(failed)
            finally:
                await store.close()

        said = asyncio.run(scenario())

    if near:
        assert (said, len(runs)) == ("written", OVERTAKEN + 1)
    else:
        assert "others were faster" in said


@pytest.mark.parametrize("of", ["other rows", "the same rows"])
def test_work_of_many_rows_is_not_run_again_before_each_of_its_reads(database, of, monkeypatch):
    """A campaign of thousands of nodes reads and writes a row of each in one transaction."""
    store = open_store(database)
    monkeypatch.setattr(store.link, "near", lambda _connection: False)
    count = 200 if of == "other rows" else 80
    spoken = []
    real = psycopg.Cursor.execute

    def execute(cursor, query, *rest, **options):
        if isinstance(query, bytes):
            spoken.append(len(query))
        return real(cursor, query, *rest, **options)

    def work(c):
        for i in range(count):
            name = f"n{i:04}" if of == "other rows" else "n"
            if c.scalar(text("SELECT count(*) FROM many WHERE id = :id"), {"id": name}):
                c.execute(text("UPDATE many SET turns = turns + 1 WHERE id = :id"), {"id": name})
            else:
                c.execute(text("INSERT INTO many VALUES (:id, 1)"), {"id": name})
        return c.scalar(text("SELECT sum(turns) FROM many"))

    async def scenario():
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("CREATE TABLE many (id text PRIMARY KEY, turns int)")
        monkeypatch.setattr(psycopg.Cursor, "execute", execute)
        try:
            return await store.write(work)
        finally:
            await store.close()

    # what reads its own rows is right all the same, at the price of another rehearsal
    assert asyncio.run(scenario()) == count
    if of == "other rows":
        assert sum(spoken) < 2_000 * count  # 3,700 if each read ran all writes before it


def test_a_connection_that_breaks_fails_its_work_and_the_next_is_done(database):
    store = open_store(database)

    def broken(connection):
        add("n1")(connection)
        with psycopg.connect(database, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                "current_database() AND pid <> pg_backend_pid()"
            )
        return connection.scalar(text("SELECT count(*) FROM nodes"))

    async def scenario():
        with pytest.raises(StoreFailed):
            await store.write(broken)
        await store.write(add("n2"))
        held = await store.read(lambda c: c.scalars(text("SELECT id FROM nodes")).all())
        await store.close()
        return held

    assert asyncio.run(scenario()) == ["n2"]


def test_a_member_whose_link_becomes_slow_gives_its_work_away_and_says_so(
    server, database, monkeypatch
):
    monkeypatch.setattr(cluster_module, "LOOK_S", 0.1)
    monkeypatch.setattr(membership, "HOLD_S", 0.3)

    async def scenario():
        cable = Cable(server[0].port)
        await cable.open()
        near = Reaching(database, "near", "machine 1", set())
        far = Reaching(server[0].url("one", cable.port), "far", "machine 2", set())
        await far.start()
        await until(lambda: far.cluster.leads)
        await near.start()
        cable.delay_s = 0.2  # four times a near one, also on a busy machine
        with pytest.raises(LookupError):
            await asyncio.wait_for(far.cluster.failed(), 60.0)
        told = far.scope.notices["database"]
        await far.cluster.stop()
        await until(lambda: near.cluster.leads)
        await near.cluster.stop()
        await cable.close()
        return far.ends, told

    ends, told = asyncio.run(scenario())

    assert "its work goes to its peers: a round trip to the database takes" in ends[0]
    assert "from near" in ends[0]
    assert told[0].startswith("the database is far: a round trip takes")


def test_rows_that_work_asks_for_in_parts_come(rehearsing):
    _, rehearsal_ = rehearsing
    commit(rehearsal_, add("n1"), add("n2"))
    query = text("SELECT id FROM nodes ORDER BY id").execution_options(yield_per=1)

    [piece] = commit(rehearsal_, lambda c: [row.id for row in c.execute(query)])

    assert (piece.result, piece.error) == (["n1", "n2"], None)
