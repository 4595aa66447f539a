"""Marks of the wall clock, against which a jump backwards is noticed."""

from __future__ import annotations

from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    clock_rows,
)


class SqlClockMarkRepository:
    """`ports.ClockMarkRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get(self, name: str) -> float | None:
        return await self._transactions.read(lambda c: clock_rows.read_mark(c, name))

    async def put(self, name: str, at: float) -> None:
        await self._transactions.write(lambda c: clock_rows.put_mark(c, name, at))
