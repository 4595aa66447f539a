"""Cases of repair, one open for each node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "cases",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name=op.f("fk_cases_node_nodes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cases")),
    )
    op.create_index(op.f("ix_cases_node"), "cases", ["node"], unique=False)
    op.create_index(op.f("ix_cases_closed_at"), "cases", ["closed_at"], unique=False)
    op.create_index(
        "one_open_case",
        "cases",
        ["node"],
        unique=True,
        sqlite_where=sa.text("closed_at = 0"),
        postgresql_where=sa.text("closed_at = 0"),
    )
