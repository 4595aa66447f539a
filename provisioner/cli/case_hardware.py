"""`provisioner case returned` and `replace`: what people changed in a node, and its new logins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.data_options import DataOption, JsonOption, node_of, with_data
from provisioner.control.case_desk import CaseDesk
from provisioner.model.case import Case, Ending
from provisioner.model.input_error import InputError
from provisioner.opening import Data, read_expected, read_secrets, read_settings
from provisioner.planning import parts
from provisioner.store.alert_rows import AlertRows
from provisioner.store.case_rows import CaseRows
from provisioner.wall_clock import WallClock

CARDS = "nvidia_openbmc"  # the vendor declaration of BlueField cards
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help='As listed, "n07-c0003".')]
ByOption = Annotated[str, typer.Option("--by", help="Who says so; it is kept for good.")]


def returned(
    name: CaseArgument,
    work: Annotated[str, typer.Option("--work", help="What was done, in a sentence.")],
    by: ByOption = "operator",
    card: Annotated[
        list[str] | None, typer.Option("--card", help="A card (its BMC) that was exchanged.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Expected hardware: factory credentials.")
    ] = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """People are done with it: it is taken in as a stranger, and certified for what changed."""

    async def carry_out(opened: Data) -> Case | str:
        case = await case_of(opened, name)
        answer = await desk_of(opened, None).returned(case, by, work)
        if not isinstance(answer, str) and card:
            await _strangers(opened, case, card, file)
        return answer

    tell(with_data(data, carry_out), name, as_json=as_json)


def replace(
    name: CaseArgument,
    file: Annotated[Path, typer.Option("--file", help="Expected hardware, with the new host.")],
    why: Annotated[str, typer.Option("--why")] = "another host was put into its place",
    by: ByOption = "operator",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Another host stands in the place: it keeps name, location and cables, and nothing else."""

    async def work(opened: Data) -> Case | str:
        case, now = await case_of(opened, name), WallClock().now()
        node = await node_of(opened, case.node)
        if node.state.value not in ("repairing", "quarantined", "discovered"):
            return f"{node.id} is {node.state}: it is not out of service"
        made = parts.replaced_host(node, now)
        closed = await desk_of(opened, None).close(case, Ending.REPLACED, by, why)
        if isinstance(closed, str):
            return closed
        if node.certificate:
            await opened.store.revoke(node.certificate, why, now)
        await opened.store.save_node(made.node)
        await _factory(opened, made.node.id, [b.name for b in made.node.bmcs], file)
        await opened.store.journal("replaced", node.id, {"case": case.id, "by": by}, now)
        return closed

    tell(with_data(data, work), name, as_json=as_json)


def tell(answer: Case | str, name: str, *, as_json: bool) -> None:
    if isinstance(answer, str):
        raise InputError(name, "", answer, "See `provisioner case list --all`.")
    if as_json:
        typer.echo(json.dumps(answer.model_dump(mode="json")))
    else:
        typer.echo(f"{answer.id}: {answer.stage} ({answer.service}) {answer.note}".rstrip())


def desk_of(opened: Data, settings: Path | None) -> CaseDesk:
    chosen = read_settings(settings)
    book, alerts = CaseRows(opened.store), AlertRows(opened.store)
    return CaseDesk(opened.store, book, alerts, WallClock(), chosen)


async def case_of(opened: Data, name: str) -> Case:
    found = await CaseRows(opened.store).case(name)
    if found is None:
        raise InputError(name, "", "there is no such case", "See `provisioner case list --all`.")
    return found


async def _strangers(opened: Data, case: Case, cards: list[str], file: Path | None) -> None:
    """Exchanged cards lose pin, serial and credential; they have their factory credential."""
    node = await node_of(opened, case.node)
    unknown = sorted(set(cards) - {b.name for b in node.bmcs})
    if unknown:
        raise InputError(unknown[0], "--card", f"{node.id} has no such card", "See its BMCs.")
    if file is None:
        remedy = "Name the expected-hardware list: it has the factory credentials."
        raise InputError("--file", "", "the exchanged card's login is not known", remedy)
    changed = node.model_copy(update={"bmcs": parts.strangers(node, cards)})
    await opened.store.save_node(changed)
    await _factory(opened, node.id, cards, file)


async def _factory(opened: Data, node: str, names: list[str], file: Path) -> None:
    """The factory credential of the list for each of these BMCs of a node."""
    secrets = read_secrets(read_expected(file), os.environ)
    wanted, seen = await node_of(opened, node), await opened.store.inventory(node)
    kinds = {b.name: b.kind for b in wanted.bmcs}
    for name in names:
        host = seen.vendor if seen is not None else "unknown"
        vendor = CARDS if kinds.get(name) in ("dpu", "supernic") else host
        login = secrets.factory.get(vendor)
        if login is None:
            problem = f"there is none for {vendor}"
            raise InputError(str(file), "factory_credentials", problem, "Add it to the list.")
        await opened.vault.put(f"{node}/{name}", *login)
