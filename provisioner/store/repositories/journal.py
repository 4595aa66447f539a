"""The journal: append-only and hash-chained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.events.event import Event
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal as chain


class SqlJournalRepository:
    """`ports.JournalRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def append(self, event: Event, now: float) -> None:
        await self._transactions.write(lambda c: chain.append(c, event, now))

    async def list(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        return await self._transactions.read(lambda c: chain.read(c, after, limit))

    async def verify(self, known: tuple[int, str] | None = None) -> chain.ChainCheck:
        """See `journal.verify`."""
        return await chain.verify(self._transactions.read, known)
