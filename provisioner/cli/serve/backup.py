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

from provisioner.adapters.key_service import TransitService
from provisioner.cli.options.data_options import DataOption
from provisioner.cli.options.serve_options import Database
from provisioner.cli.options.showing import JsonOption
from provisioner.cli.serve import key_wrapping, resealing
from provisioner.daemon.data import database_of, held_data
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import read_clock
from provisioner.store.database import backup as archives
from provisioner.store.database.backup import Manifest
from provisioner.store.database.copying import copier
from provisioner.store.database.data_directory import lock_data_directory, prepare_directory
from provisioner.store.database.migrating import revisions
from provisioner.store.database.postgres import is_postgres
from provisioner.store.repositories.key_ring import KeyRing
from provisioner.store.repositories.master_key import (
    ENVIRONMENT,
    KEY_FILE,
    NEXT_FILE,
    MasterKey,
    Sealing,
    read_key_file,
)
from provisioner.store.repositories.wrapped_key import WRAPPED_FILE, open_wrapped_key
from provisioner.store.sql_store import open_store

db = typer.Typer(help="The database: upgrade its schema.", no_args_is_help=True)
db.command("wrap-key")(key_wrapping.wrap)
db.command("unwrap-key")(key_wrapping.unwrap)
db.command()(resealing.reseal)


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
    keys = _read_keys(data)
    if keys is None:
        problem = "there is no master key, which seals and proves a backup"
        raise InputError(str(data / KEY_FILE), "", problem, f"Restore it, or set {ENVIRONMENT}.")
    where = database_of(data, database)
    manifest = archives.make_backup(data, where, output, now, program, keys)
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
    unproved: Annotated[
        bool,
        typer.Option(
            "--unproved",
            help="Restore it without the proof by the master key: of an older version, or where "
            "you know that nobody could write it since.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty data directory, or into an empty PostgreSQL database.

    The master key proves that the backup is ours: put it into the data directory, or into
    PROVISIONER_KEY, before. Nothing is overwritten. The schema stays as it was: the next start of
    the daemon, or `provisioner db upgrade`, brings it up to date.

    Example: provisioner restore site.backup --data var
    """
    keys = None if unproved else _read_keys(data)
    if check:
        proved = "proved and whole" if keys is not None else "whole, not proved (no master key)"
        _show(archives.check_backup(file, keys), f"{proved}: {file}", as_json=as_json)
        return
    where = database_of(data, database)
    if keys is None and not unproved:
        problem = "the master key proves that a backup is ours, and is not here"
        remedy = f"Put it there (mode 0600), or set {ENVIRONMENT}; else see --unproved."
        raise InputError(str(data / KEY_FILE), "", problem, remedy)
    with lock_data_directory(data):
        manifest = archives.restore_backup(file, data, where, keys)
    _show(manifest, f"restored into {data}", as_json=as_json)
    has_key = (data / KEY_FILE).exists() or (data / WRAPPED_FILE).exists()
    if ENVIRONMENT not in os.environ and not has_key:
        note = f"{data / KEY_FILE} is missing: put your copy there before the daemon is started"
        typer.echo(note, err=True)


def _read_keys(data: Path) -> Sealing | None:
    """Return the master keys of the environment, of a key service, or of the directory."""
    if ENVIRONMENT in os.environ:
        return MasterKey.parse(os.environ[ENVIRONMENT], ENVIRONMENT)
    opened = asyncio.run(open_wrapped_key(data, TransitService))
    if opened is not None:
        return opened
    files = [data / name for name in (NEXT_FILE, KEY_FILE)]
    keys = [read_key_file(file) for file in files if file.exists()]
    return KeyRing(keys) if keys else None


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
