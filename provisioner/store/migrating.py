"""Brings a database to the schema of this version, in one transaction, when it is opened."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect

from provisioner.model.input_error import InputError

MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(engine: Engine, source: str, *, revision: str = "head") -> None:
    """Run what is missing up to `revision`; a cut-off migration leaves the old schema.

    Raises `InputError` if the database is somebody else's or of a version that we do not know.
    """
    with engine.connect() as connection, connection.begin():
        if _is_current(connection, source, revision):
            return
        command.upgrade(_config(connection), revision)


def revisions() -> tuple[str, ...]:
    """Every revision, oldest first."""
    script = ScriptDirectory(str(MIGRATIONS))
    return tuple(reversed([step.revision for step in script.walk_revisions()]))


def _is_current(connection: Connection, source: str, revision: str) -> bool:
    known = revisions()
    current = MigrationContext.configure(connection).get_current_revision()
    if current is None and inspect(connection).get_table_names():
        raise InputError(
            source, "", "is a database of something else", "Name a new file, or the right one."
        )
    if current is not None and current not in known:
        raise InputError(
            source,
            f"schema {current}",
            f"was written by a newer version than this one (schema {known[-1]})",
            "Run the newer version, or restore the backup from before its start.",
        )
    return current == (known[-1] if revision == "head" else revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
