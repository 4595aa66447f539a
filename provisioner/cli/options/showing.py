"""Display options of every command that prints something, and its console."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def show_table(table: Table, empty: str) -> None:
    """Print a list as a table, or a sentence where the list is empty."""
    if table.row_count:
        open_console().print(table)
    else:
        typer.echo(empty)


def open_console(file_width: int = 200) -> Console:
    """Return a console that prints a device's text as it is, never as markup.

    `file_width` is the number of columns of a table that goes to no terminal.
    """
    width = None if sys.stdout.isatty() else file_width
    return Console(width=width, highlight=False, markup=False)
