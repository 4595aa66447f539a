"""The command line: a client of the daemon, with tables for people and JSON or YAML for machines.

A noun's verbs are built from the API's table of routes (client/surface.py). Commands that need no
daemon, and the commands that run one, have modules of their own; commands.py lists everything.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from provisioner.cli.commands import Commands
from provisioner.model.input_error import InputError

app = typer.Typer(
    name="provisioner",
    cls=Commands,
    help="Bring GPU servers from the rack to a customer's network safely, and take them back.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # local variables may hold secrets
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # a twentieth of the time of `--help`

        typer.echo(f"provisioner {version('gpu-provisioner')}")
        raise typer.Exit


@app.callback()
def read_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Bring GPU servers from the rack to a customer's network safely, and take them back."""


def main() -> None:
    """Run the program: wrong input is one clear line and exit code 2, a failed device code 1."""
    try:
        if not __debug__:  # asserts hold nodes where our own books contradict each other
            problem = "Python runs optimized (-O), which leaves out checks of ours"
            raise InputError("PYTHONOPTIMIZE", "", problem, "Unset it, and leave out -O.")
        app()
    except InputError as error:
        _show_error(error)
        sys.exit(2)
    except Exception as error:
        if not _is_promised(error):
            raise
        _show_error(error)
        sys.exit(1)


def _show_error(error: Exception) -> None:
    from provisioner.runtime.shipped import point_to_pages

    typer.echo(f"error: {point_to_pages(str(error))}", err=True)


def _is_promised(error: Exception) -> bool:
    """Return whether this failure is one that a port promises.

    Whatever raised one has loaded its class: a command that loaded no ports loads none now.
    """
    connection = sys.modules.get("provisioner.cli.client.connection")
    if connection is not None and isinstance(error, connection.NoAnswer):
        return True
    if "provisioner.ports" not in sys.modules:
        return False
    from provisioner.ports import PortError, StaleWrite, StoreFailed

    return isinstance(error, PortError | StaleWrite | StoreFailed)
