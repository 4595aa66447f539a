"""Opens the database file: private, in WAL mode, whole, and of a supported version.

Every statement above this module is SQLAlchemy Core that PostgreSQL takes too; SQLite's own parts
(pragmas, BEGIN, the file) are here and nowhere else, as PostgreSQL's are in `postgres.py`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, StaticPool

from provisioner.model.input_error import InputError
from provisioner.store.database.data_directory import (
    check_private,
    prepare_directory,
    write_private,
)
from provisioner.store.database.migrating import Copier, check_schema, prepare_schema

MEMORY = ":memory:"
# What all migrations together make: a new database without Alembic, its 130 modules and 14 MB.
NEWEST = Path(__file__).parents[1] / "schema" / "newest.sql"

# A backup or a person's sqlite3 shell may hold the file for a moment; longer is a mistake.
BUSY_TIMEOUT_MS = 5000
READING = (
    "query_only = ON",
    "trusted_schema = OFF",  # a doctored file gets no functions to call
)
WRITING = (
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit survives loss of power, not only of the process
    "foreign_keys = ON",
    "trusted_schema = OFF",
)


def open_database(path: str | Path, copy_first: Copier | None = None) -> Engine:
    """Return an engine on a checked database of this version's schema; made if there is none.

    Raises `InputError` if the file cannot be used: no permission, open to others, not a database,
    damaged, not ours, written by a newer version, or by an older one where `copy_first` is None.
    """
    if str(path) == MEMORY:
        engine = _engine("sqlite://", StaticPool)
        with engine.connect() as connection:
            _empty().backup(_bare(connection))
        return engine
    file = Path(path)
    _prepare_file(file)
    engine = _engine(f"sqlite:///{file}", NullPool)
    try:
        _check_whole(engine, file)
        if not _copy_schema(engine):
            prepare_schema(engine, str(file), copy_first)
    except DBAPIError as error:
        engine.dispose()
        raise _refused(file, str(error.orig)) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_reading(file: Path) -> Engine:
    """Return an engine that only reads a database of this version's schema.

    Raises `InputError` if the file cannot be read, or is of another version: it is not migrated.
    """
    if not file.is_file():
        raise _unusable(file, "there is no such file")
    address = quote(str(file.absolute()))
    engine = _engine(f"sqlite:///file:{address}?mode=ro&uri=true", NullPool, READING)
    try:
        with read_connection(engine)() as connection, connection.begin():
            check_schema(connection, str(file))
    except DBAPIError as error:
        engine.dispose()
        raise _refused(file, str(error.orig)) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _copy_schema(engine: Engine) -> bool:
    """Write the newest schema into a database that is empty; return False if it is not.

    Both in one transaction that holds the write lock: another process may open the same file.
    """
    with write_connection(engine)() as connection, connection.begin():
        if connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").scalar_one():
            return False
        for statement in _split_statements(NEWEST.read_text(encoding="utf-8")):
            connection.exec_driver_sql(statement)
    return True


def _split_statements(text: str) -> list[str]:
    """Return the statements of a script; a trigger has semicolons within."""
    statements = list[str]()
    lines = list[str]()
    for line in text.splitlines():
        lines.append(line)
        if sqlite3.complete_statement("\n".join(lines)):
            statements.append("\n".join(lines))
            lines.clear()
    assert not lines, "the script ends within a statement"
    return statements


@cache
def _empty() -> sqlite3.Connection:
    """Return an empty database of the newest schema, to copy."""
    engine = _engine("sqlite://", StaticPool)
    assert _copy_schema(engine), "it was just made"
    return _bare(engine.connect())


def _bare(connection: Connection) -> sqlite3.Connection:
    bare = connection.connection.driver_connection
    assert isinstance(bare, sqlite3.Connection)
    return bare


def directory_of(engine: Engine) -> Path | None:
    """Return where the database's file is; None for one in memory, or on a server."""
    file = file_of(engine)
    return None if file is None else file.parent


def file_of(engine: Engine) -> Path | None:
    """Return the database's file; None for one in memory, or on a server."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    return Path(file) if file else None


def write_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of the one connection that writes: it takes the write lock at BEGIN, not
    halfway.
    """
    return lambda: engine.connect().execution_options(provisioner_begin="BEGIN IMMEDIATE")


def read_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of connections that read a snapshot and wait for no writer (WAL)."""
    return lambda: engine.connect().execution_options(provisioner_begin="BEGIN")


def _engine(
    url: str, pool: type[NullPool] | type[StaticPool], pragmas: Sequence[str] = ()
) -> Engine:
    # A connection is made in one thread and used in another, but never in two at a time: a lane.
    engine = create_engine(url, poolclass=pool, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # The sqlite3 module begins and commits on its own terms by default; savepoints need ours
        # (SQLAlchemy, "SQLite: enabling non-legacy transactional modes").
        connection.isolation_level = None
        for pragma in (*(pragmas or WRITING), f"busy_timeout = {BUSY_TIMEOUT_MS}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # past SQLAlchemy, which takes twenty times as long for it as SQLite
        statement = connection.get_execution_options().get("provisioner_begin", "BEGIN IMMEDIATE")
        try:
            _bare(connection).execute(statement)
        except sqlite3.Error as error:
            raise OperationalError(statement, None, error) from error

    return engine


def _prepare_file(file: Path) -> None:
    """Make the file with 0600 before SQLite would make it with the umask's mode.

    SQLite gives the write-ahead log the mode of the database file.
    """
    prepare_directory(file.parent)
    try:
        if file.exists():
            if not file.is_file():
                raise _unusable(file, "it is not a file")
            check_private(file)
            _refuse_links(file)
            if not os.access(file, os.R_OK | os.W_OK):
                raise _unusable(file, "no permission to read and write it")
        else:
            write_private(file, b"")
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None


def _refuse_links(file: Path) -> None:
    """Refuse a file with several names: SQLite keeps the log of each beside it, and both would rot.

    sqlite.org/howtocorrupt.html section 2.4.
    """
    names = file.stat().st_nlink
    if names > 1:
        remedy = f"Delete the other names, or make a copy (`find / -xdev -samefile {file}`)."
        problem = f"it has {names} names (hard links), and SQLite keeps a log beside each of them"
        raise InputError(str(file), "", problem, remedy)


def _check_whole(engine: Engine, file: Path) -> None:
    """Refuse a damaged file at the start rather than act on half a truth later."""
    with engine.connect() as connection:
        answer = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        connection.rollback()
    if answer != "ok":
        raise _unusable(file, f"it is damaged: {answer}")


def _refused(file: Path, said: str) -> InputError:
    """Return what SQLite's own refusal means for a person."""
    if "locked" in said or "busy" in said:
        remedy = f"Wait until it is done (`fuser -v {file}` names it), then try again."
        problem = "another process is writing to the database; nothing is wrong with it"
        return InputError(str(file), "", problem, remedy)
    return _unusable(file, said)


def _unusable(file: Path, problem: str) -> InputError:
    remedy = "Check disk space, owner and mode; if it is damaged, restore it from a backup."
    return InputError(str(file), "", f"the database cannot be used: {problem}", remedy)
