"""Who had each node, and why: spans that are closed, those that go on, and the journal's place.

The rows are folded from the journal by the leading daemon, from the journal's first live row on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision: str | None = "0032"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "usage_spans",
        sa.Column("node", sa.String, nullable=False),
        sa.Column("begins_at", sa.Double, nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("cause", sa.String, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("node", "begins_at", name="pk_usage_spans"),
    )
    op.create_index("ix_usage_spans_ends_at", "usage_spans", ["ends_at"])
    op.create_table(
        "usage_open",
        sa.Column("node", sa.String, nullable=False),
        sa.Column("begins_at", sa.Double, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("cause", sa.String, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("standing", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_usage_open"),
    )
    op.create_table(
        "usage_place",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("through", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_place"),
    )
