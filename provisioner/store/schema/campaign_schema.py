"""The tables of campaigns: themselves, their nodes, pins, policies, images, and notices."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

campaigns = Table(
    "campaigns",
    metadata,
    Column("id", String, primary_key=True),
    Column("state", String, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("body", Text, nullable=False),
)

campaign_nodes = Table(
    "campaign_nodes",
    metadata,
    Column("campaign", String, ForeignKey("campaigns.id"), primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), primary_key=True),
    Column("state", String, nullable=False),
    Column("body", Text, nullable=False),
)

release_pins = Table(
    "release_pins",
    metadata,
    Column("key", String, primary_key=True),  # "node:su0-n00", "rack:su0-rack0", "fleet:"
    Column("body", Text, nullable=False),
)

campaign_policies = Table(
    "campaign_policies",
    metadata,
    Column("name", String, primary_key=True),
    Column("body", Text, nullable=False),
)

stored_images = Table(
    "stored_images",
    metadata,
    Column("name", String, primary_key=True),
    Column("body", Text, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False, index=True),
    Column("node", String, nullable=False),
    Column("at", Double, nullable=False),
    Column("sent_at", Double, nullable=False, index=True),  # 0: not sent yet
    Column("body", Text, nullable=False),
)
