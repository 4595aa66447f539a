"""`provisioner release`: what was seen when a node became a customer's, and its worth as proof."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    with_data,
)
from provisioner.daemon.data import Data
from provisioner.model.certificate import Certificate
from provisioner.model.input_error import InputError
from provisioner.model.release import Verdict
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.release.release_proof import objections

app = typer.Typer(help="Releases: the proof of each.", no_args_is_help=True)


@app.callback()
def releases() -> None:
    """Releases: the proof of each."""


@app.command()
def proof(
    name: str,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every row, also those that passed.")
    ] = False,
) -> None:
    """The proof of a node's last release. Exit code 1: it is not to be believed."""

    async def read(opened: Data) -> tuple[ReleaseProof | None, Certificate | None]:
        await node_of(opened, name)
        found = await opened.store.proof(name)
        bound = None if found is None else await opened.store.certificate(found.certificate)
        return found, bound

    found, certificate = with_data(data, read)
    if found is None:
        raise InputError(name, "", "this node was never released", "See `provisioner node show`.")
    why = objections(found, certificate)
    if as_json:
        body = found.model_dump(mode="json")
        typer.echo(json.dumps({"proof": body, "valid": not why, "objections": why}))
    else:
        _print(found, why, every=every)
    raise typer.Exit(1 if why else 0)


def _print(found: ReleaseProof, why: tuple[str, ...], *, every: bool) -> None:
    out = console()
    when = datetime.fromtimestamp(found.confirmed_at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    out.print(f"{found.node} · {found.tenant} · {found.vrf or '–'} · {when}", style="bold")
    out.print(f"certificate {found.certificate} · sha256 {found.sha256 or '–'}")
    out.print(f"revisions {', '.join(found.revisions) or 'none needed'}")
    told = [r for r in found.gate if every or r.verdict is not Verdict.PASS]
    if told:
        table = Table("row", "where", "verdict", "seen")
        for row in told:
            table.add_row(row.check, Text(row.subject), row.verdict, Text(row.seen[:60]))
        out.print(table)
    passed = sum(r.verdict is Verdict.PASS for r in found.gate)
    out.print(f"{passed} of {len(found.gate)} rows passed")
    for objection in why:
        out.print(Text(f"not valid: {objection}"), style="red")
