"""`provisioner case returned` and `replace`: what people changed in a node, and its new logins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.data_options import DataOption, JsonOption, with_data
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.control.repairs.case_exchange import Exchanges, Login, kept_factory
from provisioner.daemon.data import Data, read_expected, read_secrets, read_settings
from provisioner.execution.steps.farewell import FACTORY
from provisioner.model.case import Case
from provisioner.model.input_error import InputError
from provisioner.store.repositories.alert_rows import AlertRows
from provisioner.store.repositories.case_rows import CaseRows

CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help='As listed, "n07-c0003".')]
FactoryFile = Annotated[
    Path | None,
    typer.Option("--file", help="Expected hardware: factory credentials; else those kept."),
]
ByOption = Annotated[str, typer.Option("--by", help="Who says so; it is kept for good.")]


def returned(
    name: CaseArgument,
    work: Annotated[str, typer.Option("--work", help="What was done, in a sentence.")],
    by: ByOption = "operator",
    card: Annotated[
        list[str] | None, typer.Option("--card", help="A card (its BMC) that was exchanged.")
    ] = None,
    file: FactoryFile = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """People are done with it: it is taken in as a stranger, and certified for what changed."""

    async def carry_out(opened: Data) -> Case | str:
        case = await case_of(opened, name)
        return await _exchanges(opened, file).returned(case, by, work, card or ())

    tell(with_data(data, carry_out), name, as_json=as_json)


def replace(
    name: CaseArgument,
    file: FactoryFile = None,
    why: Annotated[str, typer.Option("--why")] = "another host was put into its place",
    by: ByOption = "operator",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Another host stands in the place: it keeps name, location and cables, and nothing else."""

    async def work(opened: Data) -> Case | str:
        case = await case_of(opened, name)
        return await _exchanges(opened, file).replace(case, by, why)

    tell(with_data(data, work), name, as_json=as_json)


def factory(
    file: Annotated[Path, typer.Option("--file", help="Expected hardware: factory credentials.")],
    forget: Annotated[bool, typer.Option("--forget", help="Forget those of the list.")] = False,
    data: DataOption = Path("var"),
) -> None:
    """Keep the list's factory logins, sealed: what is exchanged through the API needs them."""
    found = read_secrets(read_expected(file), os.environ).factory

    async def keep(opened: Data) -> None:
        for vendor, login in sorted(found.items()):
            if forget:
                await opened.vault.remove(f"{FACTORY}/{vendor}")
            else:
                await opened.vault.put(f"{FACTORY}/{vendor}", *login)
        detail = {"vendors": sorted(found), "forgotten": forget}
        await opened.store.journal("factory_logins", "", detail, opened.clock.now())

    with_data(data, keep)
    typer.echo(f"{'forgotten' if forget else 'kept'}: {', '.join(sorted(found)) or 'none'}")


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
    return CaseDesk(opened.store, book, alerts, opened.clock, chosen)


async def case_of(opened: Data, name: str) -> Case:
    found = await CaseRows(opened.store).case(name)
    if found is None:
        raise InputError(name, "", "there is no such case", "See `provisioner case list --all`.")
    return found


def _exchanges(opened: Data, file: Path | None) -> Exchanges:
    """With the factory logins of a list, or else those that the vault keeps."""
    find = kept_factory(opened.vault)
    if file is not None:
        listed = read_secrets(read_expected(file), os.environ).factory

        async def find(vendor: str) -> Login | None:
            return listed.get(vendor)

    return Exchanges(opened.store, desk_of(opened, None), opened.vault, opened.clock, find)
