"""How far each receiver has taken the journal.

The journal is the queue: nothing is copied. A position moves only after the receiver has proved
that it read the rows, so that a crash in between sends them again and never leaves one out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from provisioner.model.events.request_events import ClockAccepted
from provisioner.store.database.transactions import Transactions, reads, writes
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

    append = writes(chain.append)

    async def list(self, after: int = 0, limit: int = 1000) -> Sequence[Mapping[str, Any]]:
        return await self._transactions.read(lambda c: chain.read(c, after, limit))

    async def verify(self, known: tuple[int, str] | None = None) -> chain.ChainCheck:
        """Verify the chain; see `journal.verify`."""
        return await chain.verify(self._transactions.read, known)

    # Return the newest row's number and digest; (0, "") of an empty journal.
    get_head = reads(page_rows.journal_head)

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

    get = reads(clock_rows.read_mark)
    put = writes(clock_rows.put_mark)

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

    set_receivers = writes(rows.set_receivers)
    list = reads(rows.read_exports)
    list_rows = reads(rows.read_rows)
    record_taken = writes(rows.record_taken)
    record_failure = writes(rows.record_failure)
