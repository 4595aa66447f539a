"""The evidence log: its entries, the hashes of its tree, and the journal's place.

The entries are made from the journal by the leading daemon, from the journal's first live row on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision: str | None = "0033"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "log_entries",
        sa.Column("place", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("leaf", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_log_entries"),
    )
    op.create_index("ix_log_entries_node", "log_entries", ["node"])
    op.create_table(
        "log_hashes",
        sa.Column("level", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("level", "place", name="pk_log_hashes"),
    )
    op.create_table(
        "log_place",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("through", sa.Integer, nullable=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("salt", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_log_place"),
    )
