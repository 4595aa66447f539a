"""Tenants and their networks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    tenant_rows,
)


class SqlTenantRepository:
    """`ports.TenantRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def put(self, tenant: Tenant) -> None:
        await self._transactions.write(lambda c: tenant_rows.put_tenant(c, tenant))

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
        keep = partial(tenant_rows.keep, tenant=tenant, new=new, nodes=nodes, known=known)
        return await self._transactions.write(partial(keep, request=request, by=by, now=now))

    async def allocate(self, node: Node, tenant: Tenant, now: float) -> Node:
        return await self._transactions.write(lambda c: tenant_rows.allocate(c, node, tenant, now))

    async def remove(self, tenant: Tenant, now: float) -> None:
        await self._transactions.write(lambda c: tenant_rows.forget(c, tenant, now))

    async def list(self) -> Sequence[Tenant]:
        return await self._transactions.recall(tenant_rows.read_tenants)
