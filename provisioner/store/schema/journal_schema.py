"""The tables of the journal's archived and removed rows; see `schema.py` for the rules."""

from __future__ import annotations

from sqlalchemy import Column, Integer, String, Table, Text

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
