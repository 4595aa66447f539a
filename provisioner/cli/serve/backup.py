"""`provisioner backup`, `restore` and `db`: copies of a site's database, its schema, its key."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.matrix_files import DataOption
from provisioner.cli.options.serve_options import Database
from provisioner.daemon.cluster import digest_code
from provisioner.daemon.data import database_of, has_data, held_data, open_master_key
from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService, WrappedKey
from provisioner.runtime.integrations import open_key_service
from provisioner.runtime.wall_clock import read_clock
from provisioner.store.database import backup as archives
from provisioner.store.database.backup import Manifest, copier
from provisioner.store.database.data_directory import (
    SealedFile,
    lock_data_directory,
    prepare_directory,
    read_holder,
)
from provisioner.store.database.postgres import is_postgres, revisions
from provisioner.store.repositories.key_exchange import (
    KeyRing,
    Report,
    begin_exchange,
    end_exchange,
    prepare_key,
    prepare_keys,
    rekey,
    walk,
)
from provisioner.store.repositories.signing_keys import (
    ENVIRONMENT,
    KEY_FILE,
    NEXT_FILE,
    WRAPPED_FILE,
    MasterKey,
    Sealing,
    open_wrapped_key,
    read_key_file,
    read_wrapped_key,
    unwrap_key,
    wrap_key,
)
from provisioner.store.sql_store import SqlStore, open_store

# ------------------------------------------------------------------------------
# `provisioner db wrap-key` and `unwrap-key`: have OpenBao or Vault seal the master key, or not.


FilePath = Path | None


def wrap(
    address: Annotated[
        str, typer.Option("--address", help="The server, as https://bao.example:8200.")
    ],
    key: Annotated[str, typer.Option("--key", help="Name of its transit key.")],
    token_file: Annotated[
        FilePath, typer.Option("--token-file", help="File with a token of it.")
    ] = None,
    role_id_file: Annotated[
        FilePath, typer.Option("--role-id-file", help="AppRole: file with the role id.")
    ] = None,
    secret_id_file: Annotated[
        FilePath, typer.Option("--secret-id-file", help="AppRole: file with the secret id.")
    ] = None,
    ca_file: Annotated[
        FilePath, typer.Option("--ca-file", help="PEM file of its authorities.")
    ] = None,
    mount: Annotated[str, typer.Option("--mount", help="Its transit engine.")] = "transit",
    namespace: Annotated[str, typer.Option("--namespace", help="Its namespace.")] = "",
    approle_mount: Annotated[
        str, typer.Option("--approle-mount", help="Its AppRole method.")
    ] = "approle",
    data: DataOption = Path("var"),
    database: Database = "",
    as_json: JsonOption = False,
) -> None:
    """Have OpenBao or Vault seal the master key; every daemon is stopped before.

    The sealed key is opened again as a proof; then the key in clear is removed. From then on each
    start asks the server once. Keep a copy of the key in clear apart from both: who loses the
    server's transit key loses every stored password.

    Example: provisioner db wrap-key --address https://bao:8200 --key provisioner --token-file t
    """
    files = {
        "token_file": token_file,
        "role_id_file": role_id_file,
        "secret_id_file": secret_id_file,
        "ca_file": ca_file,
    }
    paths = {name: "" if p is None else str(p.absolute()) for name, p in files.items()}
    try:
        service = KeyService(
            address=address.rstrip("/"),
            mount=mount,
            key=key,
            namespace=namespace,
            approle_mount=approle_mount,
            **paths,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "--token-file"
        raise InputError(where, "", first["msg"], "See docs/credentials.md.") from None
    wrapped = asyncio.run(_wrap(data, database, service))
    if as_json:
        typer.echo(json.dumps({"key": wrapped.key_id, "address": wrapped.service.address}))
        return
    typer.echo(f"key {wrapped.key_id} is sealed by {wrapped.service.address}, and opened again")
    typer.echo(f"{data / KEY_FILE} is removed; back up {data / WRAPPED_FILE}")


def unwrap(
    data: DataOption = Path("var"), database: Database = "", as_json: JsonOption = False
) -> None:
    """Put the master key in clear into the data directory again; every daemon is stopped before.

    Example: provisioner db unwrap-key --data var
    """
    wrapped = read_wrapped_key(data)
    if wrapped is None:
        problem = "the master key is not sealed by a key service"
        raise InputError(str(data), "", problem, "There is nothing to do; or check --data.")
    key = asyncio.run(_unwrap(data, database))
    if as_json:
        typer.echo(json.dumps({"key": key.id}))
        return
    typer.echo(f"key {key.id} is in clear in {data / KEY_FILE}")


async def _wrap(data: Path, database: str, service: KeyService) -> WrappedKey:
    with lock_data_directory(data):
        key = await _open_key(data, database)
        return await wrap_key(key, service, data, open_key_service)


async def _unwrap(data: Path, database: str) -> MasterKey:
    with lock_data_directory(data):
        key = await _open_key(data, database)
        unwrap_key(key, data)
        return key


async def _open_key(data: Path, database: str) -> MasterKey:
    """Return the key that this database's secrets open with."""
    where = database_of(data, database)
    if not is_postgres(where) and not has_data(data):
        raise InputError(where, "", "there is no database here", "Check --data.")
    store = open_store(where)
    try:
        ring = await open_master_key(store, data)
        if len(ring.list_ids()) > 1:
            problem = "the master key is being exchanged"
            raise InputError(str(data), "", problem, "Run db reseal to its end first.")
        return ring.newest()
    finally:
        await store.close()


# ------------------------------------------------------------------------------
# `provisioner db reseal`: a new master key, whether daemons run or not.


NEW_KEY = "PROVISIONER_NEW_KEY"
TURN_FILE = "reseal.lock"


def reseal(
    data: DataOption = Path("var"), database: Database = "", as_json: JsonOption = False
) -> None:
    """Seal all stored secrets with a new master key, while daemons of this version run or not.

    The key file is replaced by a new key; after an interruption at any point the same command goes
    on. Where PROVISIONER_KEY has the key, PROVISIONER_NEW_KEY has the new one, and every daemon is
    stopped before. Daemons of other data directories need the new key first; a refusal says how.

    Example: provisioner db reseal --data var
    """
    where = database_of(data, database)
    if not is_postgres(where) and not Path(where).is_file():
        raise InputError(where, "", "there is no database here", "Check --data.")
    if ENVIRONMENT in os.environ:
        old, new, count = _replace_environment(where, data)
    else:
        old, new, count = _replace_file(where, data, as_json=as_json)
    if as_json:
        typer.echo(json.dumps({"before": old, "after": new, "secrets": count}))
        return
    typer.echo(f"{count} secrets are sealed with key {new}; it was {old}")
    typer.echo("Back the new key up. Backups made before open with the old one: keep both apart.")


def _replace_environment(where: str, data: Path) -> tuple[str, str, int]:
    """Exchange a key that no file has: a process that runs cannot be given another one."""
    with held_data(data, where):
        if is_postgres(where) and (count := _count_daemons(where)):
            problem = f"{count} daemons use this database"
            raise InputError(where, "", problem, "Stop them first: they have the old key.")
        if NEW_KEY not in os.environ:
            problem = f"{ENVIRONMENT} has the key, and {NEW_KEY} is not set"
            remedy = f"Put the new key into {NEW_KEY}: URL-safe base64 of 32 random bytes."
            raise InputError(NEW_KEY, "", problem, remedy)
        new = MasterKey.parse(os.environ[NEW_KEY], NEW_KEY)

        async def run() -> tuple[str, int]:
            store = open_store(where)
            try:
                old = await prepare_key(store, data, os.environ)
                # both open it until the next start: a death between the two loses nothing
                SealedFile(data, old).renew(new)
                return old.id, await rekey(store, old, new)
            finally:
                await store.close()

        old, count = asyncio.run(run())
        return old, new.id, count


def _replace_file(where: str, data: Path, *, as_json: bool) -> tuple[str, str, int]:
    if (wrapped := read_wrapped_key(data)) is not None:
        problem = f"{wrapped.service.address} has sealed the master key"
        remedy = "Run db unwrap-key, then db reseal, then db wrap-key."
        raise InputError(str(data), "", problem, remedy)
    with _turn(data):
        _check_daemons(where, data)

        async def run() -> tuple[str, str, int]:
            store = open_store(where)
            try:
                with _progress(as_json=as_json) as report:
                    return await _exchange(store, where, data, report)
            finally:
                await store.close()

        return asyncio.run(run())


async def _exchange(
    store: SqlStore, where: str, data: Path, report: Report
) -> tuple[str, str, int]:
    ring = await prepare_keys(store, data, os.environ)
    old = ring.list_ids()[-1]
    new = begin_exchange(data)
    if is_postgres(where):
        _check_peers(where, data, new)
    count = await walk(store, ring, new, report)
    end_exchange(data)
    return old, new.id, count


def _check_daemons(where: str, data: Path) -> None:
    """Raise InputError for a daemon of another version, which may not know of two keys."""
    code = digest_code()
    holder = read_holder(data)
    if holder is not None and holder.program != code:
        problem = f"process {holder.process}, which uses this data directory, is of another version"
        raise InputError(str(data), "", problem, "Restart it with this version, or stop it.")
    if not is_postgres(where):
        return
    from provisioner.store.database.seat import read_members  # needs the extra "postgresql"

    if others := [m for m in read_members(where) if m.digests.get("code") != code]:
        problem = f"{len(others)} of the daemons of this database are of another version"
        raise InputError(where, "", problem, "Restart them with this version, or stop them.")


def _check_peers(where: str, data: Path, new: MasterKey) -> None:
    """Raise InputError unless every daemon of the database has the new key at hand."""
    from provisioner.store.database.seat import count_key_holders, read_members

    members = len(read_members(where))
    holders = min(count_key_holders(where, new.id), members)
    if holders < members:
        file = data / NEXT_FILE
        problem = f"{holders} of {members} daemons have the new key; nothing is sealed with it yet"
        remedy = (
            f"Copy {file} into the data directory of each (mode 0600), wait for half a lease, and "
            "run this again."
        )
        raise InputError(where, "", problem, remedy)


def _count_daemons(where: str) -> int:
    from provisioner.store.database.seat import read_members

    return len(read_members(where))


@contextmanager
def _turn(data: Path) -> Iterator[None]:
    """Let one exchange of a data directory run at a time."""
    descriptor = os.open(data / TURN_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        problem = "another `db reseal` runs here"
        raise InputError(str(data), "", problem, "Wait for its end.") from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _progress(*, as_json: bool) -> Iterator[Report]:
    """Show how many secrets are sealed anew, on a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with typer.progressbar(length=1, label="sealing", file=sys.stderr) as bar:

        def report(done: int, total: int) -> None:
            bar.length = max(1, total)
            bar.update(done - bar.pos)

        yield report


db = typer.Typer(help="The database: upgrade its schema.", no_args_is_help=True)
db.command("wrap-key")(wrap)
db.command("unwrap-key")(unwrap)
db.command()(reseal)


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
    opened = asyncio.run(open_wrapped_key(data, open_key_service))
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
