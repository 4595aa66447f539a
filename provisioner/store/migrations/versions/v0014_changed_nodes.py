"""A number for each change of a node, by which a daemon reads only new changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("changed", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_nodes_changed", "nodes", ["changed"])
