"""Policies of campaigns that people keep under a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision: str | None = "0028"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "campaign_policies",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_campaign_policies")),
    )
