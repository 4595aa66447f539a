"""`provisioner pdu show`: outlets as they are, and what an AC cycle would switch. Nothing is sent.

The daemon switches outlets by itself, as the last way of an AC cycle; this is its dry run, with the
daemon's own rules. Only readings leave this command.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.checked_options import check_ca
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import read_expected, read_settings
from provisioner.execution.actions.power import Feeds, check_users, read_each_outlet
from provisioner.model.input_error import InputError
from provisioner.model.location import OutletState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.path.activation import check_outlets_on
from provisioner.runtime import permit
from provisioner.runtime.integrations import build_pdus, find_outlet_users
from provisioner.settings import Settings

app = typer.Typer(help="PDUs: read outlets; preview an AC cycle.", no_args_is_help=True)


@app.callback()
def pdu() -> None:
    """PDUs: read outlets; preview an AC cycle."""


@app.command("show")
def show(
    expected: Annotated[Path, typer.Option("--file", help="The expected-hardware list.")],
    settings: Annotated[Path, typer.Option(help="The site's settings, with `pdus`.")],
    node: Annotated[
        list[str] | None, typer.Option(help="Only this node; repeat it for more.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="File of trusted CAs, PEM.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Read the outlets of nodes, and print what an AC cycle of each would switch.

    Exit code 1: an outlet cannot be read or must not be switched. Nothing is switched.

    Example: provisioner pdu show --file expected.yaml --settings settings.yaml --node su0-n00
    """
    check_ca("--ca", ca)
    listed = read_expected(expected).nodes
    chosen = [n for n in listed if n.outlets and (not node or n.name in node)]
    if not chosen:
        remedy = "Add `outlets` to a node of the list, or correct --node."
        raise InputError("--node", ", ".join(node or ()), "no such node has outlets", remedy)
    nodes = [Node(id=n.name, kind=n.kind, outlets=n.outlets) for n in listed]
    names = {n.name for n in chosen}
    asked = [n for n in nodes if n.id in names]
    with permit.close_gate("this command only reads"):
        rows = asyncio.run(_read(asked, nodes, read_settings(settings), ca))
    if as_json:
        typer.echo(json.dumps({"nodes": rows}, indent=2))
    else:
        _print(rows)
    if any(row["refused"] for row in rows):
        raise typer.Exit(1)


async def _read(
    chosen: Sequence[Node], nodes: Sequence[Node], settings: Settings, ca: Path | None
) -> list[dict[str, Any]]:
    transport = RedfishTransport(ca_file=ca)

    async def read_nodes() -> Sequence[Node]:
        return nodes

    try:
        pdus = build_pdus(settings, transport, os.environ)
        feeds = Feeds(pdus, read_nodes, find_users=partial(find_outlet_users, settings))
        return [await _read_node(feeds, node, nodes) for node in chosen]
    finally:
        await transport.close()


async def _read_node(feeds: Feeds, node: Node, nodes: Sequence[Node]) -> dict[str, Any]:
    refused = await check_users(feeds, node, nodes)
    named = [o for o in node.outlets if o.pdu in feeds.pdus]
    answers = dict(zip(named, await read_each_outlet(feeds, named), strict=True))
    states = {o: s for o, s in answers.items() if isinstance(s, OutletState)}
    unread = next((a for a in answers.values() if isinstance(a, Blocker)), None)
    refused = refused or unread or check_outlets_on(node.id, states)
    return {
        "node": node.id,
        "outlets": [
            {"pdu": o.pdu, "outlet": o.outlet, "state": str(states.get(o, OutletState.UNKNOWN))}
            for o in node.outlets
        ],
        "would_switch": [] if refused else [str(o) for o in node.outlets],
        "refused": refused.model_dump(mode="json") if refused else None,
    }


def _print(rows: Sequence[dict[str, Any]]) -> None:
    table = Table("node", "outlet", "state", "an AC cycle by outlets", title="Outlets")
    for row in rows:
        refused = row["refused"]
        answer = "off at once, then on"
        if refused:
            answer = f"refused: {refused['detail']}. {refused['unblock']}"
        for outlet in row["outlets"]:
            table.add_row(
                row["node"],
                f"{outlet['pdu']}/{outlet['outlet']}",
                outlet["state"],
                answer.replace("[", r"\["),
            )
    open_console().print(table)
