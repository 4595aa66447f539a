"""Operations of nodes, the turns of their drivers, and the ledger of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.certificate import Certificate
from provisioner.model.events.event import Event
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.standing import ReleaseConditions
from provisioner.model.tenant import ReleaseProof
from provisioner.runtime import permit
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    operation_rows,
    page_rows,
    turn_rows,
)


class SqlOperationRepository:
    """`ports.OperationRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def open(self, node: str, want: str, now: float) -> Operation | None:
        if permit.is_observing():
            return None  # a daemon that acts, later, begins nothing that this one decided
        return await self._transactions.write(
            lambda c: operation_rows.open_operation(c, node, want, now)
        )

    async def list_active(self) -> Sequence[Operation]:
        return await self._transactions.recall(operation_rows.active_operations)

    async def get(self, operation_id: str) -> Operation | None:
        return await self._transactions.read(
            lambda c: operation_rows.read_operation(c, operation_id)
        )

    async def take(self, operation_id: str) -> Operation:
        return await self._transactions.write(lambda c: operation_rows.take(c, operation_id))

    async def record(
        self,
        operation: Operation,
        *,
        node: Node | None = None,
        inventory: Inventory | None = None,
        report: HealthReport | None = None,
        certificate: Certificate | None = None,
        proof: ReleaseProof | None = None,
        events: Sequence[Event] = (),
        standing: ReleaseConditions | None = None,
        now: float,
    ) -> tuple[Operation, Node | None]:
        parts = (inventory, report, certificate, proof)
        assert node is None or node.id == operation.node, "a driver writes its own node only"
        assert all(p is None or p.node == operation.node for p in parts), "of its own node only"
        listed = tuple(events)
        return await self._transactions.write(
            lambda c: turn_rows.record(c, operation, node, parts, listed, now, standing)
        )

    async def end(self, operation: Operation, status: OperationStatus, note: str) -> Operation:
        ended = operation.model_copy(update={"status": status, "note": note})
        return await self._transactions.write(lambda c: operation_rows.fence(c, ended))

    async def intend(
        self, operation: Operation, action: str, before: Mapping[str, Any], now: float
    ) -> tuple[Operation, LedgerEntry]:
        return await self._transactions.write(
            lambda c: operation_rows.intend(c, operation, action, before, now)
        )

    async def settle(
        self,
        operation: Operation,
        entry: LedgerEntry,
        status: ActionStatus,
        *,
        task: str = "",
        outcome: str = "",
        now: float,
    ) -> tuple[Operation, LedgerEntry]:
        return await self._transactions.write(
            lambda c: operation_rows.settle(
                c, operation, entry, status, task=task, outcome=outcome, now=now
            )
        )

    async def get_last_entry(self, operation_id: str, action: str) -> LedgerEntry | None:
        return await self._transactions.read(
            lambda c: operation_rows.last_entry(c, operation_id, action)
        )

    async def list_entries(self, node: str) -> Sequence[LedgerEntry]:
        return await self._transactions.recall_of(operation_rows.entries, node)

    async def list_page(
        self, *, after: str = "", limit: int, status: str = "", node: str = ""
    ) -> tuple[Operation, ...]:
        """Return operations by id, after one; "" does not narrow."""
        return await self._transactions.read(
            lambda c: page_rows.operations_page(
                c, after=after, limit=limit, status=status, node=node
            )
        )
