"""The database's identity, each daemon's count of writes, and the differences after a restore."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision: str | None = "0017"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "site_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("timeline", sa.Integer(), nullable=False),
        sa.Column("look_only", sa.Text(), nullable=False),
        sa.Column("surveyed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_site_state")),
    )
    op.create_table(
        "marks",
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_marks")),
    )
    op.create_table(
        "differences",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("settled", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_differences")),
    )
