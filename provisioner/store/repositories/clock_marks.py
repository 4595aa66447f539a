"""Marks of the wall clock, against which a jump backwards is noticed."""

from __future__ import annotations

from sqlalchemy import Connection

from provisioner.model.events.request_events import ClockAccepted
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    clock_rows,
)
from provisioner.store.rows import journal as chain


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
