"""The lines of a node's serial console or system log, printed once or followed.

The words of a machine are hostile: controls are cut out before they are stored, and again here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import typer

from provisioner.cli.client.connection import Connection
from provisioner.cli.client.output import parse_moment, show_problem, strip_controls

AGAIN_S = 2.0  # between two requests while nothing new comes
Document = Mapping[str, Any]


def show_console_lines(document: Document, given: Document) -> None:
    """Print lines with the time at which each was received."""
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
