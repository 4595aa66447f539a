"""The table of the capabilities that people granted over adopted nodes."""

from __future__ import annotations

from sqlalchemy import Column, String, Table, Text

from provisioner.store.schema.schema import metadata

grants = Table(
    "grants",
    metadata,
    Column("key", String, primary_key=True),  # "scope:name:capability"
    Column("body", Text, nullable=False),
)
