"""The age of each login, and the events that demand its change.

Logins of an older version have no age: when they were last changed is not known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision: str | None = "0024"
branch_labels: str | None = None
depends_on: str | None = None

TABLE = "credential_standings"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("urgency", sa.Integer(), nullable=False),
        sa.Column("shown_to", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Double(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_credential_standings")),
    )
    op.create_index(op.f("ix_credential_standings_node"), TABLE, ["node"])
    op.create_index("ix_credential_standings_due", TABLE, ["urgency", "due_at", "name"])
    op.create_index("ix_credential_standings_age", TABLE, ["changed_at", "name"])
