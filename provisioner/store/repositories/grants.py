"""The capabilities that people granted over adopted nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from sqlalchemy import Connection, delete, insert, select

from provisioner.model.adoption.capability import Capability, Grant, GrantScope
from provisioner.model.events.request_events import CapabilityDecided
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.transactions import Transactions, writes
from provisioner.store.rows import journal, tenant_rows
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import grants


class SqlTenantRepository:
    """Tenants and their networks."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Store a tenant of the expected-hardware list; a tenant with a number stays unchanged.
    put = writes(tenant_rows.put_tenant)

    async def save(
        self,
        tenant: Tenant,
        *,
        new: bool,
        nodes: Sequence[Node],
        request: str,
        by: str = "",
        now: float,
        known: Collection[str] | None = None,
    ) -> Tenant:
        """Store a tenant and the nodes that leave it, with a row of the journal, in one
        transaction.

        `by` is the person who asked; "" is the daemon itself. Raises `StaleWrite` if any of them
        has changed since it was read, if a name, VRF or number is taken, or if the tenant has a
        node that is not among the `known` ones (None: it may have any).
        """
        keep = partial(tenant_rows.keep, tenant=tenant, new=new, nodes=nodes, known=known)
        return await self._transactions.write(partial(keep, request=request, by=by, now=now))

    # Give a node to a tenant, with a row of the journal, in one transaction. Raises
    # `StaleWrite` if node or tenant has changed since it was read.
    allocate = writes(tenant_rows.allocate)

    # Remove a tenant whose network no device has any more; `StaleWrite` if it has changed.
    remove = writes(tenant_rows.forget)

    async def list(self) -> Sequence[Tenant]:
        return await self._transactions.recall(tenant_rows.read_tenants)


class SqlGrantRepository:
    """All decisions, one for each scope, name and capability."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._newest: tuple[Grant, ...] = ()

    @property
    def newest(self) -> Sequence[Grant]:
        """Return the decisions that were last read or written here, without reading again."""
        return self._newest

    async def list(self) -> Sequence[Grant]:
        self._newest = await self._transactions.read(read_grants)
        return self._newest

    async def put(self, grants: Sequence[Grant], now: float) -> None:
        """Store decisions with their events in one transaction."""
        self._newest = await self._transactions.write(lambda c: put_grants(c, grants, now))


def read_grants(connection: Connection) -> tuple[Grant, ...]:
    """Return all decisions. One that cannot be read counts as withdrawn: `doctor` reports it."""
    decisions = []
    for row in connection.execute(select(grants).order_by(grants.c.key)):
        try:
            decisions.append(parse(Grant, row.body, f"grants, {row.key}"))
        except DamagedRow:
            decisions += _withdraw_damaged(row.key)
    return tuple(decisions)


def _withdraw_damaged(key: str) -> Sequence[Grant]:
    """Return the decisions that a damaged row stands for: no grant of what its key names."""
    scope, _, rest = key.partition(":")
    name, _, capability = rest.rpartition(":")
    if scope in list(GrantScope) and capability in list(Capability):
        return (
            Grant(
                scope=GrantScope(scope),
                name=name,
                capability=Capability(capability),
                granted=False,
                reason="its row is damaged: see `provisioner doctor`",
            ),
        )
    raise DamagedRow(f"grants, {key}", "its key names no capability")


def put_grants(connection: Connection, decisions: Sequence[Grant], now: float) -> tuple[Grant, ...]:
    """Make or replace decisions; return all."""
    for grant in decisions:
        connection.execute(delete(grants).where(grants.c.key == grant.key))
        connection.execute(insert(grants).values(key=grant.key, body=grant.model_dump_json()))
        about = grant.name if grant.scope == "node" else ""
        journal.append(connection, CapabilityDecided(about=about, grant=grant), now)
    return read_grants(connection)
