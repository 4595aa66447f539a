"""Prints any answer: a table or lines for people, JSON or YAML for machines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from provisioner.model.shipped_tables import read_table
from provisioner.runtime.shipped import point_to_pages

# ------------------------------------------------------------------------------
# The columns of the tables that show lists (lists.csv).
#
# A column is `title=field`, or `field` alone. A field may have a dot for a field in it, and after a
# colon the form of display: `at` (a time), `n` (a count), `all` (joined by commas). Lists without
# columns of their own show the fields of their rows.


_LISTS = read_table("provisioner.cli.client", "lists.csv")
COLUMNS = {row["command"]: row["columns"] for row in _LISTS if row["columns"]}
# The sentence for an empty list, with the command that makes the first row.
EMPTY = {row["command"]: row["empty"] for row in _LISTS if row["empty"]}


FORMATS = ("table", "wide", "json", "yaml")
CELL_MAX = 60  # characters of a nested value in a table; the other formats print it whole
COLUMNS_MAX = 9
SOME = 3  # names of a cell that has many
TIME_FIELDS = ("at", "since", "until")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)  # of the API
Row = Mapping[str, Any]


def show_document(document: Any, form: str, write: Callable[[], None] | None = None) -> None:
    """Print an answer.

    `write` prints it for people; without it, the answer is printed line by line.
    """
    if form == "json":
        typer.echo(json.dumps(document))
    elif form == "yaml":
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    elif write is not None:
        write()
    else:
        for line in list_lines(document):
            typer.echo(line)


def show_rows(command: str, rows: Sequence[Row], fields: Sequence[str], form: str) -> None:
    """Print a list's rows in its own columns; in wide form, with all fields."""
    if not rows:
        typer.echo(EMPTY.get(command, "There is none."))
        return
    from rich.text import Text

    from provisioner.cli.options.tables import Table, open_console

    columns = _columns(command, rows, fields, wide=form == "wide")
    titles = [title.replace("_", " ") for title, _, _ in columns]
    cells = [[format_cell(_value(row, field), how) for _, field, how in columns] for row in rows]
    whole = [how in ("at", "second") for _, _, how in columns]
    widths = measure_columns([titles, *cells], whole)
    console = open_console()
    kept = count_columns(widths, console.width)
    table = Table()
    whole_widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    shared = share_width(widths[:kept], whole_widths, console.width)
    for title, width in zip(titles, shared, strict=False):
        table.add_column(title, width=width)
    for row_cells in cells:
        table.add_row(*map(Text, row_cells[:kept]))
    console.print(table)
    if kept < len(titles):
        names = ", ".join(titles[kept:])
        typer.echo(f"Not shown for want of width: {names} (-o json has all).", err=True)


EDGES = 3  # characters of a table around each column, and one at its end
KEPT_MIN = 2  # columns that are shown in any case


def measure_columns(rows: Sequence[Sequence[str]], whole: Sequence[bool]) -> list[int]:
    """Return the least width of each column in which no word is broken: ids, dates, digests.

    `whole`: columns whose cells are one word though they have spaces, such as times.
    """
    return [
        max(len(c) if whole[n] else max(map(len, c.split()), default=0) for c in cells)
        for n, cells in enumerate(zip(*rows, strict=True))
    ]


def count_columns(widths: Sequence[int], width: int) -> int:
    """Return how many columns from the left fit into a width with no word broken."""
    used = 1
    for number, least in enumerate(widths):
        used += least + EDGES
        if used > width and number >= KEPT_MIN:
            return number
    return len(widths)


def share_width(least: Sequence[int], whole: Sequence[int], width: int) -> list[int]:
    """Return the width of each column: its least one, and a share of the room that is left.

    `rich` shrinks columns below their least widths, grows them again, and cuts the table's edge.
    """
    most = (width - 1) // KEPT_MIN - EDGES
    shared = [min(each, most) for each in least]
    room = max(width - 1 - sum(each + EDGES for each in shared), 0)
    wanting = sorted(range(len(shared)), key=lambda n: whole[n] - shared[n])
    for done, n in enumerate(wanting):
        more = min(whole[n] - shared[n], room // (len(wanting) - done))
        shared[n] += more
        room -= more
    return shared


def _columns(
    command: str, rows: Sequence[Row], fields: Sequence[str], *, wide: bool
) -> list[tuple[str, str, str]]:
    """Return (title, field, form of display) of each column."""
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
    nested = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value)
    )
    return value not in (None, "", [], {}, 0.0) and not nested


def _column(word: str) -> tuple[str, str, str]:
    title, _, field_part = word.partition("=")
    field, _, how = (field_part or title).partition(":")
    return title.partition(":")[0], field, how


def _value(row: Row, field: str) -> Any:
    if field == "waits_for" and field not in row:  # of a node: its blocker, or its current action
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
    standing = "flapping" if alert.get("flapping") else "active"
    until = alert.get("overridden_until")
    return f"{standing}, overridden until {format_minute(until)}" if until else standing


def _blocker(blocker: Row) -> str:
    return f"{blocker.get('reason')}: {blocker.get('subject')}: {blocker.get('detail')}"


_SPELLED: Mapping[str, Callable[[Any], str]] = {
    "n": lambda value: str(len(value)),
    "percent": lambda value: f"{value:+.2%}",
    "part": lambda value: f"{value:.0%}" if value else "–",
    "short": lambda value: f"{value:.2g}",
    "hex": lambda value: f"{int(value):#06x}" if value else "–",
    "say": lambda value: strip_controls(describe_detail(value)),
}


def format_cell(value: Any, how: str = "") -> str:
    if how == "units":
        return " ".join(f"pod{pod}/su{unit}" for pod, unit in value) or "all"
    if value in (None, "", [], {}):
        return "–"
    if how == "scope":
        globs = [f"{noun[:-1]}={glob}" for noun, named in value.items() for glob in named]
        return strip_controls(" ".join(globs)) or "–"
    if how in _SPELLED:
        return _SPELLED[how](value)
    if how in ("at", "second"):
        return format_minute(value, seconds=how == "second")
    if how in ("all", "some"):
        most = SOME if how == "some" else len(value)
        more = f" and {len(value) - most} more" if len(value) > most else ""
        return strip_controls(", ".join(map(str, value[:most])) + more)
    if how == "behind":
        each = (f"{b['kind']} {b['running']} → {b['wanted']} ({b['slots']})" for b in value)
        return strip_controls(", ".join(each))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=True)
        most = CELL_MAX if how != "json" else CELL_MAX * 3
        return text if len(text) <= most else text[: most - 1] + "…"
    return strip_controls(str(value))


def parse_moment(at: str) -> datetime:
    """Return a time of the API, RFC 3339, in UTC."""
    return datetime.fromisoformat(at).astimezone(UTC)


def format_minute(at: str | None, *, seconds: bool = False) -> str:
    """Return a time of the API to the minute, or to the second; a dash for none."""
    if not at:
        return "–"
    return f"{parse_moment(at):{'%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M'}}"


SAID_MAX = 200  # characters of an event's detail in a table


def describe_detail(detail: Any) -> str:
    """Return an event's detail as a sentence for people; the other formats have all of it."""
    if not isinstance(detail, Mapping):
        return str(detail)
    rest = dict(detail)
    said = []
    if "from" in rest and "to" in rest:
        said.append(f"{rest.pop('from')} → {rest.pop('to')}")
    said += [str(rest.pop(name)) for name in ("why", "reason", "text") if rest.get(name)]
    for name, value in rest.items():
        if value in (None, "", [], {}, 0, False):
            continue
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            more = f" and {len(value) - 1} more" if len(value) > 1 else ""
            said.append(f"{name.replace('_', ' ')} {_tell(value[0])}{more}")
        elif isinstance(value, Mapping):
            said.append(f"{name.replace('_', ' ')} {_tell(value)}")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            said.append(f"{name.replace('_', ' ')} {shown}")
    text = "; ".join(said)
    return text if len(text) <= SAID_MAX else text[: SAID_MAX - 1] + "…"


def _tell(value: Row) -> str:
    if "reason" in value and "subject" in value:
        return _blocker(value)
    return ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, "", [], {}))


NAMED_MAX = 12  # nodes with the same effects that are named


def list_effects(effects: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what would happen to nodes as lines: each list of effects once, below its nodes."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, lines in effects.items():
        alike.setdefault(tuple(lines), []).append(node)
    told = []
    for lines, nodes in alike.items():
        more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
        told.append(f"{', '.join(nodes[:NAMED_MAX])}{more}:")
        told += [f"  - {line}" for line in lines]
    return told


def list_lines(value: Any, depth: int = 0, name: str = "") -> list[str]:
    """Return a record as lines, with nested records below it."""
    indent = "  " * depth
    if isinstance(value, Mapping):
        lines = []
        for key, inner in value.items():
            title = key.replace("_", " ")
            if isinstance(inner, Mapping | list) and inner:
                lines += [f"{indent}{title}:", *list_lines(inner, depth + 1)]
            elif inner not in (None, "", [], {}):
                lines.append(f"{indent}{title}: {_scalar(inner, key)}")
        return lines
    if isinstance(value, list):
        lines = []
        for inner in value:
            below = list_lines(inner, depth + 1)
            lines += [f"{indent}- {below[0].strip()}", *below[1:]] if below else []
        return lines
    return [f"{indent}{_scalar(value, name)}"]


def _scalar(value: Any, name: str) -> str:
    if isinstance(value, str) and TIME.fullmatch(value):
        return f"{format_minute(value)} UTC"
    return strip_controls(str(value)) if not isinstance(value, bool) else format_cell(value)


def show_problem(document: Any, status: int, form: str) -> None:
    """Print a refusal with its remedy: on the error stream for people."""
    problem = document if isinstance(document, dict) else {}
    if form in ("json", "yaml"):
        show_document(problem or {"status": status}, form)
        return
    title = problem.get("title") or f"status {status}"
    message = ": ".join(str(word) for word in (title, problem.get("detail")) if word)
    typer.echo(strip_controls(f"error: {message}"), err=True)
    show_blockers(problem.get("blockers") or ())
    if problem.get("unblock") and not problem.get("blockers"):
        typer.echo(point_to_pages(strip_controls(f"  {problem['unblock']}")), err=True)


BEFORE = 40  # characters of an expression that are shown before its mistake
AFTER = 30


def show_mistake(document: Any, text: str) -> None:
    """Print an expression with a mark below its mistake, and what may stand there."""
    mistake = document.get("mistake") if isinstance(document, dict) else None
    if not mistake or not text:
        return
    for line in mark_mistake(text, mistake["position"], mistake["length"], mistake["expected"]):
        typer.echo(strip_controls(line), err=True)


def mark_mistake(text: str, at: int, length: int, expected: Sequence[str]) -> list[str]:
    """Return the lines that show where an expression is wrong. `at`: from 1."""
    first = max(0, at - 1 - BEFORE)
    shown = text[first : at + AFTER]
    place = at - 1 - first
    mark = "^" * max(1, min(length, len(shown) - place))
    lines = [f"  {'…' if first else ' '}{shown}", f"   {' ' * place}{mark}"]
    return [*lines, f"  Allowed there: {', '.join(expected)}."] if expected else lines


def show_blockers(blockers: Sequence[Any]) -> None:
    """Print blockers, each with its remedy, on the error stream."""
    for blocker in blockers:
        if isinstance(blocker, dict):
            typer.echo(strip_controls(f"  {_blocker(blocker)}"), err=True)
            remedy = strip_controls(f"    {blocker.get('unblock')}")
            typer.echo(point_to_pages(remedy), err=True)


def show_event(event: Row, form: str) -> None:
    if "kind" not in event:
        return
    if form in ("json", "yaml"):
        typer.echo(json.dumps(event))
    else:
        detail = describe_detail(event["detail"]) if event.get("detail") else ""
        at = format_minute(event.get("at"), seconds=True)
        cells = (event.get("seq"), at, event.get("node"), event["kind"], detail)
        typer.echo(strip_controls(" ".join(str(word) for word in cells if word)))
    sys.stdout.flush()


def strip_controls(text: str) -> str:
    """Return text without sequences that move a terminal's cursor: it may hold devices' names."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
