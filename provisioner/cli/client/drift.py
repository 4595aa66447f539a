"""`provisioner drift` and `debt`: who runs something else, and what waits for which reset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.client.campaign_options import MatrixOption
from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import Data
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, State
from provisioner.planning.campaigns import release_drift
from provisioner.planning.campaigns.release_drift import DebtLine, DriftLine
from provisioner.planning.campaigns.select_expression import select as picked
from provisioner.planning.path.history import history
from provisioner.store.repositories.campaign_rows import CampaignRows

SelectOption = Annotated[str, typer.Option("--select", help="Which nodes (docs/campaigns.md).")]


def drift(
    select: SelectOption = "all",
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Nodes that do not run what they are to run: by campaign, pin, or the fleet's release."""
    pinned = read_matrix(matrix or [])

    async def look(opened: Data) -> tuple[DriftLine, ...]:
        nodes, inventories = await _chosen(opened, select)
        book = CampaignRows(opened.store)
        targets = {c.id: c.target for c in await book.campaigns()}
        under_way: Mapping[str, tuple[CampaignRow, str]] = {
            r.node: (r, targets[r.campaign]) for r in await book.active_rows()
        }
        now = opened.clock.now()
        pins = await book.pins()
        return release_drift.drift(nodes, inventories, pinned, pins, under_way, now)

    found = with_data(data, look)
    if as_json:
        typer.echo(json.dumps([line.model_dump(mode="json") for line in found]))
        return
    table = Table("node", "state", "release", "is to run", "by", "behind")
    for line in found:
        behind = ", ".join(f"{b.kind} {b.running} → {b.wanted} ({b.slots})" for b in line.behind)
        expired = f"; expired: {line.pin_expired}" if line.pin_expired else ""
        words = (line.node, line.state, line.release, line.target, line.why + expired, behind)
        table.add_row(*(Text(word) for word in words))
    show_table(table, "Every node runs what it is to run.")


def debt(
    select: SelectOption = "all", data: DataOption = Path("var"), as_json: JsonOption = False
) -> None:
    """What is written and does not run yet, and which reset it waits for.

    Serving nodes whose certificate expired or was revoked are listed too.
    """

    async def look(opened: Data) -> tuple[DebtLine, ...]:
        nodes, inventories = await _chosen(opened, select)
        staged = {n.id: history(await opened.store.entries(n.id), "").staged for n in nodes}
        serving = [n for n in nodes if n.state is State.RELEASED]
        held = {n.id: await opened.store.certificate(n.certificate) for n in serving}
        revoked = {r.certificate for r in await opened.store.revocations()}
        return (
            *release_drift.debt(inventories, staged),
            *release_drift.lapsed(
                serving, {n: c for n, c in held.items() if c}, revoked, opened.clock.now()
            ),
        )

    found = with_data(data, look)
    if as_json:
        typer.echo(json.dumps([line.model_dump(mode="json") for line in found]))
        return
    table = Table("node", "component", "version", "slots", "waits for", "says")
    for line in found:
        slots = ", ".join(line.slots)
        words = (line.node, line.kind, line.version, slots, line.waits_for, line.source)
        table.add_row(*(Text(word) for word in words))
    show_table(table, "Nothing waits for a reset.")


async def _chosen(opened: Data, text: str) -> tuple[tuple[Node, ...], dict[str, Inventory]]:
    nodes = picked(text, await opened.store.nodes())
    found = {n.id: i for n in nodes if (i := await opened.store.inventory(n.id)) is not None}
    return nodes, found
