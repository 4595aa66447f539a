"""The work that waits for people: blocked nodes, alerts and certificates by group."""

from __future__ import annotations

from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import home_rows
from provisioner.store.rows.home_rows import Waiting


class SqlHomeRepository:
    """A read model: nothing is written through it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get_waiting(self, now: float) -> Waiting:
        """Return all groups of one moment."""
        return await self._transactions.read(lambda c: home_rows.read_waiting(c, now))

    async def list_retryable(self, reason: str, unblock: str) -> tuple[str, ...]:
        """Return the nodes of a group that a retry may take out of quarantine."""
        return await self._transactions.read(lambda c: home_rows.list_retryable(c, reason, unblock))
