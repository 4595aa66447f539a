"""The tables of webhooks; see `schema.py` for the rules. Events themselves are the journal's."""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

webhooks = Table(
    "webhooks",
    metadata,
    Column("name", String, primary_key=True),
    Column("position", Integer, nullable=False),  # number of the last row that was looked at
    Column("delivered", Integer, nullable=False),
    Column("delivered_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("webhook", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("node", String, nullable=False),
    Column("state", String, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Double, nullable=False),
    Column("error", Text, nullable=False),
    Index("ix_webhook_deliveries_order", "webhook", "state", "node", "seq"),
)
