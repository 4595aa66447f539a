"""What each daemon states of its reach, so that one that reaches less gives its work away."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision: str | None = "0030"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    column = sa.Column("standing", sa.Text(), nullable=False, server_default="")
    op.add_column("executors", column)
