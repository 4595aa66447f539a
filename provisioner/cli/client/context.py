"""`provisioner context`: name daemons, and choose the one that commands use."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.client.connection import NAME_MAX, Place, read_contexts, write_contexts
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, show_table
from provisioner.model.input_error import InputError

app = typer.Typer(help="Contexts: the daemons that commands use.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@app.command()
def add(
    name: NameArgument,
    server: Annotated[str, typer.Option("--server", help="https://HOST:PORT of a daemon.")] = "",
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A data directory of this machine, instead of --server."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with a token (mode 0600).")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="File with the CA of the daemon's certificate.")
    ] = None,
) -> None:
    """Name a daemon; the first one becomes the context in use.

    Example: provisioner context add lab --server https://lab.example:8443 --token-file ~/.lab
    """
    if not (0 < len(name) <= NAME_MAX and name.isprintable()):
        raise InputError("NAME", "", "it is empty, too long or not printable", "Type it again.")
    if bool(server) == bool(data):
        raise InputError("--server", "", "give a server or a data directory", "One of the two.")
    if server and not server.startswith("https://"):
        raise InputError(
            "--server", server[:80], "not an https address", "Write https://HOST:PORT."
        )
    place = Place(server, _whole(data), _whole(token_file), _whole(ca))
    contexts = read_contexts()
    places = {**contexts.places, name: place}
    write_contexts(replace(contexts, places=places, current=contexts.current or name))
    typer.echo(f"{name}: {place}")


@app.command("list")
def list_contexts(as_json: JsonOption = False) -> None:
    """List all contexts; a star marks the one in use.

    Example: provisioner context list
    """
    contexts = read_contexts()
    if as_json:
        rows = [
            {"name": n, "current": n == contexts.current, **asdict(p)}
            for n, p in contexts.places.items()
        ]
        typer.echo(json.dumps(rows))
        return
    table = Table("", "context", "daemon", "token", "CA")
    for name, place in contexts.places.items():
        star = "*" if name == contexts.current else ""
        table.add_row(star, name, str(place), place.token_file or "–", place.ca or "–")
    show_table(table, "There is no context: `provisioner context add NAME` names a daemon.")


@app.command()
def use(name: NameArgument) -> None:
    """Send commands to this daemon from now on.

    Example: provisioner context use lab
    """
    contexts = read_contexts()
    _check_known(name, contexts.places)
    write_contexts(replace(contexts, current=name))
    typer.echo(f"{name}: {contexts.places[name]}")


@app.command()
def remove(name: NameArgument) -> None:
    """Remove a context. The daemon and the token's file stay.

    Example: provisioner context remove lab
    """
    contexts = read_contexts()
    _check_known(name, contexts.places)
    places = {n: p for n, p in contexts.places.items() if n != name}
    current = "" if contexts.current == name else contexts.current
    write_contexts(replace(contexts, places=places, current=current))
    typer.echo(f"{name}: removed")


def _check_known(name: str, places: object) -> None:
    names = sorted(places) if isinstance(places, dict) else []
    if name not in names:
        remedy = f"Known: {', '.join(names) or 'none'}."
        raise InputError("NAME", name[:NAME_MAX], "there is no such context", remedy)


def _whole(path: Path | None) -> str:
    return "" if path is None else str(path.expanduser().absolute())
