"""`provisioner clock`: a person's word that the machine's clock is right, after it was doubted."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import typer
from sqlalchemy import Connection

from provisioner.cli.options.confirmation import (
    ActorOption,
    DryRunOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import DataOption, with_data
from provisioner.daemon.data import Data
from provisioner.store.rows import clock_rows
from provisioner.store.rows import journal as chain

app = typer.Typer(help="The clock: say that it is right after a step.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """One verb is still a group."""


@app.command()
def accept(
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
) -> None:
    """Say that this machine's clock is right: a daemon that doubts it decides again.

    A daemon doubts it after a step of minutes against the boot clock, and at a start that is far
    from the time at which it last ran.
    """
    now = time.time()
    told = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [
        f"This machine's clock says {told}.",
        "The daemon goes by it from then on: certificates, notices and tokens expire by this time.",
    ]
    confirm_change(lines, yes=yes, dry_run=dry_run)
    actor = name_actor(by)

    async def write(opened: Data) -> None:
        def both(connection: Connection) -> None:
            clock_rows.put_mark(connection, clock_rows.ACCEPTED, now)
            chain.append(connection, "clock_accepted", "", {"by": actor, "clock": told}, now)

        await opened.store.write(both)

    with_data(data, write)
    typer.echo("Accepted. A daemon that runs goes on within seconds.")
