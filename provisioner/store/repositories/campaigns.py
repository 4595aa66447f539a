"""Rows of campaigns, their nodes, pinned releases, and notices to tenants.

Rule: a node is admitted in the transaction that moves its own row, and only while the campaign is
as it was when that was decided: a crash leaves both or neither, and a pause is never overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from provisioner.model.campaign import (
    Campaign,
    CampaignRow,
    CampaignState,
    PinScope,
    Progress,
    ReleasePin,
)
from provisioner.model.case import TenantNotice
from provisioner.model.events.fleet_events import CampaignChanged, CampaignNodeChanged, PinChanged
from provisioner.model.node import Node
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import evidence_rows, journal, node_rows
from provisioner.store.rows.records import parse, parse_each, record_owner
from provisioner.store.rows.statements import delete_rows, find_value, insert_row, update_rows
from provisioner.store.rows.tenant_rows import put_notice
from provisioner.store.schema.schema import campaign_nodes, campaigns, notices, release_pins

BEFORE = (Progress.PENDING, Progress.NOTIFIED, Progress.DEFERRED)  # of a node that may begin
MANY = 16  # rows from which on one statement for all of them is worth a look at all
# made once: every look of the daemon's loops asks
_ALL = select(campaigns.c.id, campaigns.c.body).order_by(campaigns.c.created_at, campaigns.c.id)
OVER = (CampaignState.DONE, CampaignState.ABORTED, CampaignState.DRAFT)


class SqlCampaignRepository:
    """Stored campaigns. Every method is one short transaction, on disk when it returns."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, campaign: Campaign, by: str, now: float) -> Campaign:
        await self._transactions.write(lambda c: add_campaign(c, campaign, by, now))
        return campaign

    async def get(self, campaign_id: str) -> Campaign | None:
        return await self._transactions.read(lambda c: read_campaign(c, campaign_id))

    async def list(self) -> Sequence[Campaign]:
        """Return all campaigns, the oldest first."""
        return await self._transactions.recall(read_campaigns)

    async def save(
        self,
        campaign: Campaign,
        event: CampaignChanged,
        now: float,
        rows: Sequence[CampaignRow] | None = None,
    ) -> Campaign:
        """Store the campaign with its generation raised, and a row of the journal; return it.

        `rows`: its nodes, from the start on; None leaves them unchanged. Raises `StaleWrite` if the
        campaign has changed since it was read.
        """
        return await self._transactions.write(
            lambda c: save_campaign(c, campaign, event, now, rows)
        )

    async def list_rows(self, campaign_id: str) -> Sequence[CampaignRow]:
        return await self._transactions.read(lambda c: read_rows(c, campaign_id))

    async def list_active_rows(self) -> Sequence[CampaignRow]:
        """Return the nodes of all campaigns that were started and are not over."""
        return await self._transactions.recall(read_active)

    async def put_rows(
        self,
        campaign: Campaign,
        rows: Sequence[CampaignRow],
        now: float,
        notices: Sequence[TenantNotice] = (),
    ) -> None:
        """Store the progress of nodes and the notices to their tenants.

        A notice that is already stored stays unchanged. Raises `StaleWrite` if the campaign has
        changed since it was read.
        """
        await self._transactions.write(lambda c: put_rows(c, campaign, rows, now, notices))

    async def admit(
        self, campaign: Campaign, row: CampaignRow | None, node: Node, why: str, now: float
    ) -> Node:
        """Store the start of a node's upgrade and return the node.

        One transaction writes the node's row, the campaign's row of it, the revocation of its
        certificate and the journal. `row` None: a host that only makes room for a leaf. Raises
        `StaleWrite` if the node or the campaign has changed since it was read.
        """
        return await self._transactions.write(lambda c: admit(c, campaign, row, node, why, now))

    async def list_pins(self) -> Sequence[ReleasePin]:
        return await self._transactions.recall(read_pins)

    async def put_pin(self, pin: ReleasePin, now: float) -> None:
        await self._transactions.write(lambda c: put_pin(c, pin, now))

    async def drop_pin(self, pin: ReleasePin, now: float) -> None:
        await self._transactions.write(lambda c: drop_pin(c, pin, now))

    async def list_notices(self, tenant: str = "") -> Sequence[TenantNotice]:
        return await self._transactions.read(lambda c: read_notices(c, tenant))

    async def put_notice(self, notice: TenantNotice) -> None:
        """Replace the notice with this id, after it was sent or accepted."""
        await self._transactions.write(lambda c: put_notice(c, notice, replace=True))


def add_campaign(connection: Connection, campaign: Campaign, by: str, now: float) -> None:
    """Add a campaign; `StaleWrite` if the id is taken."""
    if read_campaign(connection, campaign.id) is not None:
        raise StaleWrite(f"there is a campaign {campaign.id} already")
    insert_row(connection, campaigns, {"id": campaign.id, **_columns(campaign)})
    event = CampaignChanged(
        campaign=campaign.id,
        state=campaign.state,
        release=campaign.release,
        select=campaign.select,
        by=by,
        policy=campaign.policy.digest(),
    )
    journal.append(connection, event, now)


def save_campaign(
    connection: Connection,
    campaign: Campaign,
    event: CampaignChanged,
    now: float,
    rows: Sequence[CampaignRow] | None,
) -> Campaign:
    """Return the campaign with its generation raised, its nodes, and why: all of it or nothing."""
    saved = campaign.model_copy(update={"generation": campaign.generation + 1})
    same = {"id": campaign.id, "generation": campaign.generation}
    if update_rows(connection, campaigns, same, _columns(saved)) != 1:
        raise StaleWrite(f"campaign {campaign.id} is no longer at generation {campaign.generation}")
    _put_all(connection, campaign.id, rows or ())
    journal.append(connection, event, now)
    return saved


def put_rows(
    connection: Connection,
    campaign: Campaign,
    rows: Sequence[CampaignRow],
    now: float,
    told: Sequence[TenantNotice],
) -> None:
    """Store nodes' progress, with a row of the journal for each change of state."""
    _fence(connection, campaign)
    for row in rows:
        p = row.progress
        if _put_row(connection, row) not in ("", p.state):
            event = CampaignNodeChanged(
                about=row.node, campaign=campaign.id, progress=p.state, reason=p.reason
            )
            journal.append(connection, event, now)
    for notice in told:
        put_notice(connection, notice, replace=False)


def admit(
    connection: Connection,
    campaign: Campaign,
    row: CampaignRow | None,
    node: Node,
    why: str,
    now: float,
) -> Node:
    _fence(connection, campaign)
    saved = node_rows.save_node(connection, node)
    if node.certificate:
        evidence_rows.revoke(connection, node.certificate, why, now)
    if row is not None and (was := _put_row(connection, row)) not in BEFORE:
        raise StaleWrite(f"{node.id} is {was} in campaign {campaign.id} already")
    event = CampaignNodeChanged(
        about=node.id,
        campaign=campaign.id,
        progress=row.progress.state if row is not None else "displaced",
        release=node.release,
        to_state=node.state,
        why=why,
    )
    journal.append(connection, event, now)
    return saved


def read_campaign(connection: Connection, campaign_id: str) -> Campaign | None:
    body = find_value(connection, campaigns.c.body, id=campaign_id)
    return None if body is None else parse(Campaign, body, f"campaigns, {campaign_id}")


def read_campaigns(connection: Connection) -> tuple[Campaign, ...]:
    """Return all campaigns, the oldest first."""
    rows = connection.execute(_ALL)
    return parse_each(connection, Campaign, "campaigns", ((r.id, "", r.body) for r in rows))


def read_rows(connection: Connection, campaign_id: str) -> tuple[CampaignRow, ...]:
    """Return the nodes of a campaign, by name; none before its start."""
    query = select(campaign_nodes.c.node, campaign_nodes.c.body)
    query = query.where(campaign_nodes.c.campaign == campaign_id).order_by(campaign_nodes.c.node)
    rows = connection.execute(query)
    return parse_each(connection, CampaignRow, "campaign_nodes", _by_node(rows))


def read_active(connection: Connection) -> tuple[CampaignRow, ...]:
    query = select(campaign_nodes.c.node, campaign_nodes.c.body)
    query = query.join(campaigns, campaigns.c.id == campaign_nodes.c.campaign)
    query = query.where(campaigns.c.state.not_in([str(s) for s in OVER]))
    rows = connection.execute(query.order_by(campaign_nodes.c.campaign, campaign_nodes.c.node))
    return parse_each(connection, CampaignRow, "campaign_nodes", _by_node(rows))


def read_pins(connection: Connection) -> tuple[ReleasePin, ...]:
    """Return all pins, by their subject."""
    rows = connection.execute(select(release_pins).order_by(release_pins.c.key)).all()
    pins = (_read_pin(connection, row.key, row.body) for row in rows)
    return tuple(pin for pin in pins if pin is not None)


def _read_pin(connection: Connection, key: str, body: str) -> ReleasePin | None:
    """Return a pin; of a damaged row, one to no release, which keeps its nodes out of campaigns.

    The nodes are set aside as well. A damaged pin of the whole fleet, which holds no node back, is
    only reported.
    """
    try:
        return parse(ReleasePin, body, f"release_pins, {key}")
    except DamagedRow as error:
        scope, _, name = key.partition(":")
        record_owner(connection.engine, scope, name, error)
    if scope not in (PinScope.NODE, PinScope.RACK):
        return None
    reason = "its row is damaged: see `provisioner doctor`"
    return ReleasePin(scope=PinScope(scope), name=name, release="", reason=reason)


def put_pin(connection: Connection, pin: ReleasePin, now: float) -> None:
    delete_rows(connection, release_pins, key=pin.key)
    insert_row(connection, release_pins, {"key": pin.key, "body": pin.model_dump_json()})
    journal.append(connection, PinChanged(pin=pin), now)


def drop_pin(connection: Connection, pin: ReleasePin, now: float) -> None:
    delete_rows(connection, release_pins, key=pin.key)
    journal.append(connection, PinChanged(dropped=pin), now)


def read_notices(connection: Connection, tenant: str) -> tuple[TenantNotice, ...]:
    """Return the notices to tenants, sent or not, the oldest first; of one tenant, or of all."""
    query = select(notices.c.id, notices.c.body).order_by(notices.c.at, notices.c.id)
    if tenant:
        query = query.where(notices.c.tenant == tenant)
    rows = ((r.id, "", r.body) for r in connection.execute(query))
    return parse_each(connection, TenantNotice, "notices", rows)


def _by_node(rows: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    return ((row.node, row.node, row.body) for row in rows)


def _fence(connection: Connection, campaign: Campaign) -> None:
    if find_value(connection, campaigns.c.generation, id=campaign.id) != campaign.generation:
        raise StaleWrite(f"campaign {campaign.id} is no longer at generation {campaign.generation}")


def _put_row(connection: Connection, row: CampaignRow) -> str:
    """Write a node's row; the state that it was in, "" if it is new."""
    mine = {"campaign": row.campaign, "node": row.node}
    was: str | None = find_value(connection, campaign_nodes.c.state, **mine)
    if was is None:
        insert_row(connection, campaign_nodes, _row(row))
    else:
        update_rows(connection, campaign_nodes, mine, _row(row))
    return was or ""


def _put_all(connection: Connection, campaign_id: str, rows: Sequence[CampaignRow]) -> None:
    """Store many rows in two statements: at its start a campaign has one for every node of a
    fleet.
    """
    if len(rows) < MANY:
        for row in rows:
            _put_row(connection, row)
        return
    query = select(campaign_nodes.c.node).where(campaign_nodes.c.campaign == campaign_id)
    stored = set(connection.scalars(query))
    values = [_row(r) for r in rows]
    if made := [v for v in values if v["node"] not in stored]:
        connection.execute(insert(campaign_nodes), made)
    if named := [
        {"its": v["node"], "to": v["state"], "its_body": v["body"]}
        for v in values
        if v["node"] in stored
    ]:
        mine = (campaign_nodes.c.campaign == campaign_id) & (
            campaign_nodes.c.node == bindparam("its")
        )
        changes: dict[str, Any] = {"state": bindparam("to"), "body": bindparam("its_body")}
        connection.execute(update(campaign_nodes).where(mine).values(changes), named)


def _row(row: CampaignRow) -> dict[str, object]:
    state = str(row.progress.state)
    body = row.model_dump_json()
    return {"campaign": row.campaign, "node": row.node, "state": state, "body": body}


def _columns(campaign: Campaign) -> dict[str, object]:
    return {
        "state": str(campaign.state),
        "generation": campaign.generation,
        "created_at": campaign.created_at,
        "body": campaign.model_dump_json(),
    }
