"""Options and opening of a data directory, shared by the commands that work on one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from provisioner.daemon.data import Data, has_data, open_data
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import read_clock

DataOption = Annotated[Path, typer.Option("--data", help="Data directory of the daemon.")]
Result = TypeVar("Result")


def with_data(directory: Path, work: Callable[[Data], Awaitable[Result]]) -> Result:
    """Run a function on an opened data directory. Raises InputError if there is none.

    A function that only reads rows works without the master key; one that needs it raises its own
    error.
    """
    if not has_data(directory):
        raise InputError(
            str(directory), "", "there is no data directory here", "Run `provisioner intake` first."
        )

    async def run() -> Result:
        now = read_clock(directory).now()
        async with open_data(directory, now, needs_key=False) as data:
            return await work(data)

    return asyncio.run(run())
