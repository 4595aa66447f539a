"""Tests among nodes: sessions, and the newest outcome of each node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "fabric_sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fabric_sessions")),
    )
    op.create_index(
        op.f("ix_fabric_sessions_ended_at"), "fabric_sessions", ["ended_at"], unique=False
    )
    op.create_table(
        "fabric_outcomes",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name=op.f("fk_fabric_outcomes_node_nodes")),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_fabric_outcomes")),
    )
