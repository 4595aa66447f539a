"""Which versions each node ran from when on, from the inventories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision: str | None = "0034"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "version_spans",
        sa.Column("node", sa.String, nullable=False),
        sa.Column("begins_at", sa.Double, nullable=False),
        sa.Column("versions", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("node", "begins_at", name="pk_version_spans"),
    )
    op.execute(
        "INSERT INTO version_spans (node, begins_at, versions)"
        " SELECT n.node, i.seen_at, n.versions FROM node_versions n"
        " JOIN inventories i ON i.id = n.inventory"
    )
