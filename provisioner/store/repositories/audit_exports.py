"""How far each receiver has taken the journal.

The journal is the queue: nothing is copied. A position moves only after the receiver has proved
that it read the rows, so that a crash in between sends them again and never leaves one out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import export_rows as rows


class SqlAuditExportRepository:
    """`ports.AuditExportRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def set_receivers(self, receivers: Collection[str]) -> None:
        await self._transactions.write(lambda c: rows.set_receivers(c, receivers))

    async def list(self) -> Sequence[ExportStatus]:
        return await self._transactions.read(rows.read_exports)

    async def list_rows(self, receiver: str, most: int) -> tuple[int, Sequence[JournalRow]]:
        return await self._transactions.read(lambda c: rows.read_rows(c, receiver, most))

    async def record_taken(
        self, receiver: str, position: int, last: int, outcome: ExportOutcome, now: float
    ) -> None:
        await self._transactions.write(
            lambda c: rows.record_taken(c, receiver, position, last, outcome, now)
        )

    async def record_failure(self, receiver: str, error: str, now: float) -> None:
        await self._transactions.write(lambda c: rows.record_failure(c, receiver, error, now))
