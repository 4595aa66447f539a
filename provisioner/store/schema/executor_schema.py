"""The table of daemons that share a database; see `seat.py` for what keeps a row true."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

executors = Table(
    "executors",
    metadata,
    Column("number", Integer, primary_key=True),  # of its advisory lock
    Column("id", String, nullable=False, unique=True),
    Column("host", String, nullable=False),
    Column("version", String, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("died_at", Double, nullable=False),  # 0: not observed dead
    # JSON: its parts, as digests; "{}": of a version without them
    Column("digests", Text, nullable=False, server_default="{}"),
    # until when daemons that work by something else are allowed beside it; 0: not at all
    Column("change_until", Double, nullable=False, server_default="0"),
)
