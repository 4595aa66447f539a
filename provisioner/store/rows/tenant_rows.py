"""Rows of tenants. Each function is one part of a transaction on `connection`.

A numbered tenant is fenced by its generation; name, VRF and number stand for one tenant each, also
for two people who ask at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from provisioner.model.events.fleet_events import TenantChanged
from provisioner.model.events.node_events import NodeAllocated
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.rows import journal as chain
from provisioner.store.rows import node_rows
from provisioner.store.rows.damage import STAND_IN, record_owner
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import nodes as node_table
from provisioner.store.schema.schema import tenants

_ALL = select(  # made once
    tenants.c.name, tenants.c.body, tenants.c.vrf, tenants.c.number
).order_by(tenants.c.name)


def put_tenant(connection: Connection, tenant: Tenant) -> None:
    """Make or replace a tenant of the expected-hardware list; one that has a number stays."""
    existing = read_tenant(connection, tenant.name)
    if existing is not None and existing.number is not None:
        return
    _check_unique(connection, tenant)
    if existing is None:
        connection.execute(insert(tenants).values(name=tenant.name, **_columns(tenant)))
    else:
        # the list has neither keys nor user data; they are the tenant's own
        own = {"ssh_keys": existing.ssh_keys, "user_data": existing.user_data}
        tenant = tenant.model_copy(update=own)
        connection.execute(
            update(tenants).where(tenants.c.name == tenant.name).values(**_columns(tenant))
        )


def save_tenant(connection: Connection, tenant: Tenant, *, new: bool) -> Tenant:
    """Return the tenant with its generation raised, or as a new row at generation 0.

    `StaleWrite` if it changed since it was read, or if its name, VRF or number is taken.
    """
    _check_unique(connection, tenant)
    if new:
        if read_tenant(connection, tenant.name) is not None:
            raise StaleWrite(f"there is a tenant {tenant.name} already")
        connection.execute(insert(tenants).values(name=tenant.name, **_columns(tenant)))
        return tenant
    saved = tenant.model_copy(update={"generation": tenant.generation + 1})
    _one_of(
        connection.execute(
            update(tenants)
            .where(tenants.c.name == tenant.name, tenants.c.generation == tenant.generation)
            .values(**_columns(saved))
        ).rowcount,
        tenant,
    )
    return saved


def remove_tenant(connection: Connection, tenant: Tenant) -> None:
    """Remove a tenant's row; `StaleWrite` if it changed since it was read."""
    same = (tenants.c.name == tenant.name) & (tenants.c.generation == tenant.generation)
    _one_of(connection.execute(delete(tenants).where(same)).rowcount, tenant)


def keep(
    connection: Connection,
    *,
    tenant: Tenant,
    new: bool,
    nodes: Sequence[Node],
    request: str,
    by: str,
    now: float,
    known: Collection[str] | None = None,
) -> Tenant:
    """Save a tenant and the nodes that leave it, with their events: all of it or nothing.

    `known`: `StaleWrite` if it has a node that is not among these; None: it may have any.
    """
    saved = save_tenant(connection, tenant, new=new)
    if known is not None:
        held = connection.scalars(select(node_table.c.id).where(node_table.c.tenant == tenant.name))
        if fresh := sorted(set(held) - set(known)):
            raise StaleWrite(f"tenant {tenant.name} got {', '.join(fresh[:4])} meanwhile")
    actor: dict[str, Any] = {"by": by} if by else {}
    for node in nodes:
        node_rows.save_node(connection, node)
        chain.append(connection, RequestCarriedOut(about=node.id, request=request, **actor), now)
    chain.append(connection, TenantChanged(request=request, tenant=saved, **actor), now)
    return saved


def allocate(connection: Connection, node: Node, tenant: Tenant, now: float) -> Node:
    """Give a node to a tenant, with the event. `StaleWrite` if either changed since it was read:
    a tenant that was shrunk or deleted meanwhile gets no node.
    """
    stored = read_tenant(connection, tenant.name)
    if stored is None or stored.generation != tenant.generation:
        raise StaleWrite(f"tenant {tenant.name} is no longer at generation {tenant.generation}")
    saved = node_rows.save_node(connection, node.model_copy(update={"tenant": tenant.name}))
    chain.append(connection, NodeAllocated(about=node.id, tenant=tenant.name), now)
    return saved


def forget(connection: Connection, tenant: Tenant, now: float) -> None:
    """Remove a tenant, and journal it."""
    remove_tenant(connection, tenant)
    chain.append(connection, TenantChanged(request="gone", tenant=tenant), now)


def read_tenant(connection: Connection, name: str) -> Tenant | None:
    """Return the present tenant, or None."""
    body = connection.scalar(select(tenants.c.body).where(tenants.c.name == name))
    return None if body is None else parse(Tenant, body, f"tenants, {name}")


def read_tenants(connection: Connection) -> Sequence[Tenant]:
    """Return every tenant, by name; of one whose row is damaged, the state in its columns.

    Such a tenant still has its VRF, so that its ports do not count as strangers'; its nodes are set
    aside, and it waits for none.
    """
    rows = connection.execute(_ALL).all()
    return tuple(_read_or_stand_in(connection, row) for row in rows)


def _read_or_stand_in(connection: Connection, row: Row[Any, Any, Any, Any]) -> Tenant:
    try:
        return parse(Tenant, row.body, f"tenants, {row.name}")
    except DamagedRow as error:
        record_owner(connection.engine, "tenant", row.name, error)
    columns = {"name": row.name, "vrf": row.vrf, "number": row.number, "generation": STAND_IN}
    return Tenant.model_construct(**columns)  # columns that rotted, too, shall stop nothing


def _check_unique(connection: Connection, tenant: Tenant) -> None:
    same = tenants.c.vrf == tenant.vrf
    if tenant.number is not None:
        same |= tenants.c.number == tenant.number
    holder = connection.scalar(
        select(tenants.c.name).where(same, tenants.c.name != tenant.name).limit(1)
    )
    if holder is not None:
        raise StaleWrite(f"VRF or number of {tenant.name} is {holder}'s")


def _one_of(rows: int, tenant: Tenant) -> None:
    if rows != 1:
        raise StaleWrite(f"tenant {tenant.name} is no longer at generation {tenant.generation}")


def _columns(tenant: Tenant) -> dict[str, object]:
    return {
        "vrf": tenant.vrf,
        "number": tenant.number,
        "generation": tenant.generation,
        "body": tenant.model_dump_json(),
    }
