"""Rows of webhooks and of their deliveries.

The journal is the outbox: its rows are written in the transaction of the change that they report. A
webhook has a position in it; behind the position, each undelivered event has a row of its own. So a
crash at any moment sends an event again, with the same id, and never leaves one out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import digits
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, false, func, insert, select, update

from provisioner.model.events.fleet_events import WebhookChanged
from provisioner.model.integrations.webhook import (
    Delivery,
    DeliveryState,
    JournalRow,
    Webhook,
    WebhookStatus,
)
from provisioner.planning.watch.shards import find_lane
from provisioner.planning.watch.webhooks import NOTICE, is_wanted, list_changes
from provisioner.ports.errors import StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal as chain
from provisioner.store.rows import tenant_rows
from provisioner.store.rows.records import clean, parse, parse_each, parse_object
from provisioner.store.schema.schema import journal, webhooks
from provisioner.store.schema.schema import webhook_deliveries as rows

PAGE = 500  # rows of the journal that one transaction looks at: some 10 ms


class SqlWebhookRepository:
    """Stored webhooks and deliveries. Every method is one short transaction, on disk when it
    returns.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self) -> Sequence[WebhookStatus]:
        return await self._transactions.read(read_webhooks)

    async def add(self, webhook: Webhook, after: int | None, by: str) -> None:
        """Add a webhook that gets the events after a row; None: from now on."""
        await self._transactions.write(lambda c: add_webhook(c, webhook, after, by))

    async def remove(self, name: str, by: str, now: float) -> bool:
        return await self._transactions.write(lambda c: remove_webhook(c, name, by, now))

    async def replace(self, before: Webhook, after: Webhook, by: str, now: float) -> int:
        """Write a webhook's changed fields; return how many undelivered events were dropped.

        Events that it no longer wants are dropped. Raises StaleWrite if it is not `before`.
        """
        return await self._transactions.write(lambda c: replace(c, before, after, by, now))

    async def count_unwanted(self, webhook: Webhook) -> int:
        """Return how many undelivered events a webhook with these fields would not want."""
        return await self._transactions.read(lambda c: len(list_unwanted(c, webhook)))

    async def pause(self, name: str, why: str, now: float) -> None:
        """Stop sending to a webhook, for the reason `why`; "" resumes it."""
        await self._transactions.write(lambda c: pause(c, name, why, now))

    async def spread(self, name: str, room: int) -> int:
        """Make deliveries of the next rows of the journal; return how many are now pending.

        At most `room` deliveries wait for one webhook; the journal itself is the remainder of the
        queue.
        """
        return await self._transactions.write(lambda c: spread(c, name, room))

    async def list_due(
        self, name: str, now: float, most: int, lanes: Collection[int] | None = None
    ) -> Sequence[tuple[Delivery, JournalRow]]:
        """The deliveries that may be sent now: for each node, its oldest pending event only.

        `lanes`: of nodes whose `find_lane` is among these; None: of all.
        """
        return await self._transactions.read(lambda c: due(c, name, now, most, lanes))

    async def record_delivery(self, delivery: Delivery, now: float) -> bool:
        """Record a delivery; return True if no event of its node is dead for this webhook."""
        return await self._transactions.write(lambda c: delivered(c, delivery, now))

    async def record_failure(self, delivery: Delivery, now: float) -> None:
        """Record a failed attempt: `delivery` as it is now. A dead one is recorded in the
        journal.
        """
        await self._transactions.write(lambda c: failed(c, delivery, now))

    async def list_dead(self, name: str) -> Sequence[tuple[Delivery, JournalRow]]:
        """Return the undeliverable events, the oldest first; 1,000 at most."""
        return await self._transactions.read(lambda c: dead(c, name))

    async def revive(self, name: str, seq: int | None, now: float) -> int:
        """Send dead events (all of them, or one) again; how many."""
        return await self._transactions.write(lambda c: revive(c, name, seq, now))

    async def bury(self, name: str, seq: int | None, by: str, now: float) -> int:
        """Let go of dead events (all of them, or one); how many."""
        return await self._transactions.write(lambda c: bury(c, name, seq, by, now))


def read_webhooks(connection: Connection) -> tuple[WebhookStatus, ...]:
    counted = select(rows.c.webhook, rows.c.state, func.count()).group_by(
        rows.c.webhook, rows.c.state
    )
    counts = {(r[0], r[1]): r[2] for r in connection.execute(counted)}
    stored = connection.execute(select(webhooks).order_by(webhooks.c.name)).all()
    rows_of = {row.name: row for row in stored}
    read = parse_each(connection, Webhook, "webhooks", ((r.name, "", r.body) for r in stored))
    return tuple(
        WebhookStatus(
            webhook=webhook,
            position=row.position,
            pending=counts.get((row.name, DeliveryState.PENDING), 0),
            dead=counts.get((row.name, DeliveryState.DEAD), 0),
            delivered=row.delivered,
            delivered_at=row.delivered_at,
        )
        for webhook, row in ((w, rows_of[w.name]) for w in read)
    )


def add_webhook(connection: Connection, webhook: Webhook, after: int | None, by: str) -> None:
    """Add a webhook; `StaleWrite` if there is one of this name."""
    if connection.scalar(select(webhooks.c.name).where(webhooks.c.name == webhook.name)):
        raise StaleWrite(f"there is a webhook {webhook.name} already")
    event = WebhookChanged(webhook=webhook.name, url=webhook.url, made_by=by)
    chain.append(connection, event, webhook.made_at)
    head = connection.scalar(select(func.max(journal.c.seq))) or 0
    values = {
        "name": webhook.name,
        "position": head if after is None else min(after, head),
        "delivered": 0,
        "delivered_at": 0.0,
        "body": webhook.model_dump_json(),
    }
    connection.execute(insert(webhooks).values(**values))


def remove_webhook(connection: Connection, name: str, by: str, now: float) -> bool:
    """Remove a webhook with all its waiting events; False if there is none."""
    removed = connection.execute(delete(webhooks).where(webhooks.c.name == name)).rowcount == 1
    if removed:
        connection.execute(delete(rows).where(rows.c.webhook == name))
        chain.append(connection, WebhookChanged(webhook=name, removed_by=by), now)
    return removed


def replace(connection: Connection, before: Webhook, after: Webhook, by: str, now: float) -> int:
    """Write the changed fields; see `SqlWebhookRepository.replace`."""
    mine = webhooks.c.name == before.name
    body = connection.scalar(select(webhooks.c.body).where(mine))
    if body is None or parse(Webhook, body, f"webhooks, {before.name}") != before:
        raise StaleWrite(f"the webhook {before.name} is not as it was read")
    fields = list_changes(before, after)
    if not fields:
        return 0
    connection.execute(update(webhooks).where(mine).values(body=after.model_dump_json()))
    filtered = bool({"kinds", "nodes", "tenant"} & set(fields))
    unwanted = list_unwanted(connection, after) if filtered else []
    for start in range(0, len(unwanted), PAGE):
        page = rows.c.seq.in_(unwanted[start : start + PAGE])
        connection.execute(delete(rows).where((rows.c.webhook == after.name) & page))
    event = WebhookChanged(
        webhook=after.name,
        url=after.url,
        changed_by=by,
        fields=fields,
        paused=after.paused_why,
        dropped=len(unwanted),
    )
    chain.append(connection, event, now)
    return len(unwanted)


def list_unwanted(connection: Connection, webhook: Webhook) -> list[int]:
    """Return the undelivered events that a webhook with these fields does not want."""
    undelivered = _with_rows(connection, rows.c.webhook == webhook.name, None)
    return [delivery.seq for delivery, row in undelivered if not is_wanted(webhook, row)]


def pause(connection: Connection, name: str, why: str, now: float) -> None:
    """Send nothing to it; "": go on, with what waits first."""
    mine = webhooks.c.name == name
    body = connection.scalar(select(webhooks.c.body).where(mine))
    if body is None:
        return
    changed = parse(Webhook, body, f"webhooks, {name}").model_copy(update={"paused_why": why})
    connection.execute(update(webhooks).where(mine).values(body=changed.model_dump_json()))
    chain.append(connection, WebhookChanged(webhook=name, paused=why), now)


def spread(connection: Connection, name: str, room: int) -> int:
    row = connection.execute(select(webhooks).where(webhooks.c.name == name)).first()
    if row is None:
        return 0
    webhook = parse(Webhook, row.body, f"webhooks, {name}")
    waiting = (rows.c.webhook == name) & (rows.c.state == DeliveryState.PENDING)
    pending = connection.scalar(select(func.count()).where(waiting)) or 0
    page = select(journal).where(journal.c.seq > row.position).order_by(journal.c.seq)
    position = row.position
    if pending >= room:
        return int(pending)
    for happened in connection.execute(page.limit(min(PAGE, room - pending))).all():
        position = happened.seq
        if is_wanted(webhook, _happened(happened)):
            values = {
                "webhook": name,
                "seq": happened.seq,
                "node": happened.node,
                "state": "pending",
            }
            connection.execute(insert(rows).values(**values, tries=0, next_at=0.0, error=""))
            pending += 1
    if position != row.position:
        moved = update(webhooks).where(webhooks.c.name == name).values(position=position)
        connection.execute(moved)
    return int(pending)


def due(
    connection: Connection, name: str, now: float, most: int, lanes: Collection[int] | None
) -> tuple[tuple[Delivery, JournalRow], ...]:
    """Return the oldest pending event of each node, if its time has come; the oldest first."""
    heads = (
        select(func.min(rows.c.seq))
        .where((rows.c.webhook == name) & (rows.c.state == DeliveryState.PENDING))
        .group_by(rows.c.node)
    )
    mine = (rows.c.webhook == name) & rows.c.seq.in_(heads) & (rows.c.next_at <= now)
    if lanes is not None:
        last = func.substr(rows.c.node, func.length(rows.c.node), 1)
        taken = [digit for digit in digits if find_lane(digit) in lanes]
        others = last.not_in([*digits]) if find_lane("") in lanes else false()
        mine &= last.in_(taken) | others
    return _with_rows(connection, mine, most)


def dead(connection: Connection, name: str) -> tuple[tuple[Delivery, JournalRow], ...]:
    """Return the events whose delivery was given up."""
    return _with_rows(connection, _dead(name, None), 1000)


def _with_rows(
    connection: Connection, which: ColumnElement[bool], most: int | None
) -> tuple[tuple[Delivery, JournalRow], ...]:
    columns = (rows.c.webhook, rows.c.state, rows.c.tries, rows.c.next_at, rows.c.error, journal)
    query = select(*columns).join(journal, journal.c.seq == rows.c.seq).where(which)
    deliveries = []
    for row in connection.execute(query.order_by(rows.c.seq).limit(most)):
        fields = {n: getattr(row, n) for n in ("webhook", "seq", "node", "tries", "next_at")}
        state = DeliveryState(row.state)
        deliveries.append((Delivery(**fields, state=state, error=row.error), _happened(row)))
    return tuple(deliveries)


def delivered(connection: Connection, delivery: Delivery, now: float) -> bool:
    """Record an arrival: the event's row goes, and a notice counts as sent."""
    if connection.execute(delete(rows).where(_same(delivery))).rowcount:
        counted = {"delivered": webhooks.c.delivered + 1, "delivered_at": now}
        mine = webhooks.c.name == delivery.webhook
        connection.execute(update(webhooks).where(mine).values(**counted))
        event_row = connection.execute(select(journal).where(journal.c.seq == delivery.seq)).first()
        if event_row is not None and event_row.kind == NOTICE:
            tenant_rows.sent(connection, str(_happened(event_row).detail.get("id", "")), now)
    dead_before = _dead(delivery.webhook, None) & (rows.c.node == delivery.node)
    return connection.scalar(select(rows.c.seq).where(dead_before).limit(1)) is None


def failed(connection: Connection, delivery: Delivery, now: float) -> None:
    """Record the result of a try; an event that was dropped meanwhile stays dropped."""
    values = {
        "state": delivery.state,
        "tries": delivery.tries,
        "next_at": delivery.next_at,
        "error": clean(delivery.error),
    }
    written = connection.execute(update(rows).where(_same(delivery)).values(**values))
    if written.rowcount and delivery.state is DeliveryState.DEAD:
        event = WebhookChanged(
            about=delivery.node,
            webhook=delivery.webhook,
            dead=delivery.seq,
            error=delivery.error,
            tries=delivery.tries,
        )
        chain.append(connection, event, now)


def revive(connection: Connection, name: str, seq: int | None, now: float) -> int:
    """Let dead events wait again, as if never tried: before later events of their node."""
    values = {"state": DeliveryState.PENDING, "tries": 0, "next_at": now}
    return connection.execute(update(rows).where(_dead(name, seq)).values(**values)).rowcount


def bury(connection: Connection, name: str, seq: int | None, by: str, now: float) -> int:
    """Drop dead events; the journal still has them."""
    count = connection.execute(delete(rows).where(_dead(name, seq))).rowcount
    if count:
        chain.append(connection, WebhookChanged(webhook=name, dropped=count, seq=seq, by=by), now)
    return count


def _dead(name: str, seq: int | None) -> ColumnElement[bool]:
    which = (rows.c.webhook == name) & (rows.c.state == DeliveryState.DEAD)
    return which if seq is None else which & (rows.c.seq == seq)


def _same(delivery: Delivery) -> ColumnElement[bool]:
    return (rows.c.webhook == delivery.webhook) & (rows.c.seq == delivery.seq)


def _happened(row: Row[Any]) -> JournalRow:
    detail = parse_object(row.detail, f"journal, {row.seq}")
    return JournalRow(
        seq=row.seq, at=row.at, kind=row.kind, node=row.node, detail=detail, sha256=row.digest
    )
