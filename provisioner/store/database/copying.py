"""Copies a whole database while others write it: a file by SQLite, a server's by pg_dump.

A copy holds sealed passwords and the truth about every node, so it is made with mode 0600 and is
never written over an existing file.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL

from provisioner.model.input_error import InputError
from provisioner.store.database.data_directory import (
    prepare_directory,
    sync_directory,
    write_private,
)
from provisioner.store.database.migrating import Copier
from provisioner.store.database.postgres import is_postgres, postgres_url, shown

# pg_dump of a large site takes minutes. After this long it waits for a lock that does not end.
DUMP_TIMEOUT_S = 3600
COPIES_MAX = 1000  # of one revision in one directory: more is a start that fails again and again


def copier(database: str, directory: Path) -> Copier:
    """Return the step before a migration for `open_store`: a copy in `directory`, named by its
    schema.
    """

    def copy(revision: str) -> Path:
        prepare_directory(directory)
        if is_postgres(database):
            target = _free_name(directory, f"provisioner-schema-{revision}", ".dump")
            dump_server(database, target)
        else:
            source = Path(database)
            target = _free_name(directory, f"{source.name}.schema-{revision}", "")
            copy_file(source, target)
        return target

    return copy


def copy_file(source: Path, target: Path) -> None:
    """Copy one consistent state of an SQLite database to a new file. Raises `InputError`."""
    try:
        write_private(target, b"")
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
        _sync(target)
    except (OSError, sqlite3.Error) as error:
        if not isinstance(error, FileExistsError):  # half a copy would be taken for a whole one
            target.unlink(missing_ok=True)
        raise _not_copied(str(target), str(error)) from None


def dump_server(database: str, target: Path, snapshot: str = "") -> None:
    """Write a PostgreSQL database to a new file in pg_dump's custom format.

    DBOS's schema is left out: it is a queue that daemons fill again. `snapshot` names an exported
    one, so that the dump is the very state that its caller reads. Raises `InputError`.
    """
    url = postgres_url(database)
    try:
        write_private(target, b"")
    except OSError as error:
        raise _not_copied(str(target), error.strerror or str(error)) from None
    arguments = ["pg_dump", "--format=custom", "--exclude-schema=dbos", f"--file={target}"]
    arguments += [f"--snapshot={snapshot}"] if snapshot else []
    try:
        _run_client([*arguments, f"--dbname={_address(url)}"], url, "be copied")
    except BaseException:
        target.unlink()
        raise
    _sync(target)


def load_dump(dump: Path, database: str) -> None:
    """Restore a dump into an empty PostgreSQL database, all or nothing. Raises `InputError`."""
    url = postgres_url(database)
    arguments = ["pg_restore", "--exit-on-error", "--single-transaction", "--no-owner"]
    _run_client([*arguments, f"--dbname={_address(url)}", str(dump)], url, "be restored")


def _run_client(words: list[str], url: URL, purpose: str) -> None:
    """Run one of PostgreSQL's own programs; the password goes by the environment, never argv."""
    password = {} if url.password is None else {"PGPASSWORD": str(url.password)}
    try:
        ended = subprocess.run(  # noqa: S603 (PostgreSQL's own programs, no shell)
            [words[0], "--no-password", *words[1:]],
            env={**os.environ, **password},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DUMP_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise InputError(
            shown(url),
            "",
            f"the database cannot {purpose}: {words[0]} is not installed",
            "Install PostgreSQL's client programs (Debian: postgresql-client).",
        ) from None
    except subprocess.TimeoutExpired:
        raise _failed(url, purpose, f"{words[0]} took longer than {DUMP_TIMEOUT_S} s") from None
    if ended.returncode != 0:
        raise _failed(url, purpose, " ".join(ended.stderr.split())[:500] or words[0])


def _address(url: URL) -> str:
    return url.set(drivername="postgresql", password=None).render_as_string()


def _failed(url: URL, purpose: str, problem: str) -> InputError:
    remedy = "Check the user's rights; the programs must be as new as the server."
    return InputError(shown(url), "", f"the database cannot {purpose}: {problem}", remedy)


def _not_copied(target: str, problem: str) -> InputError:
    remedy = "Check space, owner and mode there; nothing was changed."
    return InputError(target, "", f"no copy of the database can be made: {problem}", remedy)


def _free_name(directory: Path, stem: str, suffix: str) -> Path:
    for number in range(COPIES_MAX):
        path = directory / (f"{stem}-{number}{suffix}" if number else f"{stem}{suffix}")
        if not path.exists():
            return path
    raise _not_copied(str(directory / stem), f"{COPIES_MAX} copies are there already")


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    sync_directory(file.parent)
