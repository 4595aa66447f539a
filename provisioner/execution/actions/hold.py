"""A driver's hold on one operation: every write through it is fenced.

Several slots of one node are updated side by side, so writes pass one lock: each carries the
version that the last one left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.events.event import Event
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, ReleaseConditions
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation
from provisioner.model.tenant import ReleaseProof
from provisioner.ports import Clock
from provisioner.store.sql_store import SqlStore


class Hold:
    """Owns `operation` until another driver takes it over; then every write raises `Fenced`."""

    def __init__(self, store: SqlStore, clock: Clock, operation: Operation) -> None:
        self.operation = operation
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()

    async def record_intent(self, action: str, before: Mapping[str, Any]) -> LedgerEntry:
        """Return the intent on disk, in one transaction with the fencing check."""
        async with self._lock:
            self.operation, entry = await self._store.operations.intend(
                self.operation, action, before, self._clock.now()
            )
            return entry

    async def settle_entry(
        self, entry: LedgerEntry, status: ActionStatus, *, task: str = "", outcome: str = ""
    ) -> LedgerEntry:
        """Record the outcome of an intent, or as much of it as has been observed."""
        async with self._lock:
            self.operation, entry = await self._store.operations.settle(
                self.operation, entry, status, task=task, outcome=outcome, now=self._clock.now()
            )
            return entry

    async def enter_phase(self, phase: str) -> None:
        """Write the operation's phase, which lists of active operations show."""
        async with self._lock:
            entered = self.operation.model_copy(update={"phase": phase})
            self.operation, _ = await self._store.operations.record(entered, now=self._clock.now())

    async def list_nodes(self) -> Sequence[Node]:
        return await self._store.nodes.list()

    async def read_node(self) -> Node | None:
        """Return the operation's node as it is stored now."""
        return await self._store.nodes.get(self.operation.node)

    async def get_case(self) -> Case | None:
        """Return the open case of the operation's node."""
        return await self._store.cases.get_open(self.operation.node)

    async def list_open_cases(self) -> Sequence[Case]:
        return await self._store.cases.list_open()

    async def list_entries(self) -> Sequence[LedgerEntry]:
        """Return every ledger row of this operation's node, of all its operations."""
        return await self._store.operations.list_entries(self.operation.node)

    async def list_own_entries(self) -> Sequence[LedgerEntry]:
        """Return the ledger rows of this operation alone."""
        return [e for e in await self.list_entries() if e.operation == self.operation.id]

    async def record(
        self,
        *,
        node: Node | None = None,
        inventory: Inventory | None = None,
        report: HealthReport | None = None,
        certificate: Certificate | None = None,
        proof: ReleaseProof | None = None,
        events: Sequence[Event] = (),
        standing: ReleaseConditions | None = None,
    ) -> Node | None:
        """Return the outcome of a turn, in one transaction; the node as it is stored now.

        `StaleWrite` if `standing` does not hold in that transaction.
        """
        async with self._lock:
            self.operation, stored = await self._store.operations.record(
                self.operation,
                node=node,
                inventory=inventory,
                report=report,
                certificate=certificate,
                proof=proof,
                events=events,
                standing=standing,
                now=self._clock.now(),
            )
            return stored
