"""Rows of alerts, of the overrides of people, and of our subscriptions at BMCs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Connection,
    String,
    any_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
)

from provisioner.model.alert import Alert, Override, Subscription
from provisioner.model.events.event import Event
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal
from provisioner.store.rows.records import clean, parse_each
from provisioner.store.schema.schema import alerts, overrides, received_events, subscriptions

KEPT_MAX = 256  # cleared alerts of one node that are kept
# made once: the watch asks at every look, and to put a statement together costs more than to run it
_ALL = select(alerts.c.node, alerts.c.body).order_by(
    alerts.c.active.desc(), alerts.c.node, alerts.c.id, alerts.c.target
)
_OF_NODE = _ALL.where(alerts.c.node == bindparam("name"))
_STANDING = _ALL.where(alerts.c.active == 1)


class SqlAlertRepository:
    """Alerts, overrides and subscriptions, on disk when a method returns."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, node: str = "") -> Sequence[Alert]:
        """Return all alerts of a node; without a node, the active alerts of all nodes."""
        return await self._transactions.recall(read_alerts, node)

    async def put(self, changed: Sequence[Alert], events: Sequence[Event], now: float) -> None:
        """Write alerts and events in one transaction."""
        await self._transactions.write(lambda c: put_alerts(c, changed, events, now))

    async def list_overrides(self, node: str = "") -> Sequence[Override]:
        return await self._transactions.recall(read_overrides, node)

    async def put_override(self, override: Override, event: Event, now: float) -> None:
        """Store an override and its event in one transaction."""

        def store_both(connection: Connection) -> None:
            put_override(connection, override)
            journal.append(connection, event, now)

        await self._transactions.write(store_both)

    async def drop_override(self, override: Override) -> None:
        await self._transactions.write(lambda c: drop_override(c, override))

    async def list_subscriptions(
        self, nodes: Collection[str] | None = None
    ) -> Sequence[Subscription]:
        """Return those of these nodes; None: all."""
        return await self._transactions.read(lambda c: read_subscriptions(c, nodes))

    async def has_subscription(self, subscription_id: str) -> bool:
        which = select(subscriptions.c.id).where(subscriptions.c.id == subscription_id)
        return await self._transactions.read(lambda c: c.scalar(which)) is not None

    async def put_subscription(self, subscription: Subscription) -> None:
        await self._transactions.write(lambda c: put_subscription(c, subscription))

    async def drop_subscription(self, subscription_id: str) -> None:
        rows = subscriptions
        await self._transactions.write(
            lambda c: c.execute(delete(rows).where(rows.c.id == subscription_id))
        )

    async def list_received(self, node: str, bmc: str) -> Sequence[str]:
        """Return the identities of the newest events accepted from this BMC, the newest last."""
        return await self._transactions.read(lambda c: read_received_events(c, node, bmc))

    async def put_received(self, node: str, bmc: str, identities: Sequence[str]) -> None:
        """Replace the identities of the newest events of this BMC."""
        await self._transactions.write(lambda c: put_received_events(c, node, bmc, identities))


def put_alerts(
    connection: Connection, changed: Sequence[Alert], events: Sequence[Event], now: float
) -> None:
    """Store alerts and events in one transaction. A node's oldest cleared alerts beyond KEPT_MAX
    are removed.
    """
    for alert in changed:
        connection.execute(delete(alerts).where(_same(alert)))
        connection.execute(
            insert(alerts).values(
                node=alert.node,
                id=clean(alert.id),
                target=clean(alert.target),
                active=1 if alert.active else 0,
                last_at=alert.last_at,
                body=clean(alert.model_dump_json()),
            )
        )
    for node in {alert.node for alert in changed}:
        mine = (alerts.c.node == node) & (alerts.c.active == 0)
        old = select(alerts.c.id, alerts.c.target).where(mine).order_by(alerts.c.last_at.desc())
        for row in connection.execute(old.offset(KEPT_MAX)).all():
            obsolete = mine & (alerts.c.id == row.id) & (alerts.c.target == row.target)
            connection.execute(delete(alerts).where(obsolete))
    for event in events:
        journal.append(connection, event, now)


def read_alerts(connection: Connection, node: str) -> tuple[Alert, ...]:
    """Return the alerts of a node ("": of all that stand), those that stand first."""
    rows = connection.execute(_OF_NODE, {"name": node}) if node else connection.execute(_STANDING)
    return parse_each(connection, Alert, "alerts", _by_node(rows))


def put_override(connection: Connection, override: Override) -> None:
    """Store an override in place of the former one of its node, id and target."""
    drop_override(connection, override)
    connection.execute(
        insert(overrides).values(
            node=override.node,
            id=override.id,
            target=override.target,
            until=override.until,
            body=override.model_dump_json(),
        )
    )


def drop_override(connection: Connection, override: Override) -> None:
    """Take an override back, or away once it is over."""
    o = overrides.c
    same = (o.node == override.node) & (o.id == override.id) & (o.target == override.target)
    connection.execute(delete(overrides).where(same))


def read_overrides(connection: Connection, node: str) -> tuple[Override, ...]:
    """Return the overrides of a node, or of all."""
    query = select(overrides.c.node, overrides.c.body)
    query = query.where(overrides.c.node == node) if node else query
    rows = connection.execute(query.order_by(overrides.c.node, overrides.c.until))
    return parse_each(connection, Override, "overrides", _by_node(rows))


def put_subscription(connection: Connection, subscription: Subscription) -> None:
    """Store a subscription, or its change."""
    connection.execute(delete(subscriptions).where(subscriptions.c.id == subscription.id))
    connection.execute(
        insert(subscriptions).values(
            id=subscription.id,
            node=subscription.node,
            bmc=subscription.bmc,
            body=subscription.model_dump_json(),
        )
    )


def read_subscriptions(
    connection: Connection, nodes: Collection[str] | None = None
) -> tuple[Subscription, ...]:
    s = subscriptions.c
    query = select(s.id, s.node, s.body).order_by(s.node, s.bmc)
    if nodes is not None and connection.dialect.name == "postgresql":
        query = query.where(s.node == any_(literal(sorted(nodes), ARRAY(String))))
    elif nodes is not None:  # in one value: SQLite takes few, and each part would walk all rows
        named = func.json_each(json.dumps(sorted(nodes))).table_valued("value")
        query = query.where(s.node.in_(select(named.c.value)))
    rows = connection.execute(query)
    return parse_each(connection, Subscription, "subscriptions", ((*row,) for row in rows))


def _by_node(rows: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    return ((row.node, row.node, row.body) for row in rows)


def read_received_events(connection: Connection, node: str, bmc: str) -> tuple[str, ...]:
    """Return the identities of this BMC's events that were taken in; () if there are none."""
    query = select(received_events.c.identities).where(_of_bmc(node, bmc))
    return tuple((connection.execute(query).scalar() or "").split())


def put_received_events(
    connection: Connection, node: str, bmc: str, identities: Sequence[str]
) -> None:
    """Replace them: one row for each BMC that ever sent an event that meant something."""
    connection.execute(delete(received_events).where(_of_bmc(node, bmc)))
    row = {"node": node, "bmc": bmc, "identities": " ".join(identities)}
    connection.execute(insert(received_events).values(row))


def _of_bmc(node: str, bmc: str) -> Any:
    return (received_events.c.node == node) & (received_events.c.bmc == bmc)


def _same(alert: Alert) -> Any:
    a = alerts.c
    id_ = clean(alert.id)
    target = clean(alert.target)
    return (a.node == alert.node) & (a.id == id_) & (a.target == target)
