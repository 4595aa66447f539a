"""The command line: tables for people, `--json` for machines, exit code 2 for bad input.

One module per noun, each with a typer `app` or plain commands; commands.py lists them.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from provisioner.cli.commands import Commands
from provisioner.model.input_error import InputError
from provisioner.ports import PortError, StaleWrite, StoreFailed

app = typer.Typer(
    name="provisioner",
    cls=Commands,
    help="Takes GPU servers from just cabled to safely in a customer's network, and back.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"provisioner {version('gpu-provisioner')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Takes GPU servers from just cabled to safely in a customer's network, and back."""


def main() -> None:
    """Entry point: bad input is one clear line and exit code 2, a failing world exit code 1."""
    try:
        app()
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except (PortError, StaleWrite, StoreFailed) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
