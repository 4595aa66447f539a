"""`provisioner audit verify` and `check-archive`: prove that the journal is whole and unchanged.

Only `verify` opens the database.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.data_options import DataOption
from provisioner.cli.options.showing import JsonOption
from provisioner.cli.options.trusted_keys import KeyOption, read_trusted_keys
from provisioner.daemon.data import Data, has_data, open_data
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import read_clock
from provisioner.store.database.journal_archive import read_archive
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
                return await opened.store.archives.verify(archives, earlier)
            except InputError as error:
                return ChainCheck(0, "", 0, f"{error.source}: {error.problem}")
        return await opened.store.journal.verify(earlier)

    result = asyncio.run(_run_opened(data, check))
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


async def _run_opened(
    directory: Path, check: Callable[[Data], Awaitable[ChainCheck]]
) -> ChainCheck:
    """Run a check on an opened data directory, which needs no master key. Raises InputError."""
    if not has_data(directory):
        remedy = "Run `provisioner intake` first."
        raise InputError(str(directory), "", "there is no data directory here", remedy)
    now = read_clock(directory).now()
    async with open_data(directory, now, needs_key=False) as opened:
        return await check(opened)


def check_archive(
    files: Annotated[list[Path], typer.Argument(help="Archives, in any order.")],
    key: KeyOption,
    as_json: JsonOption = False,
) -> None:
    """Verify archives without a daemon: their signature, and the chain of their rows.

    Exit code 1: one is not intact.

    Example: provisioner audit check-archive journal-000000000001-000000050000.jsonl --key keys.pem
    """
    keys = read_trusted_keys(key)
    results: list[dict[str, object]] = []
    for file in files:
        try:
            statement = read_archive(file, keys).statement
        except InputError as error:
            results.append({"file": str(file), "problem": error.problem})
            continue
        span = {"first": statement.first, "last": statement.last, "head": statement.head}
        results.append({"file": str(file), **span, "problem": ""})
    if as_json:
        typer.echo(json.dumps(results))
    for result in () if as_json else results:
        line = f"NOT INTACT: {result['problem']}"
        if not result["problem"]:
            line = f"intact: rows {result['first']} to {result['last']}, head {result['head']}"
        typer.echo(f"{result['file']}: {line}")
    raise typer.Exit(1 if any(result["problem"] for result in results) else 0)


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    matched = KNOWN.fullmatch(text)
    if matched is None:
        remedy = "Give what an earlier `audit verify` printed: ROWS:HEAD."
        raise InputError("--known", text[:80], "this is no head of the journal", remedy)
    return int(matched[1]), matched[2]
