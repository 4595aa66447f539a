"""How many restores were settled, which leaves' port descriptions are compared with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision: str | None = "0022"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.add_column("site_state", sa.Column("life", sa.Integer(), nullable=False, server_default="0"))
