"""A signing key can be withdrawn: its signatures are no longer valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Add the column; it is nullable, so that existing keys stay valid."""
    op.add_column("signing_keys", sa.Column("withdrawn_at", sa.Double(), nullable=True))
