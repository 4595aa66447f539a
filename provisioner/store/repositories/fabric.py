"""Sessions of tests among nodes, and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    fabric_rows,
)


class SqlFabricRepository:
    """`ports.FabricRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def put_session(
        self, session: FabricSession, outcomes: Sequence[FabricOutcome] = ()
    ) -> FabricSession:
        return await self._transactions.write(lambda c: fabric_rows.put(c, session, outcomes))

    async def list_sessions(self) -> Sequence[FabricSession]:
        return await self._transactions.recall(fabric_rows.read_open)

    async def get_outcome(self, node: str) -> FabricOutcome | None:
        return await self._transactions.recall_of(fabric_rows.read_outcome, node)
