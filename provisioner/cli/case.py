"""`provisioner case`: report a fault of a node, see what is suspected, say what was done."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli import case_words as words
from provisioner.cli.data_options import DataOption, JsonOption, console, node_of, with_data
from provisioner.control.case_desk import CaseDesk
from provisioner.model.case import Case, Ending, Origin, Service
from provisioner.model.input_error import InputError
from provisioner.opening import Data, read_expected, read_secrets, read_settings
from provisioner.planning import parts, repair_report
from provisioner.store.alert_rows import AlertRows
from provisioner.store.case_rows import CaseRows
from provisioner.wall_clock import WallClock

app = typer.Typer(help="Repairs: cases, what is suspected, what was done.", no_args_is_help=True)
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help='As listed, "n07-c0003".')]
ByOption = Annotated[str, typer.Option("--by", help="Who says so; it is kept for good.")]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="As the daemon's.")]
Asked = Callable[[CaseDesk, Case], Awaitable[Case | str]]
CARDS = "nvidia_openbmc"  # the vendor declaration of BlueField cards
PAGE = 1000  # rows of the journal at a time
TOLD = frozenset({"released", "request"})  # its kinds that say whom a node served


@app.command("open")
def open_case(
    name: Annotated[str, typer.Argument(metavar="NODE")],
    reason: Annotated[str, typer.Option("--reason", help="What is wrong, in a sentence.")],
    by: ByOption = "operator",
    tenant: Annotated[bool, typer.Option("--tenant", help="Its tenant reports it.")] = False,
    service: Annotated[
        Service | None, typer.Option("--service", help="Instead of the site's policy.")
    ] = None,
    settings: SettingsOption = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Report a fault: its tenant is told at once, and policy decides what becomes of its use."""
    origin = Origin.TENANT if tenant else Origin.OPERATOR

    async def work(opened: Data) -> Case | str:
        node = await node_of(opened, name)
        return await _desk(opened, settings).open(node, origin, reason, by, service=service)

    _tell(with_data(data, work), name, as_json=as_json)


@app.command("list")
def list_cases(
    node: Annotated[str, typer.Option("--node", help="Of this node only.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Cases, the newest first."""
    found = with_data(data, lambda d: CaseRows(d.store).cases(node))
    cases = [c for c in found if all_ or c.open]
    if as_json:
        typer.echo(json.dumps([c.model_dump(mode="json") for c in cases]))
        return
    table = Table("case", "stage", "service", "tenant", "suspect", "sure", "waits for")
    for case in cases:
        table.add_row(*(Text(word) for word in words.row(case)))
    console().print(table)


@app.command()
def show(name: CaseArgument, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """One case: stages, suspects with evidence, what was tried and what it changed, parts."""
    case = with_data(data, lambda d: _case(d, name))
    if as_json:
        typer.echo(json.dumps(case.model_dump(mode="json")))
        return
    out = console()
    for line in words.lines(case):
        out.print(Text(line))


@app.command()
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
        case = await _case(opened, name)
        answer = await _desk(opened, None).returned(case, by, work)
        if not isinstance(answer, str) and card:
            await _strangers(opened, case, card, file)
        return answer

    _tell(with_data(data, carry_out), name, as_json=as_json)


@app.command()
def defer(
    name: CaseArgument,
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="From now.")],
    by: ByOption = "tenant",
    data: DataOption = Path("var"),
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Its tenant needs more time: at most two weeks after the opening."""
    until = WallClock().now() + hours * 3600.0
    _ask(name, data, settings, lambda desk, case: desk.defer(case, until, by), as_json=as_json)


@app.command()
def accept(
    name: CaseArgument, by: ByOption = "tenant", data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Its tenant agrees: the node is taken back now."""
    _ask(name, data, None, lambda desk, case: desk.accept(case, by), as_json=as_json)


@app.command()
def close(
    name: CaseArgument,
    why: Annotated[str, typer.Option("--why", help="In a sentence; it is kept for good.")],
    by: ByOption = "operator",
    ending: Annotated[Ending, typer.Option("--ending")] = Ending.NO_FAULT,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Close a case by hand. The node stays where it is: `provisioner node retry` moves it on."""
    _ask(name, data, None, lambda desk, case: desk.close(case, ending, by, why), as_json=as_json)


@app.command()
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
        case, now = await _case(opened, name), WallClock().now()
        node = await node_of(opened, case.node)
        if node.state.value not in ("repairing", "quarantined", "discovered"):
            return f"{node.id} is {node.state}: it is not out of service"
        made = parts.replaced_host(node, now)
        closed = await _desk(opened, None).close(case, Ending.REPLACED, by, why)
        if isinstance(closed, str):
            return closed
        if node.certificate:
            await opened.store.revoke(node.certificate, why, now)
        await opened.store.save_node(made.node)
        await _factory(opened, made.node.id, [b.name for b in made.node.bmcs], file)
        await opened.store.journal("replaced", node.id, {"case": case.id, "by": by}, now)
        return closed

    _tell(with_data(data, work), name, as_json=as_json)


@app.command()
def notices(
    tenant: Annotated[str, typer.Option("--tenant", help="Of this tenant only.")] = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """What tenants were told: failures, maintenance, returns, retirement."""
    found = with_data(data, lambda d: CaseRows(d.store).notices(tenant))
    if as_json:
        typer.echo(json.dumps([n.model_dump(mode="json") for n in found]))
        return
    table = Table("at", "tenant", "node", "kind", "from", "says")
    for n in found:
        told = (words.minute(n.at), n.tenant, n.node, n.kind, words.minute(n.effective_at), n.text)
        table.add_row(*(Text(word) for word in told))
    console().print(table)


@app.command()
def report(
    days: Annotated[float, typer.Option("--days", min=0.01)] = 30.0,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Mean time to repair by stage, part and vendor; availability per tenant."""

    async def read(opened: Data) -> repair_report.RepairReport:
        now = WallClock().now()
        cases = await CaseRows(opened.store).cases(limit=100_000)
        rows = await _journal(opened)
        return repair_report.report(cases, rows, now - days * 86400.0, now)

    found = with_data(data, read)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for table in words.report_tables(found):
        console().print(table)


def _ask(name: str, data: Path, settings: Path | None, asked: Asked, *, as_json: bool) -> None:
    async def work(opened: Data) -> Case | str:
        return await asked(_desk(opened, settings), await _case(opened, name))

    _tell(with_data(data, work), name, as_json=as_json)


def _tell(answer: Case | str, name: str, *, as_json: bool) -> None:
    if isinstance(answer, str):
        raise InputError(name, "", answer, "See `provisioner case list --all`.")
    if as_json:
        typer.echo(json.dumps(answer.model_dump(mode="json")))
    else:
        typer.echo(f"{answer.id}: {answer.stage} ({answer.service}) {answer.note}".rstrip())


def _desk(opened: Data, settings: Path | None) -> CaseDesk:
    chosen = read_settings(settings)
    book, alerts = CaseRows(opened.store), AlertRows(opened.store)
    return CaseDesk(opened.store, book, alerts, WallClock(), chosen)


async def _case(opened: Data, name: str) -> Case:
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


async def _journal(opened: Data) -> list[Mapping[str, Any]]:
    """Every row that says whom a node served."""
    found: list[Mapping[str, Any]] = []
    after = 0
    while rows := await opened.store.journal_rows(after, PAGE):
        found += [row for row in rows if row["kind"] in TOLD]
        after = int(rows[-1]["seq"])
    return found
