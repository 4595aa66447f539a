"""`provisioner db reseal`: a new master key, whether daemons run or not."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from provisioner.cli.options.data_options import DataOption
from provisioner.cli.options.serve_options import Database
from provisioner.cli.options.showing import JsonOption
from provisioner.daemon.cluster import digest_code
from provisioner.daemon.data import database_of, held_data
from provisioner.model.input_error import InputError
from provisioner.store.database.data_directory import read_holder
from provisioner.store.database.postgres import is_postgres
from provisioner.store.repositories.key_exchange import (
    Report,
    begin_exchange,
    end_exchange,
    prepare_key,
    prepare_keys,
    rekey,
    walk,
)
from provisioner.store.repositories.master_key import ENVIRONMENT, NEXT_FILE, MasterKey
from provisioner.store.repositories.wrapped_key import read_wrapped_key
from provisioner.store.sql_store import SqlStore, open_store

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
