"""Many coroutines at once: shared commits, one winner, nobody pays for a neighbour's mistake."""

from __future__ import annotations

import asyncio
import threading

import pytest
from given_events import event_of
from sqlalchemy import create_engine, event, select

from provisioner.model.node import Node, NodeKind
from provisioner.ports import Fenced, StaleWrite, StoreFailed
from provisioner.store import open_store
from provisioner.store.database.lanes import ThreadLane


def in_threads(path, scenario):
    """Run on a threaded store; these tests are about threads."""

    async def main():
        store = open_store(path)
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(main())


def test_writes_of_many_coroutines_share_commits(tmp_path):
    async def scenario(store):
        before = store.writer.transactions
        await asyncio.gather(
            *(store.journal.append(event_of("x", f"n{i}"), 1.0) for i in range(600))
        )
        return store.writer.transactions - before, (await store.journal.verify()).rows

    transactions, rows = in_threads(tmp_path / "store.db", scenario)

    assert rows == 600
    assert transactions < 60


def test_of_many_writers_of_one_generation_exactly_one_wins(run):
    async def scenario(store):
        node = await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        answers = await asyncio.gather(
            *(store.nodes.save(node.model_copy(update={"note": str(i)})) for i in range(200)),
            return_exceptions=True,
        )
        won = [a for a in answers if isinstance(a, Node)]
        lost = [a for a in answers if isinstance(a, StaleWrite)]
        return won, len(lost), await store.nodes.get("n1")

    won, lost, read = run(scenario)

    assert (won, lost) == ([read], 199)


def test_of_many_openers_exactly_one_gets_the_operation(run):
    async def scenario(store):
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        answers = await asyncio.gather(
            *(store.operations.open("n1", "journey", 1.0) for _ in range(100))
        )
        return [a.id for a in answers if a is not None]

    assert run(scenario) == ["n1#1"]


def test_failures_in_a_group_leave_the_others_alone(run):
    async def scenario(store):
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        old = await store.operations.take((await store.operations.open("n1", "journey", 1.0)).id)
        await store.operations.take(old.id)
        writes = []
        for number in range(50):
            writes += [
                store.journal.append(event_of("good", "n1", {"number": number}), 1.0),
                store.operations.record(old, events=[event_of("fenced")], now=1.0),
                store.nodes.save(Node(id="nobody", kind=NodeKind.HOST)),
                store.operations.open("nobody", "journey", 1.0),
            ]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        kinds = [type(a) for a in answers]
        numbers = [r["detail"]["number"] for r in await store.journal.list()]
        return kinds, numbers, (await store.journal.verify()).intact

    kinds, numbers, intact = run(scenario)

    assert kinds == [type(None), Fenced, StaleWrite, AssertionError] * 50
    assert numbers == list(range(50))
    assert intact


def test_a_refused_turn_in_a_group_takes_back_what_it_wrote_before_the_refusal(tmp_path):
    async def scenario(store):
        for number in range(20):
            await store.nodes.add(Node(id=f"n{number}", kind=NodeKind.HOST))
        held = [
            await store.operations.take((await store.operations.open(f"n{i}", "journey", 1.0)).id)
            for i in range(20)
        ]
        stale = [Node(id=o.node, kind=NodeKind.HOST, generation=7) for o in held]
        answers = await asyncio.gather(
            *(
                store.operations.record(o, node=n, now=2.0)
                for o, n in zip(held, stale, strict=True)
            ),
            return_exceptions=True,
        )
        after = [await store.operations.get(o.id) for o in held]
        return {type(a) for a in answers}, after == held

    assert in_threads(tmp_path / "store.db", scenario) == ({StaleWrite}, True)


def test_a_commit_that_fails_is_tried_one_by_one_and_nothing_is_lost_or_doubled(tmp_path):
    failures = iter([True, True])  # the group's commit, and one of those that are tried alone

    async def scenario(store):
        @event.listens_for(store.engine, "commit")
        def _fail(connection):
            if next(failures, False):
                connection.exec_driver_sql("SELECT * FROM no_such_table")

        answers = await asyncio.gather(
            *(store.journal.append(event_of("x", "", {"number": i}), 1.0) for i in range(20)),
            return_exceptions=True,
        )
        rows = [r["detail"]["number"] for r in await store.journal.list()]
        failed = [i for i, a in enumerate(answers) if isinstance(a, StoreFailed)]
        return rows, failed, (await store.journal.verify()).intact

    rows, failed, intact = in_threads(tmp_path / "store.db", scenario)

    assert sorted(rows + failed) == list(range(20))
    assert 1 <= len(failed) <= 2
    assert intact


def test_a_slow_write_does_not_hold_up_the_loop_or_a_reader(tmp_path):
    entered, released = threading.Event(), threading.Event()

    def slow(connection):
        entered.set()
        assert released.wait(60)

    async def scenario(store):
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        writing = asyncio.create_task(store.write(slow))
        assert await asyncio.to_thread(entered.wait, 60)
        read = await store.nodes.get("n1")
        still = not writing.done()
        released.set()
        await writing
        return read.id, still

    assert in_threads(tmp_path / "store.db", scenario) == ("n1", True)


def test_a_read_sees_every_write_that_was_answered_before(tmp_path):
    async def bump(store, name):
        node = await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
        for _ in range(10):
            node = await store.nodes.save(node)
            assert await store.nodes.get(name) == node

    async def scenario(store):
        await asyncio.gather(*(bump(store, f"n{i}") for i in range(20)))
        return {node.generation for node in await store.nodes.list()}

    assert in_threads(tmp_path / "store.db", scenario) == {10}


def test_a_cancelled_caller_disturbs_nobody(tmp_path):
    async def scenario(store):
        tasks = [
            asyncio.create_task(store.journal.append(event_of("x", "", {"number": i}), 1.0))
            for i in range(100)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        rows = {r["detail"]["number"] for r in await store.journal.list()}
        return [i for i, a in enumerate(answers) if a is None], rows

    answered, rows = in_threads(tmp_path / "store.db", scenario)

    assert set(answered) >= set(range(1, 100, 2))
    assert rows >= set(answered)


def test_closing_finishes_the_writes_that_wait(tmp_path):
    async def scenario(store):
        tasks = [asyncio.create_task(store.journal.append(event_of("x"), 1.0)) for _ in range(50)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        again = open_store(tmp_path / "store.db")
        rows = (await again.journal.verify()).rows
        await again.close()
        return rows

    assert in_threads(tmp_path / "store.db", scenario) == 50


def test_inline_never_yields_to_the_loop():
    """Under virtual time a yield would let the clock jump to the next timer."""

    async def scenario():
        store = open_store(":memory:", inline=True)
        write = store.journal.append(event_of("x"), 1.0)
        with pytest.raises(StopIteration):
            write.send(None)
        await store.close()

    asyncio.run(scenario())


def test_a_thread_that_could_not_connect_answers_and_connects_at_the_next_call():
    engine = create_engine("sqlite://")
    failures = [OSError("the server closed the connection")]

    def connect():
        if failures:
            raise failures.pop()
        return engine.connect()

    async def scenario():
        lane = ThreadLane(connect, "store-reader", reads=True)
        async with asyncio.timeout(30):  # without an answer it would wait for good
            with pytest.raises(StoreFailed, match="cannot be reached"):
                await lane.run(lambda c: c.scalar(select(1)))
            answer = await lane.run(lambda c: c.scalar(select(1)))
        await lane.close()
        return answer

    assert asyncio.run(scenario()) == 1
