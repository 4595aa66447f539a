"""How any answer is printed: a table or lines for people, JSON or YAML for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from provisioner.cli.client.columns import COLUMNS, EMPTY

FORMATS = ("table", "wide", "json", "yaml")
CELL_MAX = 60  # characters of a nested value in a table; the other formats have it whole
COLUMNS_MAX = 9
TIME_FIELDS = ("at", "since", "until")
Row = Mapping[str, Any]


def show_document(document: Any, form: str, write: Callable[[], None] | None = None) -> None:
    """Print an answer. `write` prints it for people; without, it is shown line by line."""
    if form == "json":
        typer.echo(json.dumps(document))
    elif form == "yaml":
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    elif write is not None:
        write()
    else:
        for line in lines_of(document):
            typer.echo(line)


def show_rows(command: str, rows: Sequence[Row], fields: Sequence[str], form: str) -> None:
    """Print a list's rows: its own columns, in wide form those of all fields too."""
    if not rows:
        typer.echo(EMPTY.get(command, "There is none."))
        return
    from rich.table import Table
    from rich.text import Text

    from provisioner.cli.options.showing import console

    columns = _columns(command, rows, fields, wide=form == "wide")
    table = Table(*(title.replace("_", " ") for title, _, _ in columns))
    for row in rows:
        table.add_row(*(Text(cell(_value(row, field), how)) for _, field, how in columns))
    console().print(table)


def _columns(
    command: str, rows: Sequence[Row], fields: Sequence[str], *, wide: bool
) -> list[tuple[str, str, str]]:
    """Return (title, field, how it is shown) of each column."""
    own = [_column(word) for word in COLUMNS.get(command, "").split()]
    shown = {field.partition(".")[0] for _, field, _ in own}
    if own and not wide:
        return own
    more = [
        (f, f, "at" if f in TIME_FIELDS or f.endswith("_at") else "")
        for f in fields
        if f not in shown and any(_is_plain(row.get(f)) for row in rows)
    ]
    return [*own, *more] if wide else more[:COLUMNS_MAX]


def _is_plain(value: Any) -> bool:
    """Return whether a value says something in one cell."""
    nested = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value)
    )
    return value not in (None, "", [], {}, 0.0) and not nested


def _column(word: str) -> tuple[str, str, str]:
    title, _, rest = word.partition("=")
    field, _, how = (rest or title).partition(":")
    return title.partition(":")[0], field, how


def _value(row: Row, field: str) -> Any:
    if field == "waits_for":  # of a node: what blocks it, or what it does
        blockers = row.get("blockers") or ()
        return _blocker(blockers[0]) if blockers else row.get("note", "")
    if field == "stage_now":
        return f"closed: {row['ending']}" if row.get("ending") else row["stage"]
    if field == "delivery_now":
        waits = "waiting" if row.get("channels") else "recorded only"
        return "sent" if row.get("sent_at") else waits
    if field == "note_now":
        return row["note"] or row["reason"]
    if field == "standing" and "active" in row:
        return _standing(row)
    value: Any = row
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _standing(alert: Row) -> str:
    if not alert["active"]:
        return "over"
    words = "flapping" if alert.get("flapping") else "active"
    until = alert.get("overridden_until")
    return f"{words}, overridden until {minute(until)}" if until else words


def _blocker(blocker: Row) -> str:
    return f"{blocker.get('reason')}: {blocker.get('subject')}: {blocker.get('detail')}"


def cell(value: Any, how: str = "") -> str:
    """Return a value as one cell of a table."""
    if how == "units":
        return " ".join(f"pod{pod}/su{unit}" for pod, unit in value) or "all"
    if value in (None, "", [], {}):
        return "–"
    if how == "at":
        return minute(float(value)) if value else "–"
    if how == "n":
        return str(len(value))
    if how == "all":
        return plain(", ".join(map(str, value)))
    if how == "hex":
        return f"{int(value):#06x}" if value else "–"
    if how == "percent":
        return f"{value:+.2%}"
    if how == "part":
        return f"{value:.0%}" if value else "–"
    if how == "short":
        return f"{value:.2g}"
    if how == "behind":
        each = (f"{b['kind']} {b['running']} → {b['wanted']} ({b['slots']})" for b in value)
        return plain(", ".join(each))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=True)
        most = CELL_MAX if how != "json" else CELL_MAX * 3
        return text if len(text) <= most else text[: most - 1] + "…"
    return plain(str(value))


def minute(at: float | None) -> str:
    """Return a time of UTC; a dash for none."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") if at else "–"


def lines_of(value: Any, depth: int = 0, name: str = "") -> list[str]:
    """Return a record as lines, what is in it below it."""
    indent = "  " * depth
    if isinstance(value, Mapping):
        lines = []
        for key, inner in value.items():
            title = key.replace("_", " ")
            if isinstance(inner, Mapping | list) and inner:
                lines += [f"{indent}{title}:", *lines_of(inner, depth + 1)]
            elif inner not in (None, "", [], {}):
                lines.append(f"{indent}{title}: {_scalar(inner, key)}")
        return lines
    if isinstance(value, list):
        lines = []
        for inner in value:
            below = lines_of(inner, depth + 1)
            lines += [f"{indent}- {below[0].strip()}", *below[1:]] if below else []
        return lines
    return [f"{indent}{_scalar(value, name)}"]


def _scalar(value: Any, name: str) -> str:
    if isinstance(value, float) and (name in TIME_FIELDS or name.endswith("_at")):
        return f"{minute(value)} UTC" if value else "–"
    return plain(str(value)) if not isinstance(value, bool) else cell(value)


def show_problem(document: Any, status: int, form: str) -> None:
    """Print a refusal with what would unblock it: on the error stream for people."""
    told = document if isinstance(document, dict) else {}
    if form in ("json", "yaml"):
        show_document(told or {"status": status}, form)
        return
    title = told.get("title") or f"status {status}"
    words = ": ".join(str(word) for word in (title, told.get("detail")) if word)
    typer.echo(plain(f"error: {words}"), err=True)
    show_blockers(told.get("blockers") or ())
    if told.get("unblock") and not told.get("blockers"):
        typer.echo(plain(f"  {told['unblock']}"), err=True)


def show_blockers(blockers: Sequence[Any]) -> None:
    """Print what stands in the way, each with its remedy, on the error stream."""
    for blocker in blockers:
        if isinstance(blocker, dict):
            typer.echo(plain(f"  {_blocker(blocker)}"), err=True)
            typer.echo(plain(f"    {blocker.get('unblock')}"), err=True)


def show_event(event: Row, form: str) -> None:
    """Print one event of a stream on one line."""
    if "kind" not in event:
        return
    if form in ("json", "yaml"):
        typer.echo(json.dumps(event))
    else:
        detail = json.dumps(event["detail"])[:400] if event.get("detail") else ""
        at = minute(event.get("at"))
        words = (event.get("seq"), at, event.get("node"), event["kind"], detail)
        typer.echo(plain(" ".join(str(word) for word in words if word)))
    sys.stdout.flush()


def plain(text: str) -> str:
    """Return text without what would move a terminal's cursor: devices' names may be in it."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
