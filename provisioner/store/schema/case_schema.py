"""The table of repair cases; see `schema.py` for the rules. Notices are `campaign_schema`'s."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, String, Table, Text, text

from provisioner.store.schema.schema import metadata

cases = Table(
    "cases",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, ForeignKey("nodes.id"), nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double, nullable=False, index=True),  # 0: it is open
    Column("body", Text, nullable=False),
)
# one open case per node, regardless of its opener; of PostgreSQL: its migration
Index(
    "one_open_case",
    cases.c.node,
    unique=True,
    sqlite_where=text("closed_at = 0"),
)
