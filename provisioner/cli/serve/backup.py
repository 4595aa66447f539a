"""`provisioner backup`, `restore` and `db`: copies of a site's database, its schema, its key."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.data_options import DataOption
from provisioner.cli.options.serve_options import Database
from provisioner.cli.options.showing import JsonOption
from provisioner.cli.serve import key_wrapping
from provisioner.daemon.data import database_of, held_data
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import read_clock
from provisioner.store.database import backup as archives
from provisioner.store.database.backup import Manifest
from provisioner.store.database.copying import copier
from provisioner.store.database.data_directory import lock_data_directory, prepare_directory
from provisioner.store.database.migrating import revisions
from provisioner.store.database.postgres import is_postgres
from provisioner.store.repositories.master_key import (
    ENVIRONMENT,
    KEY_FILE,
    MasterKey,
    prepare_key,
    rekey,
)
from provisioner.store.repositories.wrapped_key import WRAPPED_FILE, read_wrapped_key
from provisioner.store.sql_store import open_store

db = typer.Typer(help="The database: upgrade its schema.", no_args_is_help=True)
db.command("wrap-key")(key_wrapping.wrap)
db.command("unwrap-key")(key_wrapping.unwrap)
NEW_KEY = "PROVISIONER_NEW_KEY"


@db.callback()
def _db() -> None:
    """Upgrade the schema of the database."""


def backup(
    output: Annotated[
        Path, typer.Option("--output", help="The file to write; it must not exist yet.")
    ],
    data: DataOption = Path("var"),
    database: Database = "",
    as_json: JsonOption = False,
) -> None:
    """Write a backup of a site's database and learned keys to one file, while daemons run.

    The file is read back: every part's digest, and the journal from its first row to its head. The
    master key is not in it: store that elsewhere. Exit code 1: the journal's chain is broken.

    Example: provisioner backup --output site.backup
    """
    program = version("gpu-provisioner")
    now = read_clock(data).now()
    manifest = archives.make_backup(data, database_of(data, database), output, now, program)
    _show(manifest, f"backup: {output}", as_json=as_json)
    if manifest.journal_problem:
        raise typer.Exit(1)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `provisioner backup` wrote.")],
    data: DataOption = Path("var"),
    database: Database = "",
    check: Annotated[
        bool, typer.Option("--check", help="Only check that the backup is whole.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty data directory, or into an empty PostgreSQL database.

    Nothing is overwritten. The schema stays as it was: the next start of the daemon, or
    `provisioner db upgrade`, brings it up to date.

    Example: provisioner restore site.backup --data var
    """
    if check:
        _show(archives.check_backup(file), f"whole: {file}", as_json=as_json)
        return
    where = database_of(data, database)
    with lock_data_directory(data):
        manifest = archives.restore_backup(file, data, where)
    _show(manifest, f"restored into {data}", as_json=as_json)
    has_key = (data / KEY_FILE).exists() or (data / WRAPPED_FILE).exists()
    if ENVIRONMENT not in os.environ and not has_key:
        note = f"{data / KEY_FILE} is missing: put your copy there before the daemon is started"
        typer.echo(note, err=True)


@db.command()
def upgrade(
    data: DataOption = Path("var"), database: Database = "", as_json: JsonOption = False
) -> None:
    """Bring an older database to the schema of this version, after copying it.

    The copy is in the data directory. `provisioner serve` does the same when it starts.

    Example: provisioner db upgrade --data var
    """
    where = database_of(data, database)
    if not is_postgres(where) and not Path(where).is_file():
        raise InputError(where, "", "there is no database here", "Check --data.")
    prepare_directory(data)
    made: list[tuple[str, str]] = []
    make_copy = copier(where, data)

    def copy_first(revision: str) -> None:
        made.append((revision, str(make_copy(revision))))

    with held_data(data, where):
        asyncio.run(open_store(where, copy_first=copy_first).close())
    before, copy = made[0] if made else (revisions()[-1], "")
    if as_json:
        typer.echo(json.dumps({"before": before, "after": revisions()[-1], "copy": copy}))
    elif made:
        typer.echo(f"schema {before} is now {revisions()[-1]}; as it was: {copy}")
    else:
        typer.echo(f"schema {before} is the newest that this version knows: nothing to do")


@db.command()
def reseal(
    data: DataOption = Path("var"), database: Database = "", as_json: JsonOption = False
) -> None:
    """Seal all stored secrets with a new master key; every daemon is stopped before.

    The key file is replaced by a new key. Where PROVISIONER_KEY has the key, PROVISIONER_NEW_KEY
    has the new one. After an interruption at any point one of the two keys opens all secrets.

    Example: provisioner db reseal --data var
    """
    where = database_of(data, database)
    if not is_postgres(where) and not Path(where).is_file():
        raise InputError(where, "", "there is no database here", "Check --data.")
    with held_data(data, where):
        if is_postgres(where):
            _check_alone(where)
        old, new, count = asyncio.run(_reseal(where, data))
    if as_json:
        typer.echo(json.dumps({"before": old.id, "after": new.id, "secrets": count}))
        return
    typer.echo(f"{count} secrets are sealed with key {new.id}; it was {old.id}")
    typer.echo("Back the new key up. Backups made before open with the old one: keep both apart.")


def _check_alone(where: str) -> None:
    """Raise InputError while daemons use this PostgreSQL database."""
    from provisioner.store.database.seat import read_members  # needs the extra "postgres"

    if members := read_members(where):
        problem = f"{len(members)} daemons use this database"
        raise InputError(where, "", problem, "Stop them first: they have the old key.")


async def _reseal(where: str, data: Path) -> tuple[MasterKey, MasterKey, int]:
    store = open_store(where)
    try:
        if (wrapped := read_wrapped_key(data)) is not None and ENVIRONMENT not in os.environ:
            problem = f"{wrapped.service.address} has sealed the master key"
            remedy = "Run db unwrap-key, then db reseal, then db wrap-key."
            raise InputError(str(data), "", problem, remedy)
        old = await prepare_key(store, data, os.environ)
        if ENVIRONMENT not in os.environ:
            new = MasterKey.generate()
            return old, new, await rekey(store, old, new, data)
        if NEW_KEY not in os.environ:
            problem = f"{ENVIRONMENT} has the key, and {NEW_KEY} is not set"
            remedy = f"Put the new key into {NEW_KEY}: URL-safe base64 of 32 random bytes."
            raise InputError(NEW_KEY, "", problem, remedy)
        new = MasterKey.parse(os.environ[NEW_KEY], NEW_KEY)
        return old, new, await rekey(store, old, new)
    finally:
        await store.close()


def _show(manifest: Manifest, first: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(manifest.model_dump_json())
        return
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    typer.echo(first)
    typer.echo(f"made {made} by version {manifest.program}, schema {manifest.revision}")
    typer.echo(f"holds {', '.join(manifest.files)}; the master key is kept apart")
    typer.echo(f"journal: {manifest.journal_rows}:{manifest.journal_head}")
    if manifest.journal_problem:
        typer.echo(f"NOT INTACT: {manifest.journal_problem}")
