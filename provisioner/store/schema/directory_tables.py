"""The tables of people and groups that a directory outside tells of; see `schema.py`."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

directory_entries = Table(
    "directory_entries",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),  # lower case
    Column("standing", String, nullable=False),
    Column("made_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("body", Text, nullable=False),
)

# names by which a person may come; several people may share an address
directory_names = Table(
    "directory_names",
    metadata,
    Column("name", String, primary_key=True),  # lower case
    Column("entry", String, primary_key=True, index=True),
)
