"""Follows an operation until it ends, and the fleet or a campaign until it rests.

One reading is one request, or one for each page of nodes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from provisioner.cli.client.connection import (
    PREFIX,
    Answer,
    CaOption,
    Connection,
    ContextOption,
    DataOption,
    ServerOption,
    TokenOption,
    open_connection,
)
from provisioner.cli.client.output import parse_moment, show_problem, strip_controls
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.model.input_error import InputError

LOOK_S = 0.5  # seconds between two readings; grows to LOOK_MAX_S for work that takes hours
LOOK_MAX_S = 10.0
RESTING = ("certified", "released", "retired", "quarantined")
STATES = (
    "discovered",
    "intake",
    "converging",
    "validating",
    "certified",
    "released",
    "draining",
    "quarantined",
    "repairing",
    "retired",
)
GOING = ("started", "rolling_back", "paused")
ROWS_MAX = 30  # nodes under way that are shown; the bars count all
PAGE = 500


def follow_operation(reach: Connection, answer: Answer, *, to_the_end: bool) -> Answer:
    """Return an operation's last answer, without waiting for another person's approval.

    Unless `to_the_end`, it ends once the request was carried out, though the node is still under
    way.
    """
    place = answer.location.removeprefix(PREFIX)
    if not place.startswith("/operations/"):
        return answer
    wait_s = LOOK_S
    with Console(stderr=True).status(Text(_words(answer)), spinner="dots") as status:
        while answer.good and _field(answer, "state") == "running":
            if not to_the_end and answer.document.get("result") is not None:
                break
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LOOK_MAX_S)
            answer = reach.send_request("GET", place)
            status.update(Text(_words(answer)))
    return answer


def _field(answer: Answer, name: str) -> str:
    return str(answer.document.get(name, "")) if isinstance(answer.document, dict) else ""


def _words(answer: Answer) -> str:
    names = ("id", "kind", "subject", "state", "note")
    return strip_controls(" ".join(word for name in names if (word := _field(answer, name))))


def watch_nodes(
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, help="Seconds between readings.")
    ] = 2,
    once: Annotated[bool, typer.Option("--once", help="Read once, then end.")] = False,
    as_json: JsonOption = False,
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca_file: CaOption = None,
) -> None:
    """Follow the fleet: the number of nodes in each state, and the actions of those under way.

    It ends when every node rests, or with Ctrl-C; with --json each reading is one object on a line.

    Example: provisioner node watch --every 10
    """
    reach = open_connection(
        context=context, data=data, server=server, token_file=token_file, ca_file=ca_file
    )
    nodes = read_nodes(reach)
    if as_json:
        while True:
            typer.echo(json.dumps(count_nodes(nodes)))
            if once or is_at_rest(nodes):
                return
            time.sleep(every_s)
            nodes = read_nodes(reach)
    with Live(
        draw_nodes(nodes, _now(reach)), console=open_console(100), auto_refresh=False
    ) as live:
        while not once and not is_at_rest(nodes):
            time.sleep(every_s)
            nodes = read_nodes(reach)
            live.update(draw_nodes(nodes, _now(reach)), refresh=True)


def _now(reach: Connection) -> float:
    return parse_moment(_asked(reach, "/me")["now"]).timestamp()


def read_nodes(reach: Connection) -> list[dict[str, Any]]:
    """Return every node of a daemon, page by page."""
    nodes: list[dict[str, Any]] = []
    cursor = ""
    while True:  # ends with the last page: each begins after the one before
        query = {"limit": str(PAGE), **({"cursor": cursor} if cursor else {})}
        document = _asked(reach, "/nodes", query)
        nodes += document["items"]
        cursor = document["next"]
        if not cursor:
            return nodes


def _asked(reach: Connection, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = reach.send_request("GET", path, query)
    if not answer.good:
        show_problem(answer.document, answer.status, "table")
        raise typer.Exit(2 if answer.status in (400, 404) else 1)
    return dict(answer.document)


def is_at_rest(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether nothing is under way."""
    return all(n["state"] in RESTING for n in nodes)


def count_nodes(nodes: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return nodes by state, and those under way with their actions."""
    moving = [
        {"node": n["id"], "state": n["state"], "note": n["note"], "since": n["entered_at"]}
        for n in nodes
        if n["state"] not in RESTING
    ]
    states = dict(Counter(n["state"] for n in nodes))
    return {"nodes": len(nodes), "states": states, "under_way": moving}


def draw_nodes(nodes: Sequence[Mapping[str, Any]], now: float) -> Group:
    """Return the bars, then the nodes under way, the longest-running first."""
    bars = Table.grid(padding=(0, 1))
    states = Counter(n["state"] for n in nodes)
    for state in STATES:
        if states[state]:
            bar = ProgressBar(total=len(nodes), completed=states[state], width=40)
            bars.add_row(state, bar, Text(f"{states[state]} of {len(nodes)}"))
    moving = sorted(
        (n for n in nodes if n["state"] not in RESTING), key=lambda n: str(n["entered_at"])
    )
    table = Table("node", "state", "for", "doing")
    for node in moving[:ROWS_MAX]:
        age = _age(now - parse_moment(node["entered_at"]).timestamp())
        table.add_row(node["id"], node["state"], age, Text(strip_controls(node["note"])))
    more = len(moving) - ROWS_MAX
    footer = [Text(f"and {more} more")] if more > 0 else []
    return Group(bars, *([table, *footer] if moving else [Text("every node rests")]))


def _age(seconds: float) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours} h {minute:02d} min" if hours else f"{minute} min {second:02d} s"


def watch_campaign(
    name: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="The campaign's name, such as c0001.")
    ],
    as_json: JsonOption = False,
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca_file: CaOption = None,
) -> None:
    """Follow a campaign until it rests. Exit code 1: it was stopped or aborted.

    Example: provisioner campaign watch c0001
    """
    if not name.strip():
        raise InputError("CAMPAIGN", "", "it is empty", "See `provisioner campaign list`.")
    reach = open_connection(
        context=context, data=data, server=server, token_file=token_file, ca_file=ca_file
    )
    last: dict[str, Any] = {}
    with Live(console=open_console(), refresh_per_second=4, auto_refresh=not as_json) as live:
        while True:
            report = _asked(reach, f"/campaigns/{name}/report")
            if as_json and report != last:
                live.stop()
                typer.echo(json.dumps(report))
            elif not as_json:
                live.update(_bars(report))
            if report["state"] not in GOING:
                raise typer.Exit(0 if report["state"] == "done" else 1)
            last = report
            time.sleep(LOOK_S * 4)


def _bars(report: Mapping[str, Any]) -> Group:
    grid = Table.grid(padding=(0, 1))
    for wave in report["waves"]:
        ended = sum(wave["states"].get(s, 0) for s in ("done", "failed", "skipped"))
        bar = ProgressBar(total=max(wave["nodes"], 1), completed=ended, width=40)
        states = ", ".join(f"{count_} {state}" for state, count_ in wave["states"].items())
        grid.add_row(wave["name"], bar, Text(states))
    reason = f" ({report['reason']})" if report["reason"] else ""
    head = f"{report['campaign']} to {report['release']}: {report['state']}{reason}"
    return Group(Text(strip_controls(head)), grid)
