"""Rows of the policies that people keep under names."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from provisioner.model.campaign_policy import NamedPolicy
from provisioner.model.events.fleet_events import PolicyChanged
from provisioner.ports.errors import StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal as chain
from provisioner.store.rows.records import parse
from provisioner.store.schema.campaign_schema import campaign_policies as table


class SqlPolicyRepository:
    """Named policies on the daemon's own database. A damaged row raises DamagedRow."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self) -> Sequence[NamedPolicy]:
        """Return all policies, by name."""
        return await self._transactions.read(_read_all)

    async def get(self, name: str) -> NamedPolicy | None:
        """Return one policy; None if there is none of this name."""
        return await self._transactions.read(lambda c: _read(c, name))

    async def put(self, policy: NamedPolicy, now: float) -> NamedPolicy:
        """Store a policy, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self._transactions.write(lambda c: _put(c, policy, now))
        return policy

    async def drop(self, policy: NamedPolicy, by: str, now: float) -> None:
        """Remove a policy with its event. Raises StaleWrite if it was changed meanwhile."""
        await self._transactions.write(lambda c: _drop(c, policy, by, now))


def _read_all(connection: Connection) -> tuple[NamedPolicy, ...]:
    rows = connection.execute(select(table).order_by(table.c.name)).all()
    return tuple(parse(NamedPolicy, r.body, f"campaign_policies, {r.name}") for r in rows)


def _read(connection: Connection, name: str) -> NamedPolicy | None:
    row = connection.execute(select(table.c.body).where(table.c.name == name)).one_or_none()
    return None if row is None else parse(NamedPolicy, row.body, f"campaign_policies, {name}")


def _put(connection: Connection, policy: NamedPolicy, now: float) -> None:
    _require_generation(connection, policy.name, policy.generation - 1)
    connection.execute(delete(table).where(table.c.name == policy.name))
    connection.execute(insert(table).values(name=policy.name, body=policy.model_dump_json()))
    chain.append(connection, PolicyChanged(policy=policy, by=policy.by), now)


def _drop(connection: Connection, policy: NamedPolicy, by: str, now: float) -> None:
    _require_generation(connection, policy.name, policy.generation)
    connection.execute(delete(table).where(table.c.name == policy.name))
    chain.append(connection, PolicyChanged(dropped=policy, by=by), now)


def _require_generation(connection: Connection, name: str, expected: int) -> None:
    """Check the generation of the stored policy; 0: there is none. Raises StaleWrite."""
    stored = _read(connection, name)
    if (0 if stored is None else stored.generation) != expected:
        raise StaleWrite(f"policy {name}")
