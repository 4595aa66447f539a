"""The tables of the ledger of time, and of saved views; see `schema.py` for the rules.

`planning/lifecycle/usage.py` folds the journal into those of the ledger.
"""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

usage_spans = Table(
    "usage_spans",
    metadata,
    Column("node", String, primary_key=True),
    Column("begins_at", Double, primary_key=True),
    Column("ends_at", Double, nullable=False, index=True),
    Column("owner", String, nullable=False),
    Column("cause", String, nullable=False),
    Column("what", Text, nullable=False),
)

usage_open = Table(
    "usage_open",
    metadata,
    Column("node", String, primary_key=True),
    Column("begins_at", Double, nullable=False),
    Column("owner", String, nullable=False),
    Column("cause", String, nullable=False),
    Column("what", Text, nullable=False),
    Column("standing", Text, nullable=False),
)

# which versions each node ran from when on, as far as inventories were read
version_spans = Table(
    "version_spans",
    metadata,
    Column("node", String, primary_key=True),
    Column("begins_at", Double, primary_key=True),
    Column("versions", String, nullable=False),  # digest of the set
)

usage_place = Table(
    "usage_place",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("through", Integer, nullable=False),  # number of the journal's last row that is folded
)

saved_views = Table(
    "saved_views",
    metadata,
    Column("side", String, primary_key=True),  # the tenant whose people see it; "": the staff
    Column("owner", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("shared", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
