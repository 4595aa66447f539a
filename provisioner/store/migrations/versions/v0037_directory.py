"""People and groups of a directory outside (SCIM), and the names of people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision: str | None = "0036"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.create_table(
        "directory_entries",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("standing", sa.String, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_directory_entries"),
    )
    op.create_table(
        "directory_names",
        sa.Column("name", sa.String, nullable=False),
        sa.Column("entry", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("name", "entry", name="pk_directory_names"),
    )
    op.create_index("ix_directory_names_entry", "directory_names", ["entry"])
