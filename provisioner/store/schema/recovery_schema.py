"""Tables by which a database that lost writes is noticed; `high_water.py` keeps them true."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, String, Table, Text

from provisioner.store.schema.schema import metadata

site_state = Table(
    "site_state",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one row
    Column("site", String, nullable=False),  # the database's identity, made with it
    Column("server", String, nullable=False),  # PostgreSQL's identity; "" for a file
    Column("timeline", Integer, nullable=False),
    Column("look_only", Text, nullable=False),  # why nothing is written; "": it is
    Column("surveyed_at", Double, nullable=False),  # when rows and world were compared last; 0
    # restores that were settled; leaves' port descriptions name it
    Column("life", Integer, nullable=False, server_default="0"),
)
marks = Table(
    "marks",
    metadata,
    Column("place", String, primary_key=True),  # of a data directory
    Column("count", Integer, nullable=False),  # transactions of its daemons
    # PostgreSQL's, on which its daemon last found all of its writes
    Column("timeline", Integer, nullable=False, server_default="0"),
    Column("seen_at", Double, nullable=False, server_default="0"),  # its last transaction
)
differences = Table(
    "differences",
    metadata,
    Column("subject", String, primary_key=True),
    Column("settled", String, nullable=False),  # a `Word`; "" while it waits for one
    Column("body", Text, nullable=False),
)
