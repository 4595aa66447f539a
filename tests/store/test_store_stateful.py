"""The store against plain dictionaries: any sequence of calls gives the same answers.

Handles go stale on purpose: a rule may use any node, operation or entry that it was ever given.
"""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.ports import Fenced, StaleWrite
from provisioner.store import open_store

NAMES = st.sampled_from(["n1", "n2", "n3"])
ACTIONS = st.sampled_from(["push", "reset"])
OPEN = {ActionStatus.INTENDED, ActionStatus.SENT}


class StoreMachine(RuleBasedStateMachine):
    """`inline` runs on one coroutine step; the same rows serve the threaded store."""

    seen_nodes = Bundle("seen_nodes")
    seen_operations = Bundle("seen_operations")
    seen_entries = Bundle("seen_entries")

    def __init__(self):
        super().__init__()
        self.store = open_store(":memory:", inline=True)
        self.nodes: dict[str, Node] = {}
        self.operations: dict[str, Operation] = {}
        self.ledger: dict[tuple[str, str, int], LedgerEntry] = {}

    def teardown(self):
        self.call(self.store.close())

    def call(self, coroutine):
        """The answer, or the kind of refusal."""
        try:
            return asyncio.run(coroutine)
        except (Fenced, StaleWrite, AssertionError) as refusal:
            return type(refusal)

    def holds(self, operation):
        kept = self.operations[operation.id]
        return kept.status is OperationStatus.ACTIVE and (kept.epoch, kept.version) == (
            operation.epoch,
            operation.version,
        )

    def attempts(self, operation, action):
        return [e for k, e in self.ledger.items() if k[:2] == (operation.id, action)]

    @rule(target=seen_nodes, name=NAMES)
    def add(self, name):
        node = Node(id=name, kind=NodeKind.HOST)
        expected = StaleWrite if name in self.nodes else node

        assert self.call(self.store.nodes.add(node)) == expected
        return self.nodes.setdefault(name, node)

    @rule(target=seen_nodes, node=seen_nodes, note=st.text(max_size=5))
    def save(self, node, note):
        changed = node.model_copy(update={"note": note})
        expected: object = StaleWrite
        if self.nodes[node.id].generation == node.generation:
            expected = changed.model_copy(update={"generation": node.generation + 1})
            self.nodes[node.id] = expected

        assert self.call(self.store.nodes.save(changed)) == expected
        return self.nodes[node.id]

    @rule(target=seen_operations, node=seen_nodes, now=st.floats(0, 1e9))
    def open(self, node, now):
        mine = [o for o in self.operations.values() if o.node == node.id]
        active = [o for o in mine if o.status is OperationStatus.ACTIVE]
        new = Operation(
            id=f"{node.id}#{len(mine) + 1}", node=node.id, want="journey", opened_at=now
        )
        if not active:
            self.operations[new.id] = new

        answer = self.call(self.store.operations.open(node.id, "journey", now))
        assert answer == (None if active else new)
        return active[0] if active else new

    @rule(target=seen_operations, operation=seen_operations)
    def take(self, operation):
        kept = self.operations[operation.id]
        expected: object = Fenced
        if kept.status is OperationStatus.ACTIVE:
            expected = kept.model_copy(
                update={"epoch": kept.epoch + 1, "version": kept.version + 1}
            )
            self.operations[operation.id] = expected

        assert self.call(self.store.operations.take(operation.id)) == expected
        return self.operations[operation.id]

    @rule(
        target=seen_operations,
        operation=seen_operations,
        node=seen_nodes,
        status=st.sampled_from([OperationStatus.ACTIVE, OperationStatus.DONE]),
    )
    def record(self, operation, node, status):
        written = operation.model_copy(update={"status": status, "phase": "x"})
        expected: object
        if node.id != operation.node:
            expected = AssertionError
        elif not self.holds(operation):
            expected = Fenced
        elif self.nodes[node.id].generation != node.generation:
            expected = StaleWrite
        else:
            after = written.model_copy(update={"version": operation.version + 1})
            saved = node.model_copy(update={"generation": node.generation + 1})
            self.operations[operation.id], self.nodes[node.id] = after, saved
            expected = (after, saved)

        assert self.call(self.store.operations.record(written, node=node, now=1.0)) == expected
        return self.operations[operation.id]

    @rule(target=seen_entries, operation=seen_operations, action=ACTIONS)
    def intend(self, operation, action):
        attempts = self.attempts(operation, action)
        entry = LedgerEntry(
            operation=operation.id, node=operation.node, action=action,
            attempt=len(attempts) + 1, status=ActionStatus.INTENDED, intended_at=5.0,
            before={"a": 1}, epoch=operation.epoch,
        )  # fmt: skip
        expected: object
        if not self.holds(operation):
            expected = Fenced
        elif attempts and attempts[-1].status in OPEN:
            expected = AssertionError
        else:
            after = operation.model_copy(update={"version": operation.version + 1})
            self.operations[operation.id] = after
            self.ledger[operation.id, action, entry.attempt] = entry
            expected = (after, entry)

        assert self.call(self.store.operations.intend(operation, action, {"a": 1}, 5.0)) == expected
        return entry

    @rule(
        target=seen_entries,
        operation=seen_operations,
        entry=seen_entries,
        status=st.sampled_from([s for s in ActionStatus if s is not ActionStatus.INTENDED]),
    )
    def settle(self, operation, entry, status):
        key = entry.operation, entry.action, entry.attempt
        if key in self.ledger:  # a daemon has its entries from rows, never from a refused intent
            entry = entry.model_copy(update={"epoch": self.ledger[key].epoch})
        settled = entry.model_copy(
            update={
                "status": status,
                "outcome": "seen",
                "settled_at": 0.0 if status in OPEN else 6.0,
                "settled_epoch": None if status in OPEN else operation.epoch,
            }
        )
        expected: object
        if entry.node != operation.node:
            expected = AssertionError
        elif not self.holds(operation):
            expected = Fenced
        elif key not in self.ledger or self.ledger[key].status is not entry.status:
            expected = StaleWrite
        else:
            after = operation.model_copy(update={"version": operation.version + 1})
            self.operations[operation.id], self.ledger[key] = after, settled
            expected = (after, settled)

        answer = self.call(
            self.store.operations.settle(operation, entry, status, outcome="seen", now=6.0)
        )
        assert answer == expected
        return self.ledger.get(key, entry)

    @invariant()
    def rows_equal_the_dictionaries(self):
        active = [o for o in self.operations.values() if o.status is OperationStatus.ACTIVE]
        by_node: dict[str, list[LedgerEntry]] = {}
        for entry in self.ledger.values():
            by_node.setdefault(entry.node, []).append(entry)

        assert self.call(self.store.nodes.list()) == tuple(
            self.nodes[name] for name in sorted(self.nodes)
        )
        assert self.call(self.store.operations.list_active()) == tuple(
            sorted(active, key=lambda o: o.node)
        )
        for name in self.nodes:
            assert self.call(self.store.operations.list_entries(name)) == tuple(
                by_node.get(name, ())
            )


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=20, stateful_step_count=40, deadline=None, derandomize=True
)
