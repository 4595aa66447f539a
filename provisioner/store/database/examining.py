"""The state of a database file, read without changing it: whole or not, and of which schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from provisioner.model.base import Record
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.migrating import revisions
from provisioner.store.database.row_check import damaged_rows

ROWS_MAX = 100  # damaged rows that are named


class DatabaseLook(Record):
    """`problem` is empty for a whole file. `behind`: migrations that the next start will run."""

    revision: str = ""
    behind: int = 0
    problem: str = ""


def find_damaged(file: Path) -> tuple[DamagedRow, ...]:
    """Read every row, as the daemon would, and return the first ROWS_MAX that it could not."""
    engine = create_engine(
        f"sqlite:///file:{quote(str(file))}?mode=ro&uri=true", poolclass=NullPool
    )
    try:
        with engine.connect() as connection:
            return tuple(islice(damaged_rows(connection), ROWS_MAX))
    finally:
        engine.dispose()


def look(file: Path) -> DatabaseLook:
    """Read the file's schema and check its pages; blocks while it does."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            whole = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        return DatabaseLook(problem=str(error))
    if whole != "ok":
        return DatabaseLook(problem=f"it is damaged: {whole}")
    revisions_here = revisions()
    revision = str(row[0]) if row else ""
    if revision not in revisions_here:
        problem = (
            f"schema {revision!r} is of a newer version than this program ({revisions_here[-1]})"
        )
        return DatabaseLook(revision=revision, problem=problem)
    return DatabaseLook(
        revision=revision, behind=len(revisions_here) - 1 - revisions_here.index(revision)
    )
