"""The tables of the evidence log; see `schema.py` for the rules.

`planning/certification/evidence_log.py` says what they hold. No row of them is ever changed but
the place.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, LargeBinary, String, Table, Text

from provisioner.store.schema.schema import metadata

log_entries = Table(
    "log_entries",
    metadata,
    Column("place", Integer, primary_key=True, autoincrement=False),  # from 0, without a gap
    Column("node", String, nullable=False, index=True),
    Column("leaf", Text, nullable=False),  # canonical JSON
)

# the hashes of complete subtrees: level 0 has the leaves, each level half as many
log_hashes = Table(
    "log_hashes",
    metadata,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

log_place = Table(
    "log_place",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("through", Integer, nullable=False),  # number of the journal's last row that is in it
    Column("origin", String, nullable=False),  # the log's name in its checkpoints
    Column("salt", String, nullable=False),  # salts the names of tenants; opens nothing
)
