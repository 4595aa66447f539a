"""What nodes measured, and what their fleet taught."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("versions", sa.String(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name=op.f("fk_samples_node_nodes")),
        sa.PrimaryKeyConstraint("node", "versions", name=op.f("pk_samples")),
    )
    op.create_index(
        "ix_samples_cohort", "samples", ["profile", "versions", "taken_at"], unique=False
    )
    op.create_table(
        "baselines",
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("learned_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("profile", "metric", name=op.f("pk_baselines")),
    )
