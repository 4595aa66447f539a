"""Events of BMCs that were taken in, so that a replay of them reopens no alert."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision: str | None = "0015"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "received_events",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("bmc", sa.String(), nullable=False),
        sa.Column("identities", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.id"], name=op.f("fk_received_events_node_nodes")),
        sa.PrimaryKeyConstraint("node", "bmc", name=op.f("pk_received_events")),
    )
