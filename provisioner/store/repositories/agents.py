"""Sessions of maintenance agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.agent import AgentSession
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    agent_rows,
)


class SqlAgentRepository:
    """`ports.AgentRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list_sessions(self) -> Sequence[AgentSession]:
        return await self._transactions.read(agent_rows.read_sessions)

    async def put_session(self, session: AgentSession) -> None:
        await self._transactions.write(lambda c: agent_rows.put_session(c, session))

    async def hand_out_token(self, session: AgentSession) -> bool:
        return await self._transactions.write(lambda c: agent_rows.hand_out(c, session))

    async def change_session(self, node: str, changes: Mapping[str, object]) -> None:
        await self._transactions.write(lambda c: agent_rows.change_session(c, node, changes))
