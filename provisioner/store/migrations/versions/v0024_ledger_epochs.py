"""Which epoch of an operation began an action of the ledger, and which settled it.

Rows of an older version have neither: by which driver they were settled is not known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision: str | None = "0023"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    for name in ("epoch", "settled_epoch"):
        op.add_column("ledger", sa.Column(name, sa.Integer(), nullable=True))
