"""Rows of notices to tenants: a new one is journalled in the same transaction."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select, update

from provisioner.model.case import TenantNotice
from provisioner.model.events.event import EventKind
from provisioner.model.events.fleet_events import NoticeWritten
from provisioner.model.integrations.webhook import JournalRow, Webhook
from provisioner.planning.watch.webhooks import is_wanted
from provisioner.store.rows import journal as chain
from provisioner.store.rows.records import clean, parse
from provisioner.store.schema.campaign_schema import notices
from provisioner.store.schema.webhook_schema import webhooks

KIND = EventKind.NOTICE


def put_notice(connection: Connection, notice: TenantNotice, *, replace: bool) -> None:
    """Write a notice; an existing one stays, unless it is to be replaced.

    A new notice becomes a row of the journal, by which webhooks receive it.
    """
    mine = notices.c.id == notice.id
    exists = connection.scalar(select(notices.c.id).where(mine)) is not None
    if exists and not replace:
        return
    connection.execute(delete(notices).where(mine))
    notice = notice.model_copy(update={"channels": _count_channels(connection, notice)})
    body = clean(notice.model_dump_json())
    connection.execute(
        insert(notices).values(
            id=notice.id,
            tenant=notice.tenant,
            node=notice.node,
            at=notice.at,
            sent_at=notice.sent_at,
            body=body,
        )
    )
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
        chain.append(connection, event, notice.at)


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
