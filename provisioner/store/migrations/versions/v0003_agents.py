"""Maintenance agents: one row for each node that booted the ramdisk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name=op.f("fk_agents_node")),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_agents")),
    )
