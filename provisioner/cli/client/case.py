"""`provisioner case`: report a fault of a node, see what is suspected, say what was done."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from provisioner.cli.client import case_bundle, case_hardware
from provisioner.cli.client import case_words as words
from provisioner.cli.client.case_hardware import ByOption, CaseArgument, case_of, desk_of, tell
from provisioner.cli.options.confirmation import (
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
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.control.repairs.repair_figures import figures
from provisioner.daemon.data import Data
from provisioner.model.case import Case, Ending, Origin, Service
from provisioner.model.input_error import InputError
from provisioner.planning.repair.case_policy import PlannedWork
from provisioner.planning.repair.repair_report import RepairReport
from provisioner.runtime.site_clock import site_clock
from provisioner.store.repositories.case_rows import CaseRows

app = typer.Typer(help="Repairs: cases, what is suspected, what was done.", no_args_is_help=True)
app.command()(case_hardware.returned)
app.command()(case_hardware.replace)
app.command()(case_hardware.factory)
app.command()(case_bundle.bundle)
app.command()(case_bundle.verify_bundle)
app.command()(case_bundle.rma)
app.command()(case_bundle.spare)
app.command("tell")(case_bundle.tell_again)
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="As the daemon's.")]
BeginsOption = Annotated[
    float,
    typer.Option("--begins-in", min=0.0, help="Hours until planned work; 0: the site's notice."),
]
LastsOption = Annotated[
    float, typer.Option("--lasts", min=0.0, help="Hours that planned work takes; 0: not known.")
]
Asked = Callable[[CaseDesk, Case], Awaitable[Case | str]]


@app.command("open")
def open_case(
    name: Annotated[str, typer.Argument(metavar="NODE")],
    reason: Annotated[str, typer.Option("--reason", help="What is wrong, in a sentence.")],
    by: ByOption = "operator",
    tenant: Annotated[bool, typer.Option("--tenant", help="Its tenant reports it.")] = False,
    service: Annotated[
        Service | None, typer.Option("--service", help="Instead of the site's policy.")
    ] = None,
    maintenance: Annotated[
        bool, typer.Option("--maintenance", help="Planned work; nothing is wrong with the node.")
    ] = False,
    begins_in: BeginsOption = 0.0,
    lasts: LastsOption = 0.0,
    settings: SettingsOption = None,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Report a fault, or planned work: its tenant is told at once, policy decides on its use."""
    if maintenance and tenant:
        raise InputError(name, "--maintenance", "planned work is the site's", "Leave --tenant out.")
    origin = Origin.TENANT if tenant else Origin.OPERATOR
    planned = _plan_work(data, begins_in, lasts) if maintenance else None

    async def work(opened: Data) -> Case | str:
        node = await node_of(opened, name)
        asked = Origin.MAINTENANCE if maintenance else origin
        desk = desk_of(opened, settings)
        return await desk.open(node, asked, reason, by, service=service, planned=planned)

    answer = with_data(data, work)
    tell(answer, name, as_json=as_json)
    if isinstance(answer, Case) and answer.tenant and not as_json:
        given = with_data(data, lambda d: CaseRows(d.store).notices(answer.tenant))
        mine = [n for n in given if n.case == answer.id]
        if mine and mine[-1].delivery == "recorded only":
            typer.echo(f"{answer.tenant}: no webhook takes its notices; this one is recorded only")


@app.command("open-rack")
def open_rack(
    rack: Annotated[str, typer.Argument(metavar="RACK")],
    reason: Annotated[str, typer.Option("--reason", help="What is wrong, in a sentence.")],
    by: ByOption = "operator",
    service: Annotated[Service, typer.Option("--service")] = Service.DRAIN,
    begins_in: BeginsOption = 0.0,
    lasts: LastsOption = 0.0,
    data: DataOption = Path("var"),
) -> None:
    """Give a whole rack back for planned maintenance: a case for each of its hosts."""
    planned = _plan_work(data, begins_in, lasts)

    async def work(opened: Data) -> list[str]:
        nodes = [n for n in await opened.store.nodes() if n.location.rack == rack and n.ports]
        if not nodes:
            raise InputError(rack, "", "no host stands in such a rack", "See `node list`.")
        desk, told = desk_of(opened, None), []
        for node in nodes:
            made = await desk.open(
                node, Origin.MAINTENANCE, reason, by, service=service, planned=planned
            )
            told.append(f"{node.id}: {made if isinstance(made, str) else made.id}")
        return told

    for line in with_data(data, work):
        typer.echo(line)


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
        table.add_row(*(words.shown(word) for word in words.row(case)))
    show_table(table, "There is no such case.")


@app.command()
def show(name: CaseArgument, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """One case: stages, suspects with evidence, what was tried and what it changed, parts."""
    case = with_data(data, lambda d: case_of(d, name))
    if as_json:
        typer.echo(json.dumps(case.model_dump(mode="json")))
        return
    out = console()
    for line in words.lines(case):
        out.print(words.shown(line))


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
    until = site_clock(data).now() + hours * 3600.0
    _ask(name, data, settings, lambda desk, case: desk.defer(case, until, by), as_json=as_json)


@app.command()
def retire(
    name: CaseArgument,
    why: Annotated[str, typer.Option("--why", help="In a sentence; its tenant reads it.")],
    days: Annotated[float, typer.Option("--days", min=0.0, help="The notice.")] = 14.0,
    disks: Annotated[
        str, typer.Option("--disks", help="Who destroyed its disks, and how: it is not erased.")
    ] = "",
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Tell its tenant that the node goes for good; then it is drained, erased and forgotten."""
    at, actor = site_clock(data).now() + days * 86400.0, name_actor(by)
    case = with_data(data, lambda d: case_of(d, name))
    if not case.open:
        tell("it is closed", name, as_json=as_json)
    lines = words.retirement(case, at, disks)
    confirm_change(lines, yes=yes, dry_run=dry_run, as_json=as_json)

    async def retiring(desk: CaseDesk, _now: Case) -> Case | str:  # the case that was shown
        return await desk.retire(case, at, why, actor, disks=disks)

    _ask(name, data, None, retiring, as_json=as_json)


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
def notices(
    tenant: Annotated[str, typer.Option("--tenant", help="Of this tenant only.")] = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Notices to tenants: failures, maintenance, returns, retirement; and whether they were sent.

    A notice that no webhook takes is recorded only: its tenant reads it here or in the API.
    """
    found = with_data(data, lambda d: CaseRows(d.store).notices(tenant))
    if as_json:
        typer.echo(json.dumps([n.model_dump(mode="json") for n in found]))
        return
    table = Table("at", "tenant", "node", "kind", "from", "delivery", "says")
    for n in found:
        told = (
            words.minute(n.at),
            n.tenant,
            n.node,
            n.kind,
            words.minute(n.effective_at),
            n.delivery,
            n.text,
        )
        table.add_row(*(words.shown(word) for word in told))
    show_table(table, "No tenant was told anything.")


@app.command()
def report(
    days: Annotated[float, typer.Option("--days", min=0.01)] = 30.0,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Mean time to repair by stage, part and vendor; availability per tenant."""

    async def read(opened: Data) -> RepairReport:
        now = opened.clock.now()
        return await figures(CaseRows(opened.store), now - days * 86400.0, now)

    found = with_data(data, read)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for table in words.report_tables(found):
        console().print(table)


def _plan_work(data: Path, begins_in_h: float, lasts_h: float) -> PlannedWork:
    """Return when planned work begins and ends, by the site's clock."""
    now = site_clock(data).now()
    begins_at = now + begins_in_h * 3600.0 if begins_in_h else 0.0
    ends_at = (begins_at or now) + lasts_h * 3600.0 if lasts_h else 0.0
    return PlannedWork(begins_at=begins_at, ends_at=ends_at)


def _ask(name: str, data: Path, settings: Path | None, asked: Asked, *, as_json: bool) -> None:
    async def work(opened: Data) -> Case | str:
        return await asked(desk_of(opened, settings), await case_of(opened, name))

    tell(with_data(data, work), name, as_json=as_json)
