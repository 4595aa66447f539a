"""`provisioner node`: what each node is, why it is there, and what a person may ask of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.client.campaign_options import MatrixOption, SettingsOption, show_blockers
from provisioner.cli.client.erasure import erasure
from provisioner.cli.client.node_watch import watch
from provisioner.cli.options.confirmation import (
    AcceptNoReturnOption,
    ActorOption,
    DryRunOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    show_table,
    with_data,
)
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import Data, read_settings
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.release import Verdict
from provisioner.model.tenant import ReleaseProof
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.operator_requests import reclaim as plan_reclaim
from provisioner.planning.lifecycle.operator_requests import retry as plan_retry
from provisioner.planning.lifecycle.reclaiming import describe_reclaim, find_return_obstacles
from provisioner.store.rows.request_writes import write_node_request

app = typer.Typer(help="Nodes: where each is on its journey, and why.", no_args_is_help=True)
app.command()(erasure)
app.command()(watch)


@app.command("list")
def list_nodes(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """All nodes with state, place and what each waits for."""
    nodes = with_data(data, lambda d: d.store.nodes())
    if as_json:
        typer.echo(json.dumps([n.model_dump(mode="json") for n in nodes]))
        return
    table = Table("node", "kind", "state", "VRF", "tenant", "note")
    for node in nodes:
        note = str(node.blockers[0]) if node.blockers else node.note
        table.add_row(
            node.id, node.kind, node.state, node.vrf or "–", node.tenant or "–", Text(note)
        )
    show_table(table, "There is no node yet: `provisioner intake --file LIST` takes nodes in.")


@app.command()
def show(name: str, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """One node: state, blockers with what would unblock them, components."""

    async def read(opened: Data) -> tuple[Node, object, ReleaseProof | None]:
        node = await node_of(opened, name)
        return node, await opened.store.inventory(name), await opened.store.proof(name)

    node, inventory, proof = with_data(data, read)
    if as_json:
        document = {"node": node.model_dump(mode="json"), "inventory": _dump(inventory)}
        document["release"] = None if proof is None else _release(proof)
        typer.echo(json.dumps(document))
        return
    out = console()
    out.print(f"{node.id} {node.kind} · {node.state} · {node.location}", style="bold")
    out.print(f"release {node.release or '–'} · profile {node.profile or '–'} · {node.note}")
    if proof is not None:
        short = _release(proof)
        words = f"{short['tenant']}, {short['rows_passed']} of {short['rows']} rows passed"
        out.print(f"last release: {words} (`provisioner release proof {node.id}`)", markup=False)
    for blocker in node.blockers:
        out.print(f"  blocked: {blocker}\n  unblock: {blocker.unblock}")
    components = getattr(inventory, "components", ())
    if components:
        table = Table("component", "slot", "running", "staged", "source")
        for c in components:
            told = (c.kind, c.slot, c.version or "?", c.staged or "", c.source)
            table.add_row(*(Text(word) for word in told))
        out.print(table)


@app.command()
def retry(name: str, by: ActorOption = "", data: DataOption = Path("var")) -> None:
    """Let a quarantined node try again, from where its place allows it."""

    async def apply(opened: Data) -> str:
        now = opened.clock.now()
        changed = _expected(name, plan_retry(await node_of(opened, name), now))
        await _save(opened, changed, {"request": "retry", "by": name_actor(by)}, now)
        return changed.state

    typer.echo(f"{name}: {with_data(data, apply)}")


@app.command()
def reclaim(
    name: str,
    for_repair: Annotated[
        bool, typer.Option(help="It goes back to the same tenant when it is well again.")
    ] = False,
    accept_no_return: AcceptNoReturnOption = False,
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    settings: SettingsOption = None,
) -> None:
    """Take a released node back: it is fenced into the maintenance tenant and erased first.

    Exit code 1: it could not serve again afterwards, and nobody said that this is meant.
    """
    policy, pinned = policy_of(read_settings(settings)), read_matrix(matrix or [])

    async def look(opened: Data) -> tuple[Node, Node, float]:
        node, now = await node_of(opened, name), opened.clock.now()
        return node, _expected(name, plan_reclaim(node, now, for_repair=for_repair)), now

    node, drained, now = with_data(data, look)
    obstacles = find_return_obstacles(drained, pinned, policy)
    lines = describe_reclaim(node, drained, policy, now)
    if obstacles and not accept_no_return:
        typer.echo("\n".join(lines))
        show_blockers(obstacles)
        raise typer.Exit(1)
    confirm_change((*lines, *(f"{b.subject}: {b.detail}" for b in obstacles)), yes=yes,
                   dry_run=dry_run)  # fmt: skip
    detail = {"request": "reclaim", "by": name_actor(by)}
    if obstacles:
        detail["accepted"] = obstacles[0].detail
    with_data(data, lambda opened: _save(opened, drained, detail, opened.clock.now()))
    typer.echo(f"{name}: {drained.state}")


def _expected(name: str, changed: Node | str) -> Node:
    """Return the changed node. Raises InputError with the reason why it cannot be changed so."""
    if isinstance(changed, str):
        raise InputError(name, "", changed, "See `provisioner node show`.")
    return changed


async def _save(opened: Data, node: Node, detail: dict[str, str], now: float) -> None:
    await opened.store.write(lambda c: write_node_request(c, node, detail, now))


def _release(proof: ReleaseProof) -> dict[str, object]:
    """A proof in short."""
    return {
        "tenant": proof.tenant,
        "vrf": proof.vrf,
        "certificate": proof.certificate,
        "confirmed_at": proof.confirmed_at,
        "sha256": proof.sha256,
        "rows": len(proof.gate),
        "rows_passed": sum(r.verdict is Verdict.PASS for r in proof.gate),
    }


def _dump(inventory: object) -> object:
    dump = getattr(inventory, "model_dump", None)
    return dump(mode="json") if dump else None
