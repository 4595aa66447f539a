"""`provisioner recovery`: settle what differs after a restore, then let the daemons act again."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    with_data,
)
from provisioner.daemon.data import Data
from provisioner.model.input_error import InputError
from provisioner.model.node import State
from provisioner.model.recovery import Difference, Word
from provisioner.model.tenant import PortPlacement
from provisioner.planning.watch.recovery import adopted_proof, settle_by_word
from provisioner.ports import StaleWrite
from provisioner.store.repositories.recovery_rows import RecoveryRows

app = typer.Typer(
    help="After a restore: what differs between rows and leaves, and what settles it.",
    no_args_is_help=True,
)
ByOption = Annotated[str, typer.Option("--by", help="Whose word it is.")]


@app.command("list")
def list_differences(
    whole: Annotated[bool, typer.Option("--all", help="Settled ones, too.")] = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Show why nothing is written to devices, and every difference that waits for a word."""

    async def read(opened: Data) -> tuple[str, float, list[Difference]]:
        book = RecoveryRows(opened.store)
        return await book.look_only(), await book.surveyed_at(), list(await book.differences())

    why, surveyed_at, found = with_data(data, read)
    shown = [d for d in found if whole or d.settled is None]
    if as_json:
        document = {
            "look_only": why,
            "surveyed_at": surveyed_at,
            "differences": [d.model_dump(mode="json") for d in shown],
        }
        typer.echo(json.dumps(document))
        return
    out = console()
    if not why:
        out.print("the daemon acts: no restore waits to be settled")
        return
    out.print(f"nothing is written to any device: {why}")
    if not surveyed_at:
        out.print("rows and leaves were not compared yet: `provisioner serve` does it")
        return
    at = datetime.fromtimestamp(surveyed_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    table = Table("what", "difference", "the row says", "the leaves say", "tenant there", "word")
    for one in shown:
        words = (one.subject, one.kind, one.row, one.world, one.tenant or "–", one.settled or "–")
        table.add_row(*(Text(str(word)) for word in words))
    if shown:
        out.print(table)
    waiting = sum(d.settled is None for d in found)
    out.print(f"{waiting} wait for a word, {len(found) - waiting} are settled; compared at {at}")


@app.command()
def settle(
    name: Annotated[str, typer.Argument(help="The node.")],
    word: Annotated[Word, typer.Argument(help="adopt: the leaves are right; keep: the row is.")],
    by: ByOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = Path("var"),
) -> None:
    """Settle one difference by a person's word. No port is moved before `recovery finish`.

    `adopt` takes over what the leaves say: a node that serves becomes its tenant's, one that has
    left its tenant is erased. `keep` holds to the row: a node that serves although its row does
    not say so is fenced and erased, which takes it from its customer.
    """

    async def find(opened: Data) -> Difference:
        for one in await RecoveryRows(opened.store).differences():
            if one.subject == name and one.settled is None:
                return one
        raise InputError(name, "", "it waits for no word", "See `provisioner recovery list`.")

    difference = with_data(data, find)
    typer.echo(f"{name}: the row says {difference.row}; the leaves say {difference.world}")
    if word is Word.RULE:
        raise InputError("rule", "", "this is no person's word", "Give adopt or keep.")
    if not yes:
        typer.confirm(f"{word}?", abort=True)

    async def apply(opened: Data) -> str:
        now = opened.clock.now()
        node = await node_of(opened, name)
        changed = settle_by_word(node, difference, word, now)
        if isinstance(changed, str):
            raise InputError(name, "", changed, "Give the other word, or put it right first.")
        read = [
            PortPlacement(switch=p.switch, interface=p.interface, vrf=difference.vrf)
            for p in changed.ports
        ]
        adopted = word is Word.ADOPT and changed.state is State.RELEASED
        proof = adopted_proof(changed, read, now) if adopted else None
        settled = {"settled": word, "settled_by": by or getpass.getuser(), "settled_at": now}
        await RecoveryRows(opened.store).settle(
            difference.model_copy(update=settled), changed, proof
        )
        return f"{changed.state}, tenant {changed.tenant or '–'}"

    typer.echo(f"{name}: {with_data(data, apply)}")


@app.command()
def finish(by: ByOption = "", data: DataOption = Path("var")) -> None:
    """Let the daemons act again. Exit code 2: differences wait for a word."""

    async def apply(opened: Data) -> None:
        book = RecoveryRows(opened.store)
        if not await book.look_only():
            raise InputError(str(data), "", "no restore waits to be settled", "Nothing is to do.")
        try:
            await book.finish(by or getpass.getuser(), opened.clock.now())
        except StaleWrite as stale:
            remedy = "See `provisioner recovery list`; `provisioner serve` compares."
            raise InputError(str(data), "", str(stale), remedy) from None

    with_data(data, apply)
    typer.echo("settled: the daemons act again")
