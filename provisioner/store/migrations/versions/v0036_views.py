"""Addresses of the console that people keep under names."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision: str | None = "0035"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "saved_views",
        sa.Column("side", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("shared", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("side", "owner", "name", name="pk_saved_views"),
    )
