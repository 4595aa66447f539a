"""Ages of logins, and the events that demand their change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from provisioner.model.credential import (
    CredentialStanding,
    RotationCause,
)
from provisioner.model.events.event import Event
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import credential_rows
from provisioner.store.rows import journal as chain


class SqlCredentialStandings:
    """`ports.CredentialStandings` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    enroll = writes(credential_rows.enroll)
    remove = writes(credential_rows.remove)
    get = reads(credential_rows.read)
    list_node = reads(credential_rows.read_node)
    list_names = reads(credential_rows.read_names)

    async def list_page(
        self, after: str, limit: int, *, node: str = "", due_by: float | None = None
    ) -> Sequence[CredentialStanding]:
        return await self._transactions.read(
            lambda c: credential_rows.read_page(c, after, limit, node, due_by)
        )

    list_due = reads(credential_rows.read_due)

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

    list_shown = reads(credential_rows.read_shown)

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

    begin_attempt = writes(credential_rows.begin_attempt)
    record_failure = writes(credential_rows.record_failure)
    summarize = reads(credential_rows.summarize)
