"""The newest samples of a profile without sorting all of it: a campaign's turn asks for them."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_index("ix_samples_newest", "samples", ["profile", "taken_at"])
