"""Makes the schema of a new database, and brings an older one up to date in one transaction.

The rule that a reader would otherwise break: an older database is migrated only where the caller
gives a way to copy it first. Commands that read give none, and are refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from provisioner.model.input_error import InputError

MIGRATIONS = Path(__file__).parents[1] / "migrations"
NEWEST = Path(__file__).parents[1] / "schema" / "newest.sql"
# of schemas before 0022, whose journal was never pruned
_FORMER_TRIGGER = (
    "CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal "
    "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
)
# PostgreSQL shows a trigger's text in its own words, so that its name and table are compared
_SERVER_TRIGGERS = frozenset(
    {
        ("trigger", "journal_no_update", "journal"),
        ("trigger", "journal_no_delete", "journal"),
        ("trigger", "journal_no_truncate", "journal"),
        ("trigger", "number_change_of_node", "nodes"),
    }
)
_SERVER_OBJECTS = text(
    "SELECT 'trigger', t.tgname::text, c.relname::text FROM pg_trigger t "
    "JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal "
    "AND c.relnamespace = current_schema()::regnamespace "
    "UNION ALL SELECT 'event trigger', evtname::text, '' FROM pg_event_trigger "
    "UNION ALL SELECT CASE c.relkind WHEN 'f' THEN 'foreign table' ELSE 'view' END, "
    "c.relname::text, '' FROM pg_class c WHERE c.relkind IN ('v', 'm', 'f') "
    "AND c.relnamespace = current_schema()::regnamespace "
    "UNION ALL SELECT 'rule', r.rulename::text, c.relname::text FROM pg_rewrite r "
    "JOIN pg_class c ON c.oid = r.ev_class WHERE r.rulename <> '_RETURN' "
    "AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2, 3"
)

# Makes a copy of the database, which is of the given revision, and returns where the copy is.
Copier = Callable[[str], object]


def prepare_schema(engine: Engine, source: str, copy_first: Copier | None) -> None:
    """Leave the database with the schema of this version: made, already there, or migrated.

    Raises `InputError` if the database is of something else or of a newer version, or if it is of
    an older one and `copy_first` is None.
    """
    with engine.connect() as connection, connection.begin():
        current = _check_revision(connection, source)
    if current == revisions()[-1]:
        return
    if current is not None:
        if copy_first is None:
            raise _outdated(source, current)
        # Outside of the transaction: a large copy takes minutes, and a server ends idle ones.
        copy_first(current)
    migrate(engine, source)


def check_schema(connection: Connection, source: str) -> None:
    """Raise `InputError` unless the database has exactly the schema of this version."""
    current = _check_revision(connection, source)
    if current != revisions()[-1]:
        raise _outdated(source, current)


def refuse_unknown_objects(connection: Connection, source: str) -> None:
    """Raise `InputError` for a trigger, view, virtual table or rule that no version of ours made.

    Such an object runs within our own statements: a trigger that somebody planted in a database
    that is restored would act each time that a row is written.
    """
    if connection.dialect.name == "postgresql":
        rows = {(row[0], row[1], row[2]) for row in connection.execute(_SERVER_OBJECTS)}
        unknown = sorted(f"{kind} {name}" for kind, name, of in rows - _SERVER_TRIGGERS)
    else:
        listed = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
        unknown = sorted(
            f"{kind} {name}" for kind, name, sql in listed if _is_strange(kind, str(sql or ""))
        )
    if unknown:
        named = ", ".join(name[:80] for name in unknown[:5])
        problem = f"has objects that no version of this program made: {named}"
        remedy = (
            "Somebody else put them there. Find out who; restore a backup from before, or remove "
            "them with the database's own client if they are yours."
        )
        raise InputError(source, "", problem, remedy)


def _is_strange(kind: str, sql: str) -> bool:
    words = " ".join(sql.split())
    if kind == "table":
        return words.upper().startswith("CREATE VIRTUAL")
    return kind != "index" and words not in _known_triggers()


@cache
def _known_triggers() -> frozenset[str]:
    """Return the texts of our triggers, in an SQLite file of any of our schemas."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(NEWEST.read_text())
        made = empty.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return frozenset({" ".join(sql.split()) for (sql,) in made} | {_FORMER_TRIGGER})


def _outdated(source: str, current: str | None) -> InputError:
    return InputError(
        source,
        f"schema {current or 'none'}",
        f"is older than the schema of this version ({revisions()[-1]})",
        "Run `provisioner db upgrade`, or start the daemon: each copies it, then migrates.",
    )


def migrate(engine: Engine, source: str, *, revision: str = "head") -> None:
    """Run the missing migrations up to `revision`; a cut-off migration leaves the old schema.

    Raises `InputError` if the database belongs to another program or has an unsupported version.
    """
    with engine.connect() as connection, connection.begin():
        target = revisions()[-1] if revision == "head" else revision
        if _check_revision(connection, source) == target:
            return
        _upgrade(connection, revision)


def revisions() -> tuple[str, ...]:
    """Return every revision, oldest first: the numbers in the names of the migrations' modules."""
    return tuple(sorted(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v*.py")))


def _check_revision(connection: Connection, source: str) -> str | None:
    """Return the revision of a database that we know; None for an empty one."""
    supported = revisions()
    refuse_unknown_objects(connection, source)
    tables = inspect(connection).get_table_names()
    current = None
    if "alembic_version" in tables:
        current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if current is None and tables:
        raise InputError(
            source, "", "is a database of something else", "Name a new file, or the right one."
        )
    if current is not None and current not in supported:
        raise InputError(
            source,
            f"schema {current}",
            f"was written by a newer version than this one (schema {supported[-1]})",
            "Run the newer version, or restore the backup from before its start.",
        )
    return current


def _upgrade(connection: Connection, revision: str) -> None:
    # Imported here: Alembic costs every start a tenth of a second, and few have to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
