"""Makes the schema of a new database, and brings an older one up to date in one transaction.

The rule that a reader would otherwise break: an older database is migrated only where the caller
gives a way to copy it first. Commands that read give none, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect

from provisioner.model.input_error import InputError

MIGRATIONS = Path(__file__).parents[1] / "migrations"

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
