"""The journal: append-only and hash-chained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provisioner.model.events.event import Event
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal as chain
from provisioner.store.rows import page_rows


class SqlJournalRepository:
    """`ports.JournalRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def append(self, event: Event, now: float) -> None:
        await self._transactions.write(lambda c: chain.append(c, event, now))

    async def list(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        return await self._transactions.read(lambda c: chain.read(c, after, limit))

    async def verify(self, known: tuple[int, str] | None = None) -> chain.ChainCheck:
        """Verify the chain; see `journal.verify`."""
        return await chain.verify(self._transactions.read, known)

    async def get_head(self) -> tuple[int, str]:
        """Return the newest row's number and digest; (0, "") of an empty journal."""
        return await self._transactions.read(page_rows.journal_head)

    async def list_page(
        self,
        *,
        after: int,
        limit: int,
        kinds: Collection[str] = (),
        node: str = "",
        backwards: bool = False,
    ) -> tuple[tuple[Mapping[str, Any], ...], int]:
        """Return rows after (backwards: before) a number, and the number that was read last."""
        return await self._transactions.read(
            lambda c: page_rows.journal_page(
                c, after=after, limit=limit, kinds=kinds, node=node, backwards=backwards
            )
        )
