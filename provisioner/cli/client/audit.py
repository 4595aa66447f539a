"""`provisioner audit`: who asked for what, and proof that nobody changed the record of it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.api.events import AUDIT
from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.daemon.data import Data
from provisioner.model.input_error import InputError
from provisioner.store.rows import page_rows
from provisioner.store.rows.journal import ChainCheck

app = typer.Typer(
    help="The audit log: list it, and verify its chain of digests.", no_args_is_help=True
)
KNOWN = re.compile(r"(\d{1,15}):([0-9a-f]{64})")
WORDS_MAX = 160  # characters of a row that a table shows


@app.command()
def verify(
    known: Annotated[
        str, typer.Option("--known", help="ROWS:HEAD of an earlier check, kept elsewhere.")
    ] = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Follow the whole chain. Exit code 0: nobody changed, removed or added a row; 1: somebody did.

    Without --known nobody can tell whether the end was cut off, or all of it written anew.
    """
    earlier = _known(known)

    async def check(opened: Data) -> ChainCheck:
        return await opened.store.verify_journal(earlier)

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


@app.command("list")
def list_rows(
    limit: Annotated[int, typer.Option(min=1, max=5000, help="How many, the newest.")] = 50,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """What people asked for, the newest first."""

    async def read(opened: Data) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        before = 0
        while True:  # ends with the journal's beginning: each page is older than the one before
            page = partial(
                page_rows.journal_page,
                after=before,
                limit=limit - len(rows),
                kinds=AUDIT,
                backwards=True,
            )
            found, before = await opened.store.read(page)
            rows += [dict(row) for row in found]
            if before <= 1 or len(rows) >= limit:
                return rows

    rows = with_data(data, read)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("row", "when", "kind", "about", "what")
    for row in rows:
        at = datetime.fromtimestamp(float(str(row["at"])), UTC).strftime("%Y-%m-%d %H:%M:%S")
        said = json.dumps(row["detail"], ensure_ascii=True)[:WORDS_MAX]
        words = (row["seq"], at, row["kind"], row["node"] or "–", said)
        table.add_row(*(Text(str(word)) for word in words))
    show_table(table, "There is no such row.")


def _known(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    found = KNOWN.fullmatch(text)
    if found is None:
        remedy = "Give what an earlier `audit verify` printed: ROWS:HEAD."
        raise InputError("--known", text[:80], "this is no head of the journal", remedy)
    return int(found[1]), found[2]
