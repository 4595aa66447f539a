"""The watch over released nodes for people: which are watched, how, and which data are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.showing import open_console
from provisioner.model.watch import WatchedNode, WatchStatus, Way

Document = Mapping[str, Any]

NODES_MAX = 40  # rows for people; --all and --json show every node
RECENT_S = 900.0  # counters whose last push is older than this count as stopped
NEED_PUSH = "QueueStuck, Rocet.*"  # docs/watch.md: these counters are in the tenant's host
NEED_LEAF = "LinkFlap, LinkDown"
NOTES = {
    Way.STREAM: "it tells at once",
    Way.STREAM_BROKEN: "opened again and again; glances meanwhile",
    Way.SUBSCRIPTION: "it posts to our listener",
    Way.UNPROVED: "nothing came: let it trust agent-ca.pem; glances",
    Way.POLLED: "glances and sweeps only",
}


def show_watch(document: Document, given: Document) -> None:
    """Print which nodes are watched and how: all nodes, or one of them, BMC by BMC."""
    status = WatchStatus.model_validate(document["status"], strict=False)
    alerts = document["alerts"]
    name = given.get("node") or ""
    if name:
        for node in (n for n in status.nodes if n.node == name):
            _one(node, alerts.get(name, 0), status.at)
        return
    _whole(status, alerts, document["unwatched"], None if given.get("all") else NODES_MAX)
    if document["stale"]:
        age = _span(document["age_s"])
        typer.echo(f"The daemon reported nothing for {age}: all of this is as old.", err=True)


def list_missing(node: WatchedNode, now: float) -> list[str]:
    """Return the data of a node that no source reports."""
    missing = []
    if not has_pushed(node, now):
        missing.append(f"{NEED_PUSH}: no counters are pushed")
    if node.counted < node.ports:
        silent = node.ports - node.counted
        missing.append(
            f"{NEED_LEAF}: {silent} of {node.ports} ports are not counted by their leaves"
        )
    elif not node.ports:
        missing.append(f"{NEED_LEAF}: no leaf is known")
    return missing


def has_pushed(node: WatchedNode, now: float) -> bool:
    """Return whether a source pushes counters of its ports."""
    return node.counters_at > 0 and now - node.counters_at <= RECENT_S


def _whole(
    told: WatchStatus, alerts: Mapping[str, int], unwatched: Sequence[str], rows_max: int | None
) -> None:
    """Print the sum, then a row for each node."""
    bmcs = [b for n in told.nodes for b in n.bmcs]
    ways = Counter(b.way for b in bmcs)
    ports = sum(n.ports for n in told.nodes)
    counted = sum(n.counted for n in told.nodes)
    pushing = sum(has_pushed(n, told.at) for n in told.nodes)
    reports = sum(b.reports for b in bmcs)
    missing = len(told.nodes) - pushing
    rows = [
        ("nodes", len(told.nodes), f"{len(unwatched)} serve and are not watched yet"),
        *((f"BMCs: {way}", ways[way], NOTES[way]) for way in Way if ways[way]),
        ("metric reports", reports, f"polled, of {sum(b.reports > 0 for b in bmcs)} BMCs"),
        ("leaf ports", counted, f"of {ports} are counted, at {len(told.leaves)} leaves"),
        ("ports of leaves", len(told.leaf_ports_read), "leaves whose ports were all read"),
        ("ports not moved", len(told.listed_ports), "in customers' networks, and not a node's"),
        ("counters pushed", pushing, f"nodes; without: {missing}, nothing of {NEED_PUSH}"),
        ("alerts", sum(alerts.values()), f"of {len(alerts)} nodes"),
        ("requests", told.requests, f"since the start; at most {told.requests_per_s:g} a second"),
    ]
    table = Table(show_header=False, box=None)
    for word, number, note in rows:
        table.add_row(word, str(number), Text(note))
    open_console().print(table)
    if not told.listener:
        typer.echo("Nothing can be pushed: `serve` has no --events-url.")
    if not told.routine:
        typer.echo("The daemon is overloaded: routine looks are put off.")
    _print_listed_ports(told, rows_max)
    each = Table(
        "node", "BMCs that tell", "polled", "last look", "leaf ports", "counters", "alerts"
    )
    ordered = sorted(told.nodes, key=lambda n: (-alerts.get(n.node, 0), n.looked_at, n.node))
    first = ordered[:rows_max]
    for node in first:
        told_by = sum(b.way in (Way.STREAM, Way.SUBSCRIPTION) for b in node.bmcs)
        each.add_row(
            Text(node.node),
            f"{told_by} of {len(node.bmcs)}",
            f"{sum(b.reports for b in node.bmcs)} reports",
            _ago(node.looked_at, told.at),
            f"{node.counted} of {node.ports}",
            "pushed" if has_pushed(node, told.at) else "none",
            str(alerts.get(node.node, 0)),
        )
    if first:
        open_console().print(each)
    if len(first) < len(told.nodes):
        typer.echo(f"... and {len(told.nodes) - len(first)} more: --all")


def _print_listed_ports(told: WatchStatus, rows_max: int | None) -> None:
    """Print the ports that are left in a customer's network, each with its reason.

    `rows_max` None: all of them.
    """
    if not told.listed_ports:
        return
    table = Table("port that is not moved", "why")
    for name, why in list(told.listed_ports.items())[:rows_max]:
        table.add_row(Text(name), Text(why))
    open_console().print(table)
    if rows_max is not None and (more := len(told.listed_ports) - rows_max) > 0:
        typer.echo(f"... and {more} more ports: --all")


def _one(node: WatchedNode, alerts: int, now: float) -> None:
    table = Table("BMC", "way", "last heard of", "metric reports", "that is")
    for bmc in node.bmcs:
        heard = _ago(bmc.heard_at, now)
        table.add_row(Text(bmc.bmc), bmc.way, heard, str(bmc.reports), NOTES[bmc.way])
    out = open_console()
    out.print(table)
    out.print(f"leaf ports counted: {node.counted} of {node.ports}")
    out.print(f"last counters pushed: {_ago(node.counters_at, now)}")
    for line in list_missing(node, now):
        out.print(f"nobody tells: {line}")
    out.print(f"active alerts: {alerts} (`provisioner alert list --node {node.node}`)")


def _ago(at: float, now: float) -> str:
    return f"{_span(max(0.0, now - at))} ago" if at else "never"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
