"""`provisioner node watch`: the fleet while it moves, as bars, and the nodes that are under way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import DataOption, JsonOption, console, with_data
from provisioner.daemon.data import Data
from provisioner.model.node import Node, State

RESTING = frozenset({State.CERTIFIED, State.RELEASED, State.RETIRED, State.QUARANTINED})
ROWS_MAX = 30  # nodes under way that are shown; the bars count all


def watch(
    data: DataOption = Path("var"),
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between looks.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow the fleet: how many nodes are in each state, and what those under way do.

    It ends when every node rests, or with Ctrl-C; with --json each look is one object on a line.
    """
    with_data(data, lambda opened: _follow(opened, every_s, once=once, as_json=as_json))


async def _follow(opened: Data, every_s: float, *, once: bool, as_json: bool) -> None:
    clock = opened.clock
    nodes = await opened.store.nodes()
    if as_json:
        while True:
            typer.echo(json.dumps(counted(nodes)))
            if once or at_rest(nodes):
                return
            await asyncio.sleep(every_s)
            nodes = await opened.store.nodes()
    with Live(view(nodes, clock.now()), console=console(100), auto_refresh=False) as live:
        while not once and not at_rest(nodes):
            await asyncio.sleep(every_s)
            nodes = await opened.store.nodes()
            live.update(view(nodes, clock.now()), refresh=True)


def at_rest(nodes: Sequence[Node]) -> bool:
    """Whether nothing is under way."""
    return all(n.state in RESTING for n in nodes)


def counted(nodes: Sequence[Node]) -> dict[str, object]:
    """Nodes by state, and those under way with what they do."""
    states = Counter(n.state.value for n in nodes)
    moving = [
        {"node": n.id, "state": n.state.value, "note": n.note, "since": n.entered_at}
        for n in nodes
        if n.state not in RESTING
    ]
    return {"nodes": len(nodes), "states": dict(states), "under_way": moving}


def view(nodes: Sequence[Node], now: float) -> Group:
    """The bars, then the nodes under way, those that have been longest first."""
    bars = Table.grid(padding=(0, 1))
    states = Counter(n.state for n in nodes)
    for state in State:
        if states[state]:
            bar = ProgressBar(total=len(nodes), completed=states[state], width=40)
            bars.add_row(state.value, bar, Text(f"{states[state]} of {len(nodes)}"))
    moving = sorted((n for n in nodes if n.state not in RESTING), key=lambda n: n.entered_at)
    table = Table("node", "state", "for", "doing")
    for node in moving[:ROWS_MAX]:
        table.add_row(node.id, node.state.value, _age(now - node.entered_at), Text(node.note))
    more = len(moving) - ROWS_MAX
    rest = [Text(f"and {more} more")] if more > 0 else []
    return Group(bars, *([table, *rest] if moving else [Text("every node rests")]))


def _age(seconds: float) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours} h {minute:02d} min" if hours else f"{minute} min {second:02d} s"
