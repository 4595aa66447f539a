"""Where the journal begins after rows were archived and removed, and a guard that lets them go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision: str | None = "0021"
branch_labels: str | None = None
depends_on: str | None = None

PRUNING = "COALESCE((SELECT pruning FROM journal_base), 0)"


def upgrade() -> None:
    op.create_table(
        "journal_base",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("through", sa.Integer(), nullable=False),
        sa.Column("head", sa.String(), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False),
        sa.Column("pruning", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_base")),
    )
    op.create_table(
        "journal_links",
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("previous", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_journal_links")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER journal_no_delete ON journal")
        op.execute(
            "CREATE FUNCTION journal_is_archived_first() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN IF OLD.seq <= {PRUNING} THEN RETURN OLD; END IF; "
            "RAISE EXCEPTION 'the journal is append-only' "
            "USING ERRCODE = 'integrity_constraint_violation'; END $$"
        )
        op.execute(
            "CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal "
            "FOR EACH ROW EXECUTE FUNCTION journal_is_archived_first()"
        )
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER journal_no_delete")
        op.execute(
            "CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal "
            f"WHEN OLD.seq > {PRUNING} "
            "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
        )
