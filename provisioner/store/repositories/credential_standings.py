"""Ages of logins, and the events that demand their change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from provisioner.model.credential import (
    CredentialStanding,
    CredentialSummary,
    DueLogin,
    RotationCause,
)
from provisioner.model.events.event import Event
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import credential_rows
from provisioner.store.rows import journal as chain


class SqlCredentialStandings:
    """`ports.CredentialStandings` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def enroll(self, names: Mapping[str, str], changed_at: float) -> None:
        await self._transactions.write(lambda c: credential_rows.enroll(c, names, changed_at))

    async def remove(self, names: Collection[str]) -> None:
        await self._transactions.write(lambda c: credential_rows.remove(c, names))

    async def get(self, name: str) -> CredentialStanding | None:
        return await self._transactions.read(lambda c: credential_rows.read(c, name))

    async def list_node(self, node: str) -> Sequence[CredentialStanding]:
        return await self._transactions.read(lambda c: credential_rows.read_node(c, node))

    async def list_names(self) -> Mapping[str, str]:
        return await self._transactions.read(credential_rows.read_names)

    async def list_page(
        self, after: str, limit: int, *, node: str = "", due_by: float | None = None
    ) -> Sequence[CredentialStanding]:
        return await self._transactions.read(
            lambda c: credential_rows.read_page(c, after, limit, node, due_by)
        )

    async def list_due(self, now: float, changed_before: float, limit: int) -> Sequence[DueLogin]:
        return await self._transactions.read(
            lambda c: credential_rows.read_due(c, now, changed_before, limit)
        )

    async def demand(
        self,
        cause: RotationCause,
        due_at: float,
        *,
        nodes: Collection[str] = (),
        names: Collection[str] = (),
        shown_to: str = "",
    ) -> int:
        return await self._transactions.write(
            lambda c: credential_rows.demand(c, cause, due_at, nodes, names, shown_to)
        )

    async def list_shown(self, person: str) -> Sequence[str]:
        return await self._transactions.read(lambda c: credential_rows.read_shown(c, person))

    async def record_shown(
        self, name: str, person: str, due_at: float, event: Event, now: float
    ) -> bool:
        def record(connection: Connection) -> bool:
            shown = credential_rows.record_shown(connection, name, person, due_at)
            if shown:
                chain.append(connection, event, now)
            return shown

        return await self._transactions.write(record)

    async def record_change(self, name: str, node: str, now: float, event: Event) -> None:
        def record(connection: Connection) -> None:
            credential_rows.record_change(connection, name, node, now)
            chain.append(connection, event, now)

        await self._transactions.write(record)

    async def begin_attempt(
        self, name: str, node: str, retry_at: float
    ) -> CredentialStanding | None:
        return await self._transactions.write(
            lambda c: credential_rows.begin_attempt(c, name, node, retry_at)
        )

    async def record_failure(self, name: str, problem: str, retry_at: float) -> None:
        await self._transactions.write(
            lambda c: credential_rows.record_failure(c, name, problem, retry_at)
        )

    async def summarize(self, now: float) -> CredentialSummary:
        return await self._transactions.read(lambda c: credential_rows.summarize(c, now))
