"""The lines of a node's serial console or system log, printed once or followed.

The words of a machine are hostile: controls are cut out before they are stored, and again here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from provisioner.cli.client.connection import Connection
from provisioner.cli.client.output import (
    describe_detail,
    format_minute,
    parse_moment,
    show_problem,
    strip_controls,
)

AGAIN_S = 2.0  # between two requests while nothing new comes
Document = Mapping[str, Any]


def show_console_lines(document: Document, given: Document) -> None:
    for line in document["lines"]:
        at = parse_moment(line["at"]).isoformat(timespec="seconds")
        typer.echo(f"{at} {strip_controls(line['text'])}")
    if not document["lines"] and not given.get("follow"):
        typer.echo("No line is stored for this node (setting `consoles`).", err=True)


def show_log_lines(document: Document, given: Document) -> None:
    """Print messages: when each was received, its facility and severity, its program, its text."""
    for line in document["lines"]:
        at = parse_moment(line["at"]).isoformat(timespec="seconds")
        program = strip_controls(line["program"]) or "-"
        text = strip_controls(line["text"])
        typer.echo(f"{at} {line['facility']}.{line['severity']} {program}: {text}")
    if not document["lines"] and not given.get("follow"):
        typer.echo("No such line is stored for this node (docs/machine-logs.md).", err=True)


def follow_lines(
    reach: Connection,
    path: str,
    query: Mapping[str, str],
    given: Document,
    show_lines: Callable[[Document, Document], None],
) -> None:
    """Print the last lines, then each that comes, until Ctrl-C."""
    after = query.get("after", "-1")
    while True:
        answer = reach.send_request("GET", path, {**query, "after": after})
        if not answer.good:
            show_problem(answer.document, answer.status, "table")
            raise typer.Exit(2 if answer.status in (400, 404) else 1)
        show_lines(answer.document, given)
        after = str(answer.document["last"])
        if not answer.document["lines"]:
            time.sleep(AGAIN_S)


def show_action(told: Mapping[str, Any], _given: Mapping[str, Any]) -> None:
    """Print one action: what was sent, what each task said, the BMC's task, events meanwhile."""
    action = told["action"]
    ended = format_minute(action["settled_at"], seconds=True)
    began = format_minute(action["intended_at"], seconds=True)
    typer.echo(strip_controls(f"{action['action']}: {action['status']} ({began} to {ended} UTC)"))
    if action["outcome"]:
        typer.echo(strip_controls(f"  {action['outcome']}"))
    _show_part("What was sent, and the state before it", told["sent"])
    for play in told["plays"]:
        begun = format_minute(play["started_at"], seconds=True)
        lines = [play["gap"]] if play["gap"] else []
        for task in play["tasks"]:
            lines.append(f"{task['status']:9} {task['task']}")
            lines += [f"          {line}" for line in task["message"].splitlines()]
        _show_part(f"Play {play['play']}, {play['state']}, begun {begun}", lines)
    task = told["task"]
    if task:
        percent = f", {task['percent']:.0f} %" if task["percent"] is not None else ""
        state = f"{task['state'] or 'not read'}{percent}"
        gap = [f"({task['gap']})"] if task["gap"] else []
        _show_part(
            f"Task {task['path']} of the BMC {task['bmc'] or '?'}: {state}",
            [*task["messages"], *gap],
        )
    rows = [
        f"{format_minute(e['at'], seconds=True)} {e['kind']}: {describe_detail(e['detail'])}"
        for e in told["events"]
    ]
    _show_part("Events meanwhile", rows)
    if told["live"]:
        typer.echo("It is under way: ask again for more.")


def _show_part(title: str, lines: Sequence[str]) -> None:
    if lines:
        typer.echo(strip_controls(f"{title}:"))
        for line in lines:
            typer.echo(f"  {strip_controls(line)}")
