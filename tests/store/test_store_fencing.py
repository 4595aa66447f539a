"""Who may write: by operation, by epoch and by version, each for itself."""

from __future__ import annotations

import pytest
from sqlalchemy import event, insert
from virtual_time import run as run_virtual

from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, Operation, OperationStatus
from provisioner.ports import Fenced, StaleWrite
from provisioner.store import SqlStore, open_store
from provisioner.store.rows import operation_rows
from provisioner.store.schema.schema import operations

OPEN = (ActionStatus.INTENDED, ActionStatus.SENT)


async def driven(store: SqlStore, node: str = "n1") -> Operation:
    """A node with an operation that has a driver."""
    await store.nodes.add(Node(id=node, kind=NodeKind.HOST))
    operation = await store.operations.open(node, "journey", 1.0)
    return await store.operations.take(operation.id)


def test_a_driver_writes_its_own_operation_and_no_other(run):
    async def scenario(store):
        mine, other = await driven(store), await driven(store, "n2")
        assert (mine.epoch, mine.version) == (other.epoch, other.version)
        changed = mine.model_copy(update={"phase": "mine", "note": "note"})
        await store.operations.record(changed, now=2.0)
        return other, await store.operations.get(other.id), await store.operations.get(mine.id)

    other, read, mine = run(scenario)

    assert read == other
    assert (mine.phase, mine.note, mine.opened_at, mine.want) == ("mine", "note", 1.0, "journey")


@pytest.mark.parametrize("changes", [{"epoch": 2}, {"epoch": 0}, {"version": 0}, {"version": 2}])
def test_a_driver_of_another_epoch_or_version_writes_nothing(run, changes):
    async def scenario(store):
        mine = await driven(store)
        assert (mine.epoch, mine.version) == (1, 1)
        with pytest.raises(Fenced):
            await store.operations.record(mine.model_copy(update=changes), now=2.0)
        return mine, await store.operations.get(mine.id)

    mine, read = run(scenario)

    assert read == mine


def test_to_take_an_operation_over_raises_its_epoch_and_its_version_and_no_others(run):
    async def scenario(store):
        mine, other = await driven(store), await driven(store, "n2")
        taken = await store.operations.take(mine.id)
        return mine, taken, other, await store.operations.get(other.id)

    mine, taken, other, read = run(scenario)

    assert (taken.epoch, taken.version) == (mine.epoch + 1, mine.version + 1)
    assert read == other


def test_a_node_gets_its_operation_whatever_others_do(run):
    async def scenario(store):
        await driven(store)
        second = await driven(store, "n2")
        return second.id, [o.id for o in await store.operations.list_active()]

    assert run(scenario) == ("n2#1", ["n1#1", "n2#1"])


def test_an_operation_that_nobody_opened_is_not_there(run):
    async def scenario(store):
        return await store.operations.get("n1#1"), await store.operations.get_last_entry(
            "n1#1", "push"
        )

    assert run(scenario) == (None, None)


@pytest.mark.parametrize("status", list(ActionStatus))
def test_an_action_is_over_or_it_may_be_under_way(run, status):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(operation, "push", {}, 2.0)
        operation, settled = await store.operations.settle(operation, entry, status, now=3.0)
        if status in OPEN:
            with pytest.raises(AssertionError):
                await store.operations.intend(operation, "push", {}, 4.0)
        else:
            operation, again = await store.operations.intend(operation, "push", {}, 4.0)
            assert again.attempt == 2
        return settled.settled_at, settled.settled_epoch == operation.epoch

    assert run(scenario) == ((0.0, False) if status in OPEN else (3.0, True))


def test_an_attempt_is_settled_and_no_other(run):
    async def scenario(store):
        operation = await driven(store)
        operation, first = await store.operations.intend(operation, "push", {"was": 1}, 2.0)
        operation, first = await store.operations.settle(
            operation, first, ActionStatus.ABSENT, now=3.0
        )
        operation, other = await store.operations.intend(operation, "reset", {}, 4.0)
        operation, second = await store.operations.intend(operation, "push", {"was": 2}, 5.0)
        operation, second = await store.operations.settle(
            operation, second, ActionStatus.SENT, task="/task", outcome="taken", now=6.0
        )
        operation, kept = await store.operations.settle(
            operation, second, ActionStatus.CONFIRMED, now=7.0
        )
        return (
            (first, other, kept),
            await store.operations.list_entries("n1"),
            await store.operations.get_last_entry(operation.id, "push"),
        )

    (first, other, kept), every, last = run(scenario)

    assert every == (first, other, kept)
    assert last == kept
    assert (kept.task, kept.outcome, kept.settled_at) == ("/task", "taken", 7.0)
    assert (first.settled_at, other.settled_at) == (3.0, 0.0)
    assert (first.settled_epoch, other.settled_epoch) == (first.epoch, None)


def test_of_two_open_actions_and_of_two_attempts_one_is_settled(run):
    async def scenario(store):
        operation = await driven(store)
        operation, push = await store.operations.intend(operation, "push", {}, 2.0)
        operation, reset = await store.operations.intend(operation, "reset", {}, 2.0)
        operation, push = await store.operations.settle(
            operation, push, ActionStatus.ABSENT, now=3.0
        )
        operation, again = await store.operations.intend(operation, "push", {}, 4.0)
        operation, again = await store.operations.settle(
            operation, again, ActionStatus.ABSENT, now=5.0
        )
        operation, again = await store.operations.settle(
            operation, again, ActionStatus.UNCLEAR, now=6.0
        )
        return (push, reset, again), await store.operations.list_entries("n1")

    settled, every = run(scenario)

    assert every == settled
    assert [e.settled_at for e in every] == [3.0, 0.0, 6.0]


def test_what_no_database_can_keep_is_replaced_before_it_is_written(run):
    async def scenario(store):
        mine = await driven(store)
        changed = mine.model_copy(update={"phase": "a\x00b", "note": "c\ud800"})
        written, _ = await store.operations.record(changed, now=2.0)
        return written, await store.operations.get(mine.id)

    written, read = run(scenario)

    assert written == read
    assert (read.phase, read.note) == ("a\ufffdb", "c?")


def test_the_same_attempt_of_another_node_is_left_alone(run):
    async def scenario(store):
        mine, other = await driven(store), await driven(store, "n2")
        mine, entry = await store.operations.intend(mine, "push", {}, 2.0)
        other, theirs = await store.operations.intend(other, "push", {}, 2.0)
        await store.operations.settle(mine, entry, ActionStatus.CONFIRMED, now=3.0)
        return (
            theirs,
            await store.operations.list_entries("n2"),
            await store.operations.get_last_entry(other.id, "push"),
        )

    theirs, every, last = run(scenario)

    assert every == (theirs,)
    assert last == theirs


def test_an_entry_that_was_sent_meanwhile_is_not_settled_as_intended(run):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(operation, "push", {}, 2.0)
        operation, _ = await store.operations.settle(operation, entry, ActionStatus.SENT, now=3.0)
        with pytest.raises(StaleWrite):
            await store.operations.settle(operation, entry, ActionStatus.ABSENT, now=4.0)
        return (await store.operations.get_last_entry(operation.id, "push")).status

    assert run(scenario) is ActionStatus.SENT


@pytest.mark.parametrize("theirs", list(OperationStatus))
def test_of_two_daemons_that_open_an_operation_the_index_chooses_one(tmp_path, theirs):
    """Between our look and our write another daemon has written: on one connection here."""

    def race(connection):
        def competitor(raw, _name):
            raw.execute(
                insert(operations).values(
                    id="n1#1", node="n1", number=1, want="theirs", status=str(theirs),
                    epoch=0, version=0, phase="", opened_at=1.0, note="",
                )
            )  # fmt: skip

        event.listen(connection, "savepoint", competitor)
        try:
            return operation_rows.open_operation(connection, "n1", "ours", 2.0)
        finally:
            event.remove(connection, "savepoint", competitor)

    async def scenario():
        store = open_store(tmp_path / "data" / "store.db", inline=True)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        try:
            return await store.write(race)
        finally:
            await store.close()

    if theirs is OperationStatus.ACTIVE:
        assert run_virtual(scenario()) is None
    else:  # its number is taken, and nobody drives the node: that is a bug
        with pytest.raises(AssertionError, match="constraint"):
            run_virtual(scenario())
