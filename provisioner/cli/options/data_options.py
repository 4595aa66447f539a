"""What commands on a data directory share: its option, how it is opened, how answers are shown."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from provisioner.daemon.data import Data, has_data, open_data
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.runtime.site_clock import site_clock

DataOption = Annotated[Path, typer.Option("--data", help="Data directory of the daemon.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Result = TypeVar("Result")


def with_data(directory: Path, work: Callable[[Data], Awaitable[Result]]) -> Result:
    """Do something with an opened data directory. Raises InputError if there is none.

    Work that reads rows alone goes on without the master key; work that needs it says so itself.
    """
    if not has_data(directory):
        raise InputError(
            str(directory), "", "there is no data directory here", "Run `provisioner intake` first."
        )

    async def run() -> Result:
        now = site_clock(directory).now()
        async with open_data(directory, now, needs_key=False) as data:
            return await work(data)

    return asyncio.run(run())


async def node_of(opened: Data, name: str) -> Node:
    """The node of this name. Raises InputError if there is none."""
    node = await opened.store.node(name)
    if node is None:
        raise InputError(name, "", "there is no such node", "See `provisioner node list`.")
    return node


def show_table(table: Table, empty: str) -> None:
    """Print a list as a table, or a sentence where there is nothing to list."""
    if table.row_count:
        console().print(table)
    else:
        typer.echo(empty)


def console(file_width: int = 200) -> Console:
    """What a device says is shown as it is, never as markup; uncut when it goes to a file.

    `file_width`: columns of a table that goes to no terminal.
    """
    width = None if sys.stdout.isatty() else file_width
    return Console(width=width, highlight=False, markup=False)
