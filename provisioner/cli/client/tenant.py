"""`provisioner tenant`: create, change, shrink, delete, and what would be done on which device."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from provisioner.api.tenants import Wanted, told
from provisioner.cli.client.campaign_options import MatrixOption
from provisioner.cli.options.confirmation import (
    AcceptNoReturnOption,
    ActorOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    show_table,
    with_data,
)
from provisioner.cli.options.fabric_options import (
    Limited,
    PlanFile,
    UfmPin,
    UfmUrl,
    UfmUser,
    fabric_access,
)
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.control.fabric.tenant_keeper import Answer, TenantKeeper
from provisioner.daemon.data import Data, read_settings, read_text
from provisioner.daemon.tenants import open_keeper
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.reclaiming import find_return_obstacles
from provisioner.planning.matrix.located_yaml import load
from provisioner.planning.tenancy.quotas import usage
from provisioner.planning.tenancy.tenants import Request

Work = Callable[[TenantKeeper], Awaitable[Answer]]
Verb = Callable[[TenantKeeper], Callable[..., Awaitable[Answer]]]

app = typer.Typer(help="Tenants: their networks, quotas and nodes.", no_args_is_help=True)

Dry = Annotated[bool, typer.Option("--dry-run", help="Show each device's change; do nothing.")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="docs/settings.md.")]
CaFile = Annotated[Path | None, typer.Option("--ca-file", help="CAs of switches and UFM.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="vrf, nodes, units, ... (YAML).")]
OwnData = Annotated[Path | None, typer.Option("--data", help="Data directory of the daemon.")]
Nodes = Annotated[int | None, typer.Option(min=0, help="Nodes that it is to have.")]


@app.callback()
def options(
    context: typer.Context,
    data: DataOption = Path("var"),
    plan: PlanFile = None,
    settings: SettingsFile = None,
    ca_file: CaFile = None,
    ufm: UfmUrl = "",
    ufm_user: UfmUser = "",
    ufm_pin: UfmPin = "",
    default_limited: Limited = False,
) -> None:
    """Tenants: their networks, quotas and nodes."""
    chosen = read_settings(settings)
    access = fabric_access(plan, chosen, ca_file, (ufm, ufm_user, ufm_pin), default_limited)
    context.obj = (data, access, chosen)


@app.command("list")
def list_tenants(context: typer.Context, data: OwnData = None, as_json: JsonOption = False) -> None:
    """All tenants with their network, phase and nodes."""

    async def read(opened: Data) -> tuple[Any, Any]:
        return await opened.store.tenants(), await opened.store.nodes()

    rows, nodes = with_data(data or context.obj[0], read)
    if as_json:
        typer.echo(json.dumps([t.model_dump(mode="json") for t in rows]))
        return
    table = Table("tenant", "VRF", "VNI", "P_Key", "phase", "nodes", "wanted", "units")
    for t in rows:
        units = " ".join(f"pod{p}/su{u}" for p, u in t.units) or "all"
        pkey = f"{t.pkey:#06x}" if t.pkey else "–"
        used = usage(t, nodes)
        words = (t.name, t.vrf, t.l3vni or "–", pkey, t.phase, used.nodes, used.wanted, units)
        table.add_row(*(Text(str(word)) for word in words))
    show_table(table, "There is no tenant yet: `provisioner tenant create NAME` makes one.")


def wish(verb: Verb) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that says what a tenant is to be; its own text tells what it does with that."""

    def command(told: Callable[..., None]) -> Callable[..., None]:
        def asked(
            context: typer.Context,
            name: str,
            file: FileOption = None,
            nodes: Nodes = None,
            by: ActorOption = "",
            dry_run: Dry = False,
            data: OwnData = None,
            as_json: JsonOption = False,
        ) -> None:
            wanted, actor = _asked(name, file, nodes), name_actor(by)
            work = partial(_wish, verb, wanted, actor, dry_run)
            _do(context, data, work, as_json, dry_run)

        asked.__doc__ = told.__doc__
        return app.command(told.__name__)(asked)

    return command


def _wish(
    verb: Verb, wanted: Request, actor: str, dry_run: bool, keeper: TenantKeeper
) -> Awaitable[Answer]:
    return verb(keeper)(wanted, by=actor, dry_run=dry_run)


@wish(lambda keeper: keeper.create)
def create() -> None:
    """Make a tenant: VRF, L3VNI, route targets and policy on every leaf concerned.

    Asked again it changes nothing, or goes on where it was interrupted.
    Exit code 1: something stands in the way; it is named with its remedy.
    """


@wish(lambda keeper: keeper.change)
def change() -> None:
    """Let a tenant grow, or change its units, neighbours, storage or quota."""


@app.command()
def shrink(
    context: typer.Context,
    name: str,
    to: Annotated[int, typer.Option(min=0, help="Nodes that it keeps.")],
    node: Annotated[list[str] | None, typer.Option(help="Which go; repeatable.")] = None,
    accept_no_return: AcceptNoReturnOption = False,
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: Dry = False,
    data: OwnData = None,
    matrix: MatrixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take nodes from a tenant: they are drained, fenced and erased.

    Exit code 1: refused, also if a node could not serve again and nobody said that this is meant.
    """
    ask = partial(_answer, context, data)
    planned = ask(lambda k: k.shrink(name, to, node or (), dry_run=True))
    policy, pinned = policy_of(context.obj[2]), read_matrix(matrix or [])
    obstacles = [b for n in planned.nodes for b in find_return_obstacles(n, pinned, policy)]
    if obstacles and not accept_no_return:
        planned = replace(planned, blockers=(*planned.blockers, *obstacles))
    if dry_run or planned.blockers:
        _tell(planned, as_json, dry_run=True)
        return
    lines = [f"{n.id} leaves {name}: it is drained, fenced and erased." for n in planned.nodes]
    lines += [f"{b.subject}: {b.detail}" for b in obstacles]
    confirm_change([*lines, f"{name} keeps {to} nodes."], yes=yes, dry_run=False, as_json=as_json)
    actor = name_actor(by)
    _tell(ask(lambda k: k.shrink(name, to, node or (), by=actor)), as_json, dry_run=False)


@app.command()
def delete(
    context: typer.Context,
    name: str,
    by: ActorOption = "",
    yes: YesOption = False,
    dry_run: Dry = False,
    data: OwnData = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a tenant's network everywhere. Refused while a node or a port is in it."""
    ask = partial(_answer, context, data)
    planned = ask(lambda k: k.delete(name, dry_run=True))
    if dry_run or planned.tenant is None:  # refused, or there is no such tenant
        _tell(planned, as_json, dry_run=dry_run)
        return
    lines = [f"{s.device} would be sent {len(s.lines)} lines." for s in planned.steps]
    lines += [f"{b.subject} is waited for: {b.detail}" for b in planned.blockers]
    last = f"The network of {name} (VRF {planned.tenant.vrf}) is removed and its name forgotten."
    confirm_change([*lines, last], yes=yes, dry_run=False, as_json=as_json)
    _tell(ask(lambda k: k.delete(name, by=name_actor(by))), as_json, dry_run=False)


@app.command()
def settle(
    context: typer.Context, name: str, data: OwnData = None, as_json: JsonOption = False
) -> None:
    """Bring the fabric to what is written down of a tenant: after an interruption, or a silence."""
    _do(context, data, lambda k: k.settle(name), as_json, False)


@app.command()
def audit(context: typer.Context, data: OwnData = None, as_json: JsonOption = False) -> None:
    """What of all tenants' networks is not as written down. Exit code 1: something is not."""
    _do(context, data, lambda k: k.audit(), as_json, True)


def _asked(name: str, file: Path | None, nodes: int | None) -> Request:
    given: dict[str, Any] = {}
    if file is not None:
        located = load(str(file), read_text(file))
        if not isinstance(located.tree, dict):
            raise located.error((), "this is no tenant", "Write lines of `name: value`.")
        try:
            wanted = Wanted.model_validate(located.tree)
        except ValidationError as error:
            raise located.misfit(error, "See docs/tenants.md.") from None
        given = {k: getattr(wanted, k) for k in wanted.model_fields_set}
    if nodes is not None:
        given["nodes"] = nodes
    return Request(name=name, **given)


def _do(
    context: typer.Context,
    data: Path | None,
    work: Work,
    as_json: bool,
    dry_run: bool,
) -> None:
    _tell(_answer(context, data, work), as_json, dry_run=dry_run)


def _answer(context: typer.Context, data: Path | None, work: Work) -> Answer:
    """Ask the keeper. `data`: the command's own option, which goes before the group's."""
    directory, access, _ = context.obj

    async def run(opened: Data) -> Answer:
        async with open_keeper(opened.store, opened.vault, opened.clock, access) as keeper:
            return await work(keeper)

    return with_data(data or directory, run)


def _tell(answer: Answer, as_json: bool, *, dry_run: bool) -> None:
    """Show an answer. Exit code 1: something stands in the way."""
    if as_json:
        typer.echo(json.dumps(told(answer)))
    else:
        _show(answer, dry_run)
    if answer.blockers:
        raise typer.Exit(1)


def _show(answer: Answer, dry_run: bool) -> None:
    out = console()
    for step in answer.steps:
        out.print(Text(f"{step.device}{' would be told' if dry_run else ''}", style="bold"))
        for line in step.lines or ("(nothing to send: to be proved and saved)",):
            out.print(Text(f"  {line}"))
    for node in answer.nodes:
        out.print(Text(f"{node.id} {'would leave' if dry_run else 'leaves'}: {node.state}"))
    if answer.tenant is not None:
        t = answer.tenant
        out.print(Text(f"{t.name}: VRF {t.vrf}, VNI {t.l3vni}, {t.phase}, {t.nodes_wanted} nodes"))
    elif not answer.blockers and not dry_run:
        out.print("it is gone" if answer.steps else "nothing to do")
    elif not answer.blockers and not answer.steps:
        out.print("nothing to do")
    if answer.blockers:
        table = Table("what", "why", "what would unblock it")
        for b in answer.blockers:
            row = (b.subject, f"{b.reason}: {b.detail}", b.unblock)
            table.add_row(*(Text(word) for word in row))
        out.print(table)
