"""`provisioner db wrap-key` and `unwrap-key`: have OpenBao or Vault seal the master key, or not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from provisioner.adapters.key_service import TransitService
from provisioner.cli.options.data_options import DataOption
from provisioner.cli.options.serve_options import Database
from provisioner.cli.options.showing import JsonOption
from provisioner.daemon.data import database_of, has_data, open_master_key
from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService, WrappedKey
from provisioner.store.database.data_directory import lock_data_directory
from provisioner.store.database.postgres import is_postgres
from provisioner.store.repositories.master_key import KEY_FILE, MasterKey
from provisioner.store.repositories.wrapped_key import (
    WRAPPED_FILE,
    read_wrapped_key,
    unwrap_key,
    wrap_key,
)
from provisioner.store.sql_store import open_store

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
        return await wrap_key(key, service, data, TransitService)


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
