"""The tables of the journal's archived, removed and exported rows; see `schema.py`."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

journal_base = Table(
    "journal_base",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one row, or none
    Column("through", Integer, nullable=False),  # the last row that was archived and pruned
    Column("head", String, nullable=False),  # its digest: the chain goes on from here
    Column("envelope", Text, nullable=False),  # all of it, signed
    # rows up to here may be deleted; not 0 within a prune's transaction only
    Column("pruning", Integer, nullable=False),
)
# rows up to `through` that are still needed, with the digest of the row before each
journal_links = Table(
    "journal_links",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("previous", String, nullable=False),
)
# receivers of the exported journal, and how far each has taken it
audit_exports = Table(
    "audit_exports",
    metadata,
    Column("receiver", String, primary_key=True),
    Column("position", Integer, nullable=False),  # the last row that it has taken
    Column("rejected", Integer, nullable=False),  # rows that it has refused for good
    Column("taken_at", Double, nullable=False),
    Column("failing_since", Double, nullable=False),  # 0: the last try went well
    Column("error", Text, nullable=False),
)
