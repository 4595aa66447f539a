"""The first schema that anybody can have installed.

Its number is the last of thirty-one that were never released: databases of our own that had all of
them are of this very schema, and a program from before refuses or opens one as it should.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0031"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

TABLES = Path(__file__).with_suffix(".sql")
SQLITE_TYPES = {"SERIAL": "INTEGER", "DOUBLE PRECISION": "DOUBLE", "BYTEA": "BLOB"}

# Let the database itself refuse to change the journal. The hash chain reveals changes to the file
# by others; this stops our own mistakes. Rows that were archived may go. And each change of a node
# has a number, by which daemons find it: given here where the writer gave none. A migration that
# builds one of these tables anew makes its triggers again.
REFUSED = "the journal is append-only"
PRUNING = "COALESCE((SELECT pruning FROM journal_base), 0)"
NUMBER = "(SELECT coalesce(max(changed), 0) + 1 FROM nodes)"
RAISE = f"RAISE EXCEPTION '{REFUSED}' USING ERRCODE = 'integrity_constraint_violation'"
POSTGRESQL = (
    (
        "CREATE FUNCTION journal_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN {RAISE}; END $$"
    ),
    (
        "CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal "
        "FOR EACH STATEMENT EXECUTE FUNCTION journal_is_append_only()"
    ),
    (
        "CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON journal "
        "FOR EACH STATEMENT EXECUTE FUNCTION journal_is_append_only()"
    ),
    (
        "CREATE FUNCTION journal_is_archived_first() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF OLD.seq <= {PRUNING} THEN RETURN OLD; END IF; {RAISE}; END $$"
    ),
    (
        "CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal "
        "FOR EACH ROW EXECUTE FUNCTION journal_is_archived_first()"
    ),
    f"""
    CREATE FUNCTION number_change_of_node() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            IF NEW.changed = 0 THEN
                NEW.changed := {NUMBER};
            END IF;
        ELSIF NEW.changed = OLD.changed THEN
            NEW.changed := {NUMBER};
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER number_change_of_node BEFORE INSERT OR UPDATE ON nodes
    FOR EACH ROW EXECUTE FUNCTION number_change_of_node()
    """,
)
SQLITE = (
    (
        "CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
    ),
    (
        f"CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal WHEN OLD.seq > {PRUNING} "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
    ),
    f"""
    CREATE TRIGGER number_new_node AFTER INSERT ON nodes WHEN NEW.changed = 0
    BEGIN
        UPDATE nodes SET changed = {NUMBER}
        WHERE id = NEW.id;
    END
    """,  # noqa: S608 (our own words)
    f"""
    CREATE TRIGGER number_change_of_node AFTER UPDATE ON nodes WHEN NEW.changed = OLD.changed
    BEGIN
        UPDATE nodes SET changed = {NUMBER}
        WHERE id = NEW.id;
    END
    """,  # noqa: S608 (our own words)
)


def upgrade() -> None:
    tables = TABLES.read_text(encoding="utf-8")
    sqlite = op.get_bind().dialect.name == "sqlite"
    if sqlite:
        for word, spelled in SQLITE_TYPES.items():
            tables = tables.replace(word, spelled)
    for statement in (*tables.split(";\n")[:-1], *(SQLITE if sqlite else POSTGRESQL)):
        op.get_bind().exec_driver_sql(statement)
