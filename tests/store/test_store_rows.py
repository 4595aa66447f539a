"""What each method of the store promises, however the store runs."""

from __future__ import annotations

import pytest
from given_events import event_of, in_state
from sqlalchemy import text

from provisioner.model.alert import Subscription
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.inventory import Component, Inventory
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.operation import ActionStatus, OperationStatus
from provisioner.model.tenant import ReleaseProof
from provisioner.ports import DamagedRow, Fenced, StaleWrite
from provisioner.store import SqlStore
from provisioner.store.schema.schema import inventories

NODE = Node(id="n1", kind=NodeKind.HOST)
REPORT = HealthReport(node="n1", inventory_digest="d", started_at=1, ended_at=2, results=())
PROOF = ReleaseProof(node="n1", certificate="c1", tenant="blue", placements=())
CERTIFICATE = Certificate(
    id="c1", node="n1", release="r", profile="p", serials=("s",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="d", matrix_digest="m", issued_at=1, expires_at=9,
)  # fmt: skip


def seen(version: str) -> Inventory:
    component = Component(kind="host.bios", slot="", version=version, source="/x")
    return Inventory(node="n1", vendor="unknown", components=(component,))


async def driven(store: SqlStore):
    """A node with an operation that has a driver."""
    await store.nodes.add(NODE)
    operation = await store.operations.open("n1", "journey", 1.0)
    return await store.operations.take(operation.id)


def test_a_saved_node_is_read_back_with_its_generation_raised(run):
    async def scenario(store):
        node = await store.nodes.add(NODE)
        saved = await store.nodes.save(in_state(node, State.INTAKE, 5.0))
        return (
            saved,
            await store.nodes.get("n1"),
            await store.nodes.list(),
            await store.nodes.get("n2"),
        )

    saved, read, every, missing = run(scenario)

    assert saved == NODE.model_copy(
        update={"state": State.INTAKE, "entered_at": 5.0, "generation": 1}
    )
    assert (read, every, missing) == (saved, (saved,), None)


def test_a_node_that_changed_since_it_was_read_is_not_written_over(run):
    async def scenario(store):
        node = await store.nodes.add(NODE)
        saved = await store.nodes.save(node)
        with pytest.raises(StaleWrite):
            await store.nodes.save(node.model_copy(update={"note": "late"}))
        with pytest.raises(StaleWrite):
            await store.nodes.add(NODE)
        with pytest.raises(StaleWrite):
            await store.nodes.save(Node(id="nobody", kind=NodeKind.HOST))
        return saved, await store.nodes.get("n1")

    saved, read = run(scenario)

    assert read == saved


def test_a_node_has_at_most_one_active_operation(run):
    async def scenario(store):
        operation = await driven(store)
        second = await store.operations.open("n1", "release", 2.0)
        await store.operations.record(
            operation.model_copy(update={"status": OperationStatus.DONE}), now=3.0
        )
        third = await store.operations.open("n1", "release", 4.0)
        return second, third.id, [o.id for o in await store.operations.list_active()]

    assert run(scenario) == (None, "n1#2", ["n1#2"])


def test_an_operation_of_an_unknown_node_is_a_bug(run):
    async def scenario(store):
        with pytest.raises(AssertionError):
            await store.operations.open("nobody", "journey", 1.0)

    run(scenario)


def test_a_driver_that_was_replaced_changes_nothing(run):
    async def scenario(store):
        old = await driven(store)
        new = await store.operations.take(old.id)
        for write in (
            store.operations.record(old, node=NODE, events=[event_of("late")], now=2.0),
            store.operations.intend(old, "cold_boot #1", {}, 2.0),
        ):
            with pytest.raises(Fenced):
                await write
        seen_after = (
            await store.operations.get(old.id),
            (await store.nodes.get("n1")).generation,
            await store.journal.list(),
            await store.operations.list_entries("n1"),
        )
        return new, seen_after

    new, seen_after = run(scenario)

    assert seen_after == (new, 0, (), ())


def test_a_driver_that_lost_track_of_its_own_writes_is_stopped(run):
    async def scenario(store):
        before = await driven(store)
        after, _ = await store.operations.intend(before, "push", {}, 2.0)
        with pytest.raises(Fenced):
            await store.operations.intend(before, "reset", {}, 3.0)
        return after == await store.operations.get(before.id), len(
            await store.operations.list_entries("n1")
        )

    assert run(scenario) == (True, 1)


def test_an_operation_that_ended_is_neither_written_nor_taken(run):
    async def scenario(store):
        operation = await driven(store)
        ended = operation.model_copy(update={"status": OperationStatus.PARKED, "note": "look"})
        ended, _ = await store.operations.record(ended, now=2.0)
        with pytest.raises(Fenced):
            await store.operations.record(ended, now=3.0)
        with pytest.raises(Fenced):
            await store.operations.take(ended.id)
        with pytest.raises(Fenced):
            await store.operations.take("n1#99")
        return ended, await store.operations.get(ended.id)

    ended, read = run(scenario)

    assert read == ended
    assert read.note == "look"


def test_a_turn_is_recorded_as_a_whole(run):
    async def scenario(store):
        operation = await driven(store)
        operation, node = await store.operations.record(
            operation.model_copy(update={"phase": "validating"}),
            node=in_state(NODE, State.CERTIFIED, 7.0),
            inventory=seen("1"),
            report=REPORT,
            certificate=CERTIFICATE,
            proof=PROOF,
            events=[event_of("certified", "", {"certificate": "c1"})],
            now=7.0,
        )
        read = (
            await store.operations.get(operation.id),
            await store.nodes.get("n1"),
            await store.evidence.get_inventory("n1"),
            await store.evidence.get_report("n1"),
            await store.evidence.get_certificate("c1"),
            await store.evidence.get_proof("n1"),
            [(r["kind"], r["node"], r["detail"]) for r in await store.journal.list()],
        )
        return operation, node, read

    operation, node, read = run(scenario)

    # the store itself adds the event of a changed state
    states = {"from": "discovered", "to": "certified"}
    entered = {**states, "why": "", "blockers": [], "tenant": "", "release": ""}
    assert read == (
        operation,
        node,
        seen("1"),
        REPORT,
        CERTIFICATE,
        PROOF,
        [("state", "n1", entered), ("certified", "n1", {"certificate": "c1"})],
    )
    assert (operation.phase, operation.version, node.generation) == ("validating", 2, 1)


def test_a_turn_with_a_stale_node_leaves_no_trace(run):
    async def scenario(store):
        operation = await driven(store)
        await store.nodes.save(NODE)
        with pytest.raises(StaleWrite):
            await store.operations.record(
                operation, node=NODE, certificate=CERTIFICATE, events=[event_of("x")], now=2.0
            )
        return (
            await store.operations.get(operation.id) == operation,
            await store.evidence.get_certificate("c1"),
            await store.journal.list(),
        )

    assert run(scenario) == (True, None, ())


def test_an_inventory_is_a_new_row_only_when_something_changed(run):
    async def scenario(store):
        operation = await driven(store)
        for version in ("1", "1", "2", "1"):
            operation, _ = await store.operations.record(
                operation, inventory=seen(version), now=2.0
            )
        rows = await store.read(
            lambda c: c.execute(inventories.select().order_by(inventories.c.id)).all()
        )
        return [row.digest for row in rows], await store.evidence.get_inventory("n1")

    digests, newest = run(scenario)

    assert digests == [seen(version).digest() for version in ("1", "2", "1")]
    assert newest == seen("1")


def test_an_action_is_intended_sent_and_confirmed(run):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(
            operation, "cold_boot #1", {"resets": 3}, 2.0
        )
        operation, sent = await store.operations.settle(
            operation, entry, ActionStatus.SENT, task="/redfish/v1/TaskService/Tasks/1", now=3.0
        )
        operation, done = await store.operations.settle(
            operation, sent, ActionStatus.CONFIRMED, now=4.0
        )
        return (
            done,
            await store.operations.get_last_entry(operation.id, "cold_boot #1"),
            (await store.operations.list_entries("n1")),
        )

    done, last, every = run(scenario)

    assert (last, every) == (done, (done,))
    assert (done.attempt, done.task, done.before, done.settled_at) == (
        1, "/redfish/v1/TaskService/Tasks/1", {"resets": 3}, 4.0,
    )  # fmt: skip


def test_an_action_that_may_be_under_way_is_not_intended_again(run):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(operation, "push", {}, 2.0)
        with pytest.raises(AssertionError):
            await store.operations.intend(operation, "push", {}, 3.0)
        operation, _ = await store.operations.settle(operation, entry, ActionStatus.ABSENT, now=4.0)
        operation, again = await store.operations.intend(operation, "push", {}, 5.0)
        return again.attempt

    assert run(scenario) == 2


def test_an_entry_that_was_settled_meanwhile_is_stale(run):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(operation, "push", {}, 2.0)
        operation, _ = await store.operations.settle(
            operation, entry, ActionStatus.CONFIRMED, now=3.0
        )
        with pytest.raises(StaleWrite):
            await store.operations.settle(operation, entry, ActionStatus.ABSENT, now=4.0)
        return (await store.operations.get_last_entry(operation.id, "push")).status

    assert run(scenario) == ActionStatus.CONFIRMED


def test_a_later_operation_settles_what_an_earlier_one_left_open(run):
    async def scenario(store):
        operation = await driven(store)
        operation, entry = await store.operations.intend(operation, "push", {}, 2.0)
        await store.operations.record(
            operation.model_copy(update={"status": OperationStatus.PARKED}), now=3.0
        )
        later = await store.operations.take((await store.operations.open("n1", "journey", 4.0)).id)
        await store.operations.settle(later, entry, ActionStatus.UNCLEAR, now=5.0)
        return [e.status for e in await store.operations.list_entries("n1")]

    assert run(scenario) == [ActionStatus.UNCLEAR]


def test_an_operation_whose_row_is_damaged_is_named_and_not_driven(run):
    async def scenario(store):
        operation = await driven(store)
        spoilt = text("UPDATE operations SET status = 'driven by nobody' WHERE id = :id")
        await store.write(lambda c: c.execute(spoilt, {"id": operation.id}))
        with pytest.raises(DamagedRow) as raised:
            await store.operations.get(operation.id)
        return raised.value.where == f"operations, {operation.id}"

    assert run(scenario)


# PostgreSQL keeps what is no number out of such a column
@pytest.mark.parametrize("run", ["inline memory", "threads file"], indirect=True)
def test_of_several_operations_the_damaged_one_parks_its_node_and_the_others_are_driven(run):
    async def scenario(store):
        operation = await driven(store)
        await store.nodes.add(Node(id="n2", kind=NodeKind.HOST))
        other = await store.operations.open("n2", "journey", 1.0)
        spoilt = text("UPDATE operations SET epoch = 'none' WHERE id = :id")
        await store.write(lambda c: c.execute(spoilt, {"id": operation.id}))
        listed = [o.id for o in await store.operations.list_active()]
        return listed == [other.id], list(store.nodes.find_damaged())

    assert run(scenario) == (True, ["n1"])


def test_a_damaged_row_of_the_ledger_is_named_and_not_taken_for_an_action(run):
    async def scenario(store):
        operation = await driven(store)
        await store.operations.intend(operation, "push", {}, 2.0)
        await store.write(lambda c: c.execute(text("UPDATE ledger SET status = 'perhaps'")))
        with pytest.raises(DamagedRow) as raised:
            await store.operations.list_entries("n1")
        return raised.value.where.partition(", ")[0], "status" in str(raised.value)

    assert run(scenario) == ("ledger", True)


def test_subscriptions_of_some_nodes_are_found_by_their_names_however_these_are_written(run):
    names = ("n1", "n'2", 'n"3', "n,4", "n5")

    async def scenario(store):
        for name in names:
            await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
            made = Subscription(
                id=f"e {name}", node=name, bmc="host", context="", destination="", made_at=0.0
            )
            await store.alerts.put_subscription(made)
        asked = (names[:4], ("n2",), (), None, [f"absent{i}" for i in range(70_000)] + ["n5"])
        found = [await store.alerts.list_subscriptions(some) for some in asked]
        return [{one.node for one in some} for some in found]

    assert run(scenario) == [set(names[:4]), set(), set(), set(names), {"n5"}]
