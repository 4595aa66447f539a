"""Rows of tenants. Each function is one part of a transaction on `connection`.

A numbered tenant is fenced by its generation; name, VRF and number stand for one tenant each, also
for two people who ask at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from provisioner.model.case import TenantNotice
from provisioner.model.events.event import EventKind
from provisioner.model.events.fleet_events import NoticeWritten, TenantChanged
from provisioner.model.events.node_events import NodeAllocated
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.integrations.webhook import JournalRow, Webhook
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.planning.watch.webhooks import is_wanted
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.rows import journal, node_rows
from provisioner.store.rows.records import STAND_IN, clean, parse, record_owner
from provisioner.store.rows.statements import delete_rows, find_value, insert_row, update_rows
from provisioner.store.schema.schema import nodes as node_table
from provisioner.store.schema.schema import notices, tenants, webhooks
from provisioner.store.schema.usage_tables import saved_views

# ------------------------------------------------------------------------------
# Rows of notices to tenants: a new one is journalled in the same transaction.


KIND = EventKind.NOTICE


def put_notice(connection: Connection, notice: TenantNotice, *, replace: bool) -> None:
    """Write a notice; an existing one stays, unless it is to be replaced.

    A new notice becomes a row of the journal, by which webhooks receive it.
    """
    exists = find_value(connection, notices.c.id, id=notice.id) is not None
    if exists and not replace:
        return
    delete_rows(connection, notices, id=notice.id)
    notice = notice.model_copy(update={"channels": _count_channels(connection, notice)})
    row = notice.model_dump(include={"id", "tenant", "node", "at", "sent_at"})
    insert_row(connection, notices, row | {"body": clean(notice.model_dump_json())})
    if not exists:
        event = NoticeWritten(
            about=notice.node,
            id=notice.id,
            tenant=notice.tenant,
            case=notice.case,
            notice_kind=notice.kind,
            text=notice.text,
            effective_at=notice.effective_at,
        )
        journal.append(connection, event, notice.at)


def _count_channels(connection: Connection, notice: TenantNotice) -> int:
    """Return how many webhooks receive this notice; 0: it is only recorded."""
    detail: dict[str, object] = {"tenant": notice.tenant}
    row = JournalRow(seq=0, at=notice.at, kind=KIND, node=notice.node, detail=detail, sha256="")
    listed = connection.execute(select(webhooks.c.name, webhooks.c.body))
    receivers = (parse(Webhook, body, f"webhooks, {name}") for name, body in listed)
    return sum(not r.paused_why and is_wanted(r, row) for r in receivers)


def sent(connection: Connection, notice_id: str, now: float) -> None:
    """Record that the notice was sent; the first time stays."""
    mine = notices.c.id == notice_id
    body = connection.scalar(select(notices.c.body).where(mine))
    notice = None if body is None else parse(TenantNotice, body, f"notices, {notice_id}")
    if notice is None or notice.sent_at:
        return
    sent_notice = notice.model_copy(update={"sent_at": now})
    values = {"sent_at": now, "body": clean(sent_notice.model_dump_json())}
    connection.execute(update(notices).where(mine).values(**values))


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
        insert_row(connection, tenants, {"name": tenant.name, **_columns(tenant)})
    else:
        # the list has no keys, user data and space; they are the tenant's own
        own = {
            "ssh_keys": existing.ssh_keys,
            "user_data": existing.user_data,
            "space_handle": tenant.space_handle or existing.space_handle,
        }
        tenant = tenant.model_copy(update=own)
        update_rows(connection, tenants, {"name": tenant.name}, _columns(tenant))


def save_tenant(connection: Connection, tenant: Tenant, *, new: bool) -> Tenant:
    """Return the tenant with its generation raised, or as a new row at generation 0.

    `StaleWrite` if it changed since it was read, or if its name, VRF or number is taken.
    """
    _check_unique(connection, tenant)
    if new:
        if read_tenant(connection, tenant.name) is not None:
            raise StaleWrite(f"there is a tenant {tenant.name} already")
        insert_row(connection, tenants, {"name": tenant.name, **_columns(tenant)})
        return tenant
    saved = tenant.model_copy(update={"generation": tenant.generation + 1})
    same = {"name": tenant.name, "generation": tenant.generation}
    _one_of(update_rows(connection, tenants, same, _columns(saved)), tenant)
    return saved


def remove_tenant(connection: Connection, tenant: Tenant) -> None:
    """Remove a tenant's row; `StaleWrite` if it changed since it was read."""
    same = {"name": tenant.name, "generation": tenant.generation}
    _one_of(delete_rows(connection, tenants, **same), tenant)
    # a later tenant of that name is another one
    delete_rows(connection, saved_views, side=tenant.name)


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
        journal.append(connection, RequestCarriedOut(about=node.id, request=request, **actor), now)
    journal.append(connection, TenantChanged(request=request, tenant=saved, **actor), now)
    return saved


def allocate(connection: Connection, node: Node, tenant: Tenant, now: float) -> Node:
    """Give a node to a tenant, with the event. `StaleWrite` if either changed since it was read:
    a tenant that was shrunk or deleted meanwhile gets no node.
    """
    stored = read_tenant(connection, tenant.name)
    if stored is None or stored.generation != tenant.generation:
        raise StaleWrite(f"tenant {tenant.name} is no longer at generation {tenant.generation}")
    saved = node_rows.save_node(connection, node.model_copy(update={"tenant": tenant.name}))
    journal.append(connection, NodeAllocated(about=node.id, tenant=tenant.name), now)
    return saved


def forget(connection: Connection, tenant: Tenant, now: float) -> None:
    remove_tenant(connection, tenant)
    journal.append(connection, TenantChanged(request="gone", tenant=tenant), now)


def read_tenant(connection: Connection, name: str) -> Tenant | None:
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
