"""Options that say which daemon a command written by hand asks, and the connection to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.client.connection import Connection, connect
from provisioner.cli.client.contexts import find_place

ContextOption = Annotated[str, typer.Option("--context", help="Context: a daemon by its name.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Data directory of a daemon.")]
ServerOption = Annotated[str, typer.Option("--server", help="https://HOST:PORT of a daemon.")]
TokenOption = Annotated[Path | None, typer.Option("--token-file", help="File with a token.")]
CaOption = Annotated[
    Path | None, typer.Option("--ca", help="File with the CA of the daemon's certificate.")
]


def open_connection(
    *,
    context: str = "",
    data: Path | None = None,
    server: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> Connection:
    """Return a connection to the daemon that these options name. Raises InputError."""
    options = {
        "context": context,
        "data": data,
        "server": server,
        "token_file": token_file,
        "ca_file": ca_file,
    }
    return connect(find_place(options))
