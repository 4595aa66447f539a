"""`provisioner node`: what each node is, why it is there, and what a person may ask of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.data_options import DataOption, JsonOption, console, node_of, with_data
from provisioner.cli.erasure import erasure
from provisioner.cli.node_watch import watch
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.release import Verdict
from provisioner.model.tenant import ReleaseProof
from provisioner.opening import Data
from provisioner.planning.requests import reclaim as reclaimed
from provisioner.planning.requests import retry as retried

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
    console().print(table)


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
def retry(name: str, data: DataOption = Path("var")) -> None:
    """Let a quarantined node try again, from where its place allows it."""
    _change(name, data, "retry", retried)


@app.command()
def reclaim(
    name: str,
    data: DataOption = Path("var"),
    for_repair: Annotated[
        bool, typer.Option(help="It goes back to the same tenant when it is well again.")
    ] = False,
) -> None:
    """Take a released node back: it is fenced into the maintenance tenant and erased first."""
    _change(name, data, "reclaim", partial(reclaimed, for_repair=for_repair))


def _change(
    name: str, directory: Path, word: str, change: Callable[[Node, float], Node | str]
) -> None:
    async def apply(opened: Data) -> str:
        now = opened.clock.now()
        changed = change(await node_of(opened, name), now)
        if isinstance(changed, str):
            raise InputError(name, "", changed, "See `provisioner node show`.")
        await opened.store.save_node(changed)
        await opened.store.journal("request", name, {"request": word}, now)
        return changed.state

    typer.echo(f"{name}: {with_data(directory, apply)}")


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
