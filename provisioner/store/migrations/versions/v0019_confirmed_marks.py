"""On which timeline of the server each daemon last said that its writes are all there, and when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision: str | None = "0018"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    for name, kind in (("timeline", sa.Integer()), ("seen_at", sa.Double())):
        op.add_column("marks", sa.Column(name, kind, nullable=False, server_default="0"))
