"""How any answer of the API is shown to a person: lists as tables, records line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from provisioner.adapters.api_client import Answer
from provisioner.adapters.redfish.sse import Frame
from provisioner.cli.options.data_options import console

CELL_MAX = 60  # characters of a nested value in a table; --json has it whole
COLUMNS_MAX = 9


def show(document: Any, *, as_json: bool) -> None:
    """The whole answer."""
    if as_json:
        typer.echo(json.dumps(document))
        return
    out = console()
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        rows = [r for r in document["items"] if isinstance(r, dict)]
        out.print(_table(rows) if rows else "none")
        if document.get("next"):
            out.print(Text(f"there is more: --cursor {document['next']}"))
        return
    for line in _lines(document, 0):
        out.print(Text(line), soft_wrap=True)


def show_problem(answer: Answer, *, as_json: bool) -> None:
    """A no, with what would unblock it, on the standard error."""
    document = answer.document if isinstance(answer.document, dict) else {}
    if as_json:
        typer.echo(json.dumps(document or {"status": answer.status}))
        return
    title = document.get("title") or f"status {answer.status}"
    said = ": ".join(str(word) for word in (title, document.get("detail")) if word)
    typer.echo(_plain(f"error: {said}"), err=True)
    for blocker in document.get("blockers") or ():
        if isinstance(blocker, dict):
            told = f"  {blocker.get('reason')}: {blocker.get('subject')}: {blocker.get('detail')}"
            typer.echo(_plain(told), err=True)
            typer.echo(_plain(f"    {blocker.get('unblock')}"), err=True)
    if document.get("unblock"):
        typer.echo(_plain(f"  {document['unblock']}"), err=True)


def show_event(frame: Frame, *, as_json: bool) -> None:
    """One event of a stream, on one line."""
    if not isinstance(frame.data, dict) or "kind" not in frame.data:
        return
    if as_json:
        typer.echo(json.dumps(frame.data))
        return
    words = [str(frame.data.get(name, "")) for name in ("seq", "at", "node", "kind")]
    detail = frame.data.get("detail")
    typer.echo(_plain(" ".join([*words, json.dumps(detail)[:400] if detail else ""])))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Columns in the order in which fields come; those that say nothing in any row are left out."""
    names = [n for n in dict.fromkeys(n for r in rows for n in r) if any(_told(r, n) for r in rows)]
    table = Table(*(n.replace("_", " ") for n in names[:COLUMNS_MAX]))
    for row in rows:
        table.add_row(*(Text(_cell(row.get(n))) for n in names[:COLUMNS_MAX]))
    return table


def _told(row: Mapping[str, Any], name: str) -> bool:
    return row.get(name) not in (None, "", [], {})


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        text = json.dumps(value)
        return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"
    return _plain(str(value))


def _lines(value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        lines = []
        for name, inner in value.items():
            if isinstance(inner, dict | list) and inner:
                lines += [f"{indent}{name.replace('_', ' ')}:", *_lines(inner, depth + 1)]
            elif inner not in (None, "", [], {}):
                lines.append(f"{indent}{name.replace('_', ' ')}: {_cell(inner)}")
        return lines
    if isinstance(value, list):
        lines = []
        for inner in value:
            told = _lines(inner, depth + 1)
            lines += [f"{indent}- {told[0].strip()}", *told[1:]] if told else []
        return lines
    return [f"{indent}{_cell(value)}"]


def _plain(text: str) -> str:
    """Without what would move a terminal's cursor: names of devices may be in it."""
    return "".join(c if c.isprintable() else "�" for c in text)
