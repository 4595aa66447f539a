"""Carries out one command, from its options to requests and from answers to an exit code.

Exit codes are the same everywhere: 0 done, 1 refused or failed, 2 wrong input, 3 recorded and
waiting for another person's approval.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import typer

from provisioner.cli.client.connection import Answer, Connection, Place, connect, find_place
from provisioner.cli.client.output import (
    list_effects,
    list_lines,
    show_blockers,
    show_document,
    show_event,
    show_mistake,
    show_problem,
    show_rows,
    strip_controls,
)
from provisioner.cli.client.preparing import FILED, Given, Spec, build_body, format_text
from provisioner.model.input_error import InputError
from provisioner.model.shipped_tables import read_table
from provisioner.runtime.whole_files import replace_file

# opens a data directory, with overlays of the matrix, where no daemon is asked
OpenOffline = Callable[[Place, Sequence[Path]], Connection]

# ------------------------------------------------------------------------------
# Filters and sorts the rows of a list here, where the daemon does not.


def filter_rows(rows: list[dict[str, Any]], where: str, fields: list[str]) -> list[dict[str, Any]]:
    """Return the rows that match an expression. Raises InputError for a wrong one."""
    from provisioner.planning.campaigns.select_expression import parse

    expression = parse(where, fields, "--where")
    return [r for r in rows if expression.matches_facts({f: _facts(r.get(f)) for f in fields})]


def _facts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(v) for v in value)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    return (str(value),) if value is not None else ()


def sort_rows(rows: list[dict[str, Any]], sort: str, fields: list[str]) -> list[dict[str, Any]]:
    """Sort by a field, or by `-FIELD` with the greatest first."""
    name = sort.removeprefix("-")
    if name not in fields:
        raise InputError("--sort", sort[:60], "no such field", f"Known: {', '.join(fields)}.")

    def order_of(row: dict[str, Any]) -> tuple[bool, Any]:
        value = row.get(name)
        ordered = value if isinstance(value, int | float) else str(value)
        return (isinstance(value, int | float), ordered)

    return sorted(rows, key=order_of, reverse=sort.startswith("-"))


WAITS = 3  # exit code: the change is recorded and needs another person's approval
FAILED = 1
WRONG = 2
ABSENT = 4  # exit code: there is no such thing
NOT_FOUND = 404
PAGE = 500  # rows of one request for a list
ROWS_MAX = 100_000  # rows read of a list that is filtered or sorted here
ENDLESS = ("event list",)  # its cursor marks the place to continue, also when no event came
WORD = re.compile(r"{(\w+)}")
OVER = ("done", "running", "dry_run")
# functions of their own, as `module.function`: `view` displays an answer, `prepare` its options
_ANSWERS = read_table("provisioner.cli.client", "answers.csv")
VIEWS = {row["command"]: row["view"] for row in _ANSWERS if row["view"]}
PREPARED = {row["command"]: row["prepare"] for row in _ANSWERS if row["prepare"]}


def run_command(command: str, spec: Spec, given: Given, open_offline: OpenOffline) -> None:
    """Carry out a command. Ends with typer.Exit where the exit code is not 0."""
    form = "json" if given.get("as_json") else str(given.get("output") or "table")
    if form not in ("table", "wide", "json", "yaml"):
        raise InputError("--output", form[:20], "no such form", "Say table, wide, json or yaml.")
    prepare = PREPARED.get(command)
    after = None if prepare is None else _load(prepare)(given)
    reach = _reach(given, open_offline)
    names = [name for name, _, _ in spec["words"]]
    path = WORD.sub(lambda match: quote(str(given[match[1]]), safe=":"), spec["path"])
    query = {
        o["name"]: format_text(o, given) for o in spec["query"] if given.get(o["name"]) is not None
    }
    if spec.get("media") == "text/event-stream":
        for event in reach.follow_events(path, query):
            show_event(event, form)
        return
    if given.get("follow"):
        show_lines = _load(VIEWS[command])
        _load("console_views.follow_lines")(reach, path, query, given, show_lines)
        return
    body = None if "body" not in spec else build_body(command, spec, given)
    if "list" in spec:
        _show_list(command, spec, given, reach, path, query, form)
        return
    if spec.get("changes"):
        answer = _change(spec, given, reach, path, query, body, form, [given.get(n) for n in names])
    else:
        answer = reach.send_request(spec["verb"], path, query, body)
    _finish(command, answer, given, form, after)


def _reach(given: Given, open_offline: OpenOffline) -> Connection:
    place = find_place(given)
    if given.get("offline"):
        if place.server:
            raise InputError("--offline", place.server, "it reads a data directory", "Give --data.")
        return open_offline(place, given.get("matrix") or ())
    return connect(place)


def _load(name: str) -> Callable[..., Any]:
    module, function = name.split(".")
    function_of_command: Callable[..., Any] = getattr(
        import_module(f"provisioner.cli.client.{module}"), function
    )
    return function_of_command


def _show_list(
    command: str,
    spec: Spec,
    given: Given,
    reach: Connection,
    path: str,
    query: dict[str, str],
    form: str,
) -> None:
    """Read a list's pages, filter and sort its rows, and print them."""
    where = given.get("where")
    sort = given.get("sort")
    limit = given.get("limit")
    if where and spec["filters"]:
        query["where"] = where
    here = bool(where) and not spec["filters"]
    enough = ROWS_MAX if sort or here or not limit else int(limit)
    rows: list[dict[str, Any]] = []
    answer = Answer(0, None)
    cursor = ""
    while not answer.status or (cursor and len(rows) < enough):
        page = {"limit": str(min(PAGE, enough - len(rows)))} if spec["limits"] else {}
        more = {"cursor": cursor} if cursor else {}
        answer = reach.send_request("GET", path, {**query, **page, **more})
        if not answer.good:
            _finish(command, answer, given, form, None)
        got = answer.document["items"]
        rows += got
        moved = answer.document.get("next", "") if spec["paged"] else ""
        cursor = moved if moved != cursor and (got or moved) else ""
        if not got and command in ENDLESS:
            break
    if where and here:
        rows = filter_rows(rows, where, spec["list"])
    if sort:
        rows = sort_rows(rows, sort, spec["list"])
    shown = rows[: int(limit)] if limit else rows
    envelope = {k: v for k, v in answer.document.items() if k not in ("items", "next", "total")}

    def write() -> None:
        if command in VIEWS:
            _load(VIEWS[command])({**envelope, "items": shown}, given)
        else:
            show_rows(command, shown, spec["list"], form)
        if cursor or len(shown) < len(rows):
            total = answer.document.get("total")
            rest = f"of {total} rows" if total and not here else "there are more rows"
            typer.echo(f"These are {len(shown)}, {rest}: --limit.", err=True)

    plain = not envelope or command in PLAIN
    show_document(shown if plain else {**envelope, "items": shown}, form, write)
    failing = FAILS.get(command)
    if failing is not None and failing({**envelope, "items": shown}):
        raise typer.Exit(FAILED)


def _change(
    spec: Spec,
    given: Given,
    reach: Connection,
    path: str,
    query: dict[str, str],
    body: Any,
    form: str,
    words: list[Any],
) -> Answer:
    """Send a change; a destructive one is shown first and needs consent."""
    headers = {"If-Match": given["if_match"]} if given.get("if_match") else {}
    dry = bool(given.get("dry_run"))
    asks = spec.get("destructive")
    if spec.get("recorded") and (dry or (asks and not given.get("yes"))):
        shown = reach.send_request(spec["verb"], path, {**query, "dry_run": "true"}, body, headers)
        if dry or not shown.good or (shown.document or {}).get("blockers"):
            return shown
        machine = form in ("json", "yaml")
        sentence = f"{spec['summary']} ({' '.join(str(w) for w in words if w)})"
        for line in _forecast(shown.document) or [sentence]:
            typer.echo(strip_controls(line), err=machine)
        if not sys.stdin.isatty():
            problem = "it is not given, and there is no terminal to ask on"
            raise InputError("--yes", "", problem, "Look with --dry-run, then give --yes.")
        typer.confirm("Is that meant?", abort=True, err=machine)
        if spec.get("entity") and shown.etag.startswith('"g'):  # counts changes
            headers.setdefault("If-Match", shown.etag)
    answer = reach.send_request(spec["verb"], path, query, body, headers, changes=True)
    if answer.status == 202 and _state(answer) == "running":
        answer = _load("following.follow_operation")(
            reach, answer, to_the_end=bool(given.get("wait"))
        )
    return answer


def _forecast(document: Any) -> list[str]:
    result = document.get("result") or {} if isinstance(document, dict) else {}
    lines = [str(line) for line in result.get("lines") or ()]
    lines += list_effects(result.get("effects") or {})
    for step in result.get("steps") or ():
        lines.append(f"{step['device']} would be sent:")
        lines += [f"  {line}" for line in step["lines"] or ("(nothing: it is proved and saved)",)]
    lines += [
        f"{node} would leave: it is drained, fenced and erased."
        for node in result.get("leaving") or ()
    ]
    return lines


def _state(answer: Answer) -> str:
    return str(answer.document.get("state", "")) if isinstance(answer.document, dict) else ""


def _finish(
    command: str, answer: Answer, given: Given, form: str, after: Callable[[Any], None] | None
) -> None:
    """Print an answer and end with its exit code."""
    document = answer.document
    if not answer.good:
        _refuse(answer, given, form)
    out = given.get("out")
    if command in FILED and (out is not None or (form == "table" and command != "node erasure")):
        content = document[FILED[command]]
        _write_text(content if isinstance(content, str) else json.dumps(content), out)
        return
    if document is None:
        _write(answer.content, out)
        return
    if given.get("refused_rows"):
        _add_refusals(document, given["refused_rows"])
    state = _state(answer) if "state" in (document or {}) and "kind" in document else ""
    is_operation = bool(state) and "subject" in document and "asked_by" in document

    def write() -> None:
        if command in VIEWS and not (
            is_operation and state == "dry_run" and command not in SHOWN_DRY
        ):
            _load(VIEWS[command])(document, given)
        elif is_operation:
            _show_operation(document, dry_run=bool(given.get("dry_run")))
        else:
            for line in list_lines(document):
                typer.echo(line)

    if after is not None and not is_dry(document):
        after(document)
        if form == "table":
            return
    show_document(document, form, write)
    if is_operation:
        _exit_by(document)
    failing = FAILS.get(command)
    if failing is not None and failing(document):
        raise typer.Exit(FAILED)


def _refuse(answer: Answer, given: Given, form: str) -> NoReturn:
    """Print a refusal and end with its exit code."""
    document = answer.document
    show_problem(document, answer.status, form)
    if form not in ("json", "yaml"):
        show_mistake(document, str(given.get("where") or given.get("select") or ""))
    blocked = isinstance(document, dict) and document.get("blockers")
    if answer.status == NOT_FOUND and not blocked:
        raise typer.Exit(ABSENT)
    wrong = answer.status in (400, 413, 422) and not blocked
    raise typer.Exit(WRONG if wrong else FAILED)


def _add_refusals(document: Any, refused: list[Any]) -> None:
    """Add the rows that were refused here, before the request, to those of an answer."""
    result = dict(document.get("result") or {})
    result["blockers"] = [*refused, *(result.get("blockers") or ())]
    document["result"] = result


def is_dry(document: Any) -> bool:
    return isinstance(document, dict) and document.get("state") == "dry_run"


def _show_operation(document: Mapping[str, Any], *, dry_run: bool) -> None:
    if is_dry(document):
        for line in _forecast(document) or [f"{document['kind']} {document['subject']}"]:
            typer.echo(strip_controls(line))
        show_blockers(document.get("blockers") or ())
        typer.echo("Nothing was done: --dry-run." if dry_run else "Nothing was done.")
        return
    head = f"{document['id']} {document['kind']} {document['subject']}: {document['state']}"
    note = f" ({document['note']})" if document.get("note") else ""
    typer.echo(strip_controls(head + note))
    for name, value in (document.get("result") or {}).items():
        if isinstance(value, str | int | float) and value != "":
            typer.echo(strip_controls(f"  {name.replace('_', ' ')}: {value}"))
    show_blockers(document.get("blockers") or ())


def _exit_by(document: Mapping[str, Any]) -> None:
    if document["state"] == "waiting":
        raise typer.Exit(WAITS)
    result = document.get("result") or {}
    if document["state"] not in OVER or document.get("blockers") or result.get("blockers"):
        raise typer.Exit(FAILED)


FAILS: Mapping[str, Callable[[Any], bool]] = {
    "node proof": lambda d: not d["valid"],
    "node rejudge": lambda d: bool(d["worse"]),
    "webhook dead": lambda d: bool(d["items"]),
    "audit exports": lambda d: any(e["failing_since"] for e in d["items"]),
    "tenant audit": lambda d: bool(d["blockers"]),
    "storage check": lambda d: any(s["blockers"] or s["foreign"] or s["steps"] for s in d["items"]),
    "watch status": lambda d: d["stale"] or bool(d["unwatched"]),
    "cohort compare": lambda d: any(c["effect"] == "worse" for c in d["items"]),
}
# whose dry run has a view of its own
# lists that are printed for machines as their rows alone, whatever stands beside them
PLAIN = frozenset({"drift"})
SHOWN_DRY = frozenset({"intake", "adopt", "hardware set"})


def _write_text(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text)
    else:
        _write(text.encode() + b"\n", out)


def _write(content: bytes, out: Path | None) -> None:
    """Write to a file that only its owner can read, or to the standard output."""
    if out is None:
        sys.stdout.buffer.write(content)
        return
    try:
        replace_file(out, content)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--out", str(out), problem, "Check the path.") from None
    typer.echo(f"{out}: {len(content)} bytes")
