"""Read every row of a database as the daemon would, and report those that cannot be read.

A page check of SQLite shows that the file is whole, not that a row still has its written content.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pydantic import BaseModel
from sqlalchemy import Connection, Row, Table, select
from sqlalchemy.exc import DBAPIError

from provisioner.model.access import ChangeRequest, Session, Token
from provisioner.model.adoption.capability import Grant
from provisioner.model.agent import AgentSession
from provisioner.model.alert import Alert, Override, Subscription
from provisioner.model.artifact import StoredImage
from provisioner.model.campaign import Campaign, CampaignNotice
from provisioner.model.campaign_policy import NamedPolicy
from provisioner.model.campaign_row import CampaignRow, ReleasePin
from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.health import HealthReport
from provisioner.model.integrations.webhook import Webhook
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.tenant import ReleaseProof, Tenant
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows.operation_rows import read_entry_row, read_operation_row
from provisioner.store.rows.records import parse, parse_object
from provisioner.store.schema import (
    access_schema,
    campaign_schema,
    case_schema,
    grant_schema,
    schema,
    webhook_schema,
)

BODIES: Sequence[tuple[Table, type[BaseModel]]] = (
    (schema.nodes, Node),
    (schema.inventories, Inventory),
    (schema.reports, HealthReport),
    (schema.samples, Sample),
    (schema.baselines, Baseline),
    (schema.certificates, Certificate),
    (schema.proofs, ReleaseProof),
    (schema.tenants, Tenant),
    (schema.agents, AgentSession),
    (schema.alerts, Alert),
    (schema.overrides, Override),
    (schema.subscriptions, Subscription),
    (schema.fabric_sessions, FabricSession),
    (schema.fabric_outcomes, FabricOutcome),
    (campaign_schema.campaigns, Campaign),
    (campaign_schema.campaign_nodes, CampaignRow),
    (campaign_schema.release_pins, ReleasePin),
    (campaign_schema.campaign_policies, NamedPolicy),
    (campaign_schema.stored_images, StoredImage),
    (campaign_schema.notices, CampaignNotice),
    (case_schema.cases, Case),
    (grant_schema.grants, Grant),
    (webhook_schema.webhooks, Webhook),
    (access_schema.tokens, Token),
    (access_schema.console_sessions, Session),
    (access_schema.requests, ChangeRequest),
)
Read = Callable[[Row[tuple[object, ...]], str], object]


def damaged_rows(connection: Connection) -> Iterator[DamagedRow]:
    """Yield the fault of each row that cannot be read, table by table."""
    for table, model in BODIES:
        yield from _read_table(connection, table, partial(_parse_body, model))
    yield from _read_table(connection, schema.operations, lambda r, _w: read_operation_row(r))
    yield from _read_table(connection, schema.ledger, lambda r, _w: read_entry_row(r))
    yield from _read_table(connection, schema.journal, lambda r, w: parse_object(r.detail, w))
    yield from _read_table(connection, schema.runs, lambda r, w: parse_object(r.hosts, w))
    yield from _read_table(connection, schema.evidence, _unpack)


def _read_table(connection: Connection, table: Table, read: Read) -> Iterator[DamagedRow]:
    keys = [column.name for column in table.primary_key.columns]
    query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=500)
    try:
        for row in connection.execute(query):
            where = ", ".join([table.name, *(str(row._mapping[key]) for key in keys)])
            try:
                read(row, where)
            except DamagedRow as error:
                yield DamagedRow(where, error.problem)
    except (DBAPIError, UnicodeDecodeError) as error:  # a column that is not even text
        yield DamagedRow(table.name, f"the table cannot be read to its end: {error}")


def _parse_body(model: type[BaseModel], row: Row[tuple[object, ...]], where: str) -> None:
    parse(model, row.body, where)


def _unpack(row: Row[tuple[object, ...]], where: str) -> None:
    try:
        raw = zlib.decompressobj().decompress(row.body, row.size + 1)
    except zlib.error as error:
        raise DamagedRow(where, f"its text cannot be unpacked: {error}") from None
    if hashlib.sha256(raw).hexdigest() != row.digest:
        raise DamagedRow(where, "its text differs from the one stored under this digest")
