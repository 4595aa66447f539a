"""`provisioner watch status`: what of the serving nodes is watched, how, and what nobody tells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import DataOption, JsonOption, console, with_data
from provisioner.daemon.data import Data
from provisioner.daemon.watch_status import STALE, read_status
from provisioner.model.alert import Alert
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind, State
from provisioner.model.watch import WatchedNode, WatchStatus, Way
from provisioner.store.repositories.alert_rows import AlertRows

app = typer.Typer(help="The watch over nodes that serve.", no_args_is_help=True)
NODES_MAX = 40  # rows for people; --all and --json have every node
RECENT_S = 900.0  # counters that were pushed longer ago than this are not pushed any more
NEED_PUSH = "QueueStuck, Rocet.*"  # docs/watch.md: these counters are in the tenant's host
NEED_LEAF = "LinkFlap, LinkDown"
NOTES = {
    Way.STREAM: "it tells at once",
    Way.STREAM_BROKEN: "opened again and again; glances meanwhile",
    Way.SUBSCRIPTION: "it posts to our listener",
    Way.UNPROVED: "nothing came: let it trust agent-ca.pem; glances",
    Way.POLLED: "glances and sweeps only",
}


@app.callback()
def _group() -> None:
    """The watch over nodes that serve."""


@app.command()
def status(
    name: Annotated[str, typer.Argument(metavar="[NODE]", help="One node, BMC by BMC.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every node, however many.")] = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """What is watched and how: pushed, polled or nothing; alerts; what has to be pushed.

    Exit code 1: the daemon told nothing for a while, or a node that serves is not watched.
    """
    told, age = read_status(data)

    async def read(opened: Data) -> tuple[Sequence[Alert], set[str]]:
        serving = {
            n.id for n in await opened.store.nodes()
            if n.state is State.RELEASED and n.kind is NodeKind.HOST
        }  # fmt: skip
        return await AlertRows(opened.store).alerts(), serving

    alerts, serving = with_data(data, read)
    chosen = [n for n in told.nodes if not name or n.node == name]
    if name and not chosen:
        remedy = "Only released hosts are watched: see `provisioner node show`."
        raise InputError(name, "", "this node is not watched", remedy)
    unwatched = sorted(serving - {n.node for n in told.nodes})
    stale = age > STALE * told.every_s
    if as_json:
        _json(told, chosen, alerts, unwatched, age, stale=stale)
    elif name:
        _one(chosen[0], alerts, told.at)
    else:
        _whole(told, alerts, unwatched, NODES_MAX if not all_ else len(told.nodes))
    if stale:
        typer.echo(f"The daemon told nothing for {_span(age)}: all of this is as old.", err=True)
    raise typer.Exit(1 if stale or (unwatched and not name) else 0)


def lacking(node: WatchedNode, now: float) -> list[str]:
    """What nobody tells of a node, in words."""
    found = []
    if not pushed(node, now):
        found.append(f"{NEED_PUSH}: no counters are pushed")
    if node.counted < node.ports:
        silent = node.ports - node.counted
        found.append(f"{NEED_LEAF}: {silent} of {node.ports} ports are not counted by their leaves")
    elif not node.ports:
        found.append(f"{NEED_LEAF}: no leaf is known")
    return found


def pushed(node: WatchedNode, now: float) -> bool:
    """Whether somebody pushes counters of its ports."""
    return node.counters_at > 0 and now - node.counters_at <= RECENT_S


def _json(
    told: WatchStatus,
    chosen: Sequence[WatchedNode],
    alerts: Sequence[Alert],
    unwatched: list[str],
    age: float,
    *,
    stale: bool,
) -> None:
    standing = Counter(a.node for a in alerts)
    document = told.model_dump(mode="json", exclude={"nodes"})
    document |= {"age_s": round(age, 1), "stale": stale, "unwatched": unwatched}
    document["nodes"] = [
        {**n.model_dump(mode="json"), "alerts": standing[n.node], "lacking": lacking(n, told.at)}
        for n in chosen
    ]
    typer.echo(json.dumps(document))


def _whole(told: WatchStatus, alerts: Sequence[Alert], unwatched: list[str], rows_max: int) -> None:
    """The sum, then a row for each node."""
    bmcs = [b for n in told.nodes for b in n.bmcs]
    ways = Counter(b.way for b in bmcs)
    ports, counted = sum(n.ports for n in told.nodes), sum(n.counted for n in told.nodes)
    pushing = sum(pushed(n, told.at) for n in told.nodes)
    reports = sum(b.reports for b in bmcs)
    kinds = Counter(c for a in alerts for c in a.classifications)
    missing = len(told.nodes) - pushing
    rows = [
        ("nodes", len(told.nodes), f"{len(unwatched)} serve and are not watched yet"),
        *((f"BMCs: {way}", ways[way], NOTES[way]) for way in Way if ways[way]),
        ("metric reports", reports, f"polled, of {sum(b.reports > 0 for b in bmcs)} BMCs"),
        ("leaf ports", counted, f"of {ports} are counted, at {len(told.leaves)} leaves"),
        ("counters pushed", pushing, f"nodes; without: {missing}, nothing of {NEED_PUSH}"),
        ("alerts", len(alerts), ", ".join(f"{k} {n}" for k, n in sorted(kinds.items()))),
        ("requests", told.requests, f"since the start; at most {told.requests_per_s:g} a second"),
    ]
    table = Table(show_header=False, box=None)
    for word, number, note in rows:
        table.add_row(word, str(number), Text(note))
    console().print(table)
    if not told.listener:
        typer.echo("Nothing can be pushed: `serve` has no --events-url.")
    if not told.routine:
        typer.echo("The daemon is overloaded: routine looks are put off.")
    standing = Counter(a.node for a in alerts)
    each = Table(
        "node", "BMCs that tell", "polled", "last look", "leaf ports", "counters", "alerts"
    )
    first = sorted(told.nodes, key=lambda n: (-standing[n.node], n.looked_at, n.node))[:rows_max]
    for node in first:
        told_by = sum(b.way in (Way.STREAM, Way.SUBSCRIPTION) for b in node.bmcs)
        each.add_row(
            Text(node.node),
            f"{told_by} of {len(node.bmcs)}",
            f"{sum(b.reports for b in node.bmcs)} reports",
            _ago(node.looked_at, told.at),
            f"{node.counted} of {node.ports}",
            "pushed" if pushed(node, told.at) else "none",
            str(standing[node.node]),
        )
    if first:
        console().print(each)
    if len(first) < len(told.nodes):
        typer.echo(f"... and {len(told.nodes) - len(first)} more: --all")


def _one(node: WatchedNode, alerts: Sequence[Alert], now: float) -> None:
    table = Table("BMC", "way", "last heard of", "metric reports", "that is")
    for bmc in node.bmcs:
        heard = _ago(bmc.heard_at, now)
        table.add_row(Text(bmc.bmc), bmc.way, heard, str(bmc.reports), NOTES[bmc.way])
    out = console()
    out.print(table)
    out.print(f"leaf ports counted: {node.counted} of {node.ports}")
    out.print(f"last counters pushed: {_ago(node.counters_at, now)}")
    for line in lacking(node, now):
        out.print(f"nobody tells: {line}")
    standing = [a for a in alerts if a.node == node.node]
    out.print(f"alerts that stand: {len(standing)}")
    for alert in standing:
        said = f"  {alert.id} {alert.target}: {alert.message}"
        out.print("".join(c if c.isprintable() else "\ufffd" for c in said))


def _ago(at: float, now: float) -> str:
    return f"{_span(max(0.0, now - at))} ago" if at else "never"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
