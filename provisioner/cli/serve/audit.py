"""`provisioner audit verify`: proof that nobody changed the record of who asked for what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.data_options import DataOption, with_data
from provisioner.cli.options.showing import JsonOption
from provisioner.cli.serve.audit_archive import check_with_archives
from provisioner.daemon.data import Data
from provisioner.model.input_error import InputError
from provisioner.store.rows.journal import ChainCheck

KNOWN = re.compile(r"(\d{1,15}):([0-9a-f]{64})")


def verify(
    known: Annotated[
        str, typer.Option("--known", help="ROWS:HEAD of an earlier check, kept elsewhere.")
    ] = "",
    archives: Annotated[
        Path | None, typer.Option("--archives", help="Also follow these, from row 1.")
    ] = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Follow the whole chain. Exit code 0: nobody changed, removed or added a row; 1: somebody did.

    It opens the database itself, so that no daemon is believed. Without --known it is not known
    whether the end was cut off, or all of it written anew. After a
    prune the chain begins at the row that is signed as its beginning; --archives follows the rest.

    Example: provisioner audit verify --known 4711:9f86d081...
    """
    earlier = _known(known)

    async def check(opened: Data) -> ChainCheck:
        if archives is not None:
            try:
                return await check_with_archives(opened, archives, earlier)
            except InputError as error:
                return ChainCheck(0, "", 0, f"{error.source}: {error.problem}")
        return await opened.store.journal.verify(earlier)

    found = with_data(data, check)
    if as_json:
        document = {
            "intact": found.intact,
            "rows": found.rows,
            "head": found.head,
            "broken_at": found.broken_at,
            "problem": found.problem,
            "known_checked": earlier is not None,
        }
        typer.echo(json.dumps(document))
    elif found.intact:
        typer.echo(f"intact: {found.rows} rows; keep this elsewhere: {found.rows}:{found.head}")
        if earlier is None:
            typer.echo("whether its end was cut off is not known: give --known", err=True)
    else:
        typer.echo(f"NOT INTACT at row {found.broken_at}: {found.problem}")
    raise typer.Exit(0 if found.intact else 1)


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    found = KNOWN.fullmatch(text)
    if found is None:
        remedy = "Give what an earlier `audit verify` printed: ROWS:HEAD."
        raise InputError("--known", text[:80], "this is no head of the journal", remedy)
    return int(found[1]), found[2]
