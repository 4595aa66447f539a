"""`provisioner audit verify`: prove that the journal is complete and unchanged."""

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
        Path | None,
        typer.Option("--archives", help="Directory of archives to verify too, from row 1."),
    ] = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Verify the whole chain. Exit code 0: unchanged; 1: a row was changed, removed or added.

    The command opens the database itself, so that it trusts no daemon. Without --known it cannot
    see whether the end was cut off, or the whole chain written anew. After a prune the chain begins
    at the row that is signed as its beginning; --archives follows the rest.

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

    result = with_data(data, check)
    if as_json:
        document = {
            "intact": result.intact,
            "rows": result.rows,
            "head": result.head,
            "broken_at": result.broken_at,
            "problem": result.problem,
            "known_checked": earlier is not None,
        }
        typer.echo(json.dumps(document))
    elif result.intact:
        typer.echo(f"intact: {result.rows} rows; keep this elsewhere: {result.rows}:{result.head}")
        if earlier is None:
            typer.echo("whether its end was cut off is not known: give --known", err=True)
    else:
        typer.echo(f"NOT INTACT at row {result.broken_at}: {result.problem}")
    raise typer.Exit(0 if result.intact else 1)


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    matched = KNOWN.fullmatch(text)
    if matched is None:
        remedy = "Give what an earlier `audit verify` printed: ROWS:HEAD."
        raise InputError("--known", text[:80], "this is no head of the journal", remedy)
    return int(matched[1]), matched[2]
