"""How far each receiver has taken the journal.

The journal is the queue: nothing is copied. A position moves only after the receiver has proved
that it read the rows, so that a crash in between sends them again and never leaves one out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from provisioner.model.events.event import Event
from provisioner.model.events.request_events import ClockAccepted
from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    agent_rows as clock_rows,
)
from provisioner.store.rows import journal as chain
from provisioner.store.rows import journal as rows
from provisioner.store.rows import page_rows

# ------------------------------------------------------------------------------
# The journal: append-only and hash-chained.


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


# ------------------------------------------------------------------------------
# Marks of the wall clock, against which a jump backwards is noticed.


class SqlClockMarkRepository:
    """`ports.ClockMarkRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get(self, name: str) -> float | None:
        return await self._transactions.read(lambda c: clock_rows.read_mark(c, name))

    async def put(self, name: str, at: float) -> None:
        await self._transactions.write(lambda c: clock_rows.put_mark(c, name, at))

    async def accept(self, now: float, event: ClockAccepted) -> None:
        """Accept the clock as it stands, with the event, in one transaction."""
        await self._transactions.write(lambda c: _accept(c, now, event))


def _accept(connection: Connection, now: float, event: ClockAccepted) -> None:
    clock_rows.put_mark(connection, clock_rows.ACCEPTED, now)
    chain.append(connection, event, now)


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
