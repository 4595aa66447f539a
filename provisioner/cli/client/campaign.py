"""`provisioner campaign`: a release brought to many nodes in waves; no draft touches anything."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from provisioner.cli.client import campaign_looks
from provisioner.cli.client.campaign_options import (
    ByOption,
    IdArgument,
    LabOption,
    MatrixOption,
    NodeArgument,
    ReasonOption,
    SettingsOption,
    ask,
    read_policy,
    requests_of,
)
from provisioner.cli.client.campaign_tables import show_campaigns, show_report, show_rows
from provisioner.cli.options.confirmation import (
    DryRunOption,
    YesOption,
    confirm_change,
    name_actor,
)
from provisioner.cli.options.data_options import DataOption, JsonOption, console, with_data
from provisioner.daemon.data import Data
from provisioner.model.campaign import Campaign, CampaignState
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.planning.campaigns.campaign_report import Report, WaveReport, report
from provisioner.planning.path.rollback import RollbackPreview
from provisioner.store.repositories.campaign_rows import CampaignRows

app = typer.Typer(
    help="Campaigns: upgrades in waves, with limits, stops and a way back.", no_args_is_help=True
)
app.command()(campaign_looks.preview)
app.command()(campaign_looks.rehearse)
app.command()(campaign_looks.notices)
Seen = tuple[Campaign, Sequence[CampaignRow], Sequence[Node]]
_LOOK_S = 2.0  # between two looks of `watch`: of the wall clock


@app.command()
def create(
    release: Annotated[str, typer.Option(help="The release of the matrix to go to.")],
    select: Annotated[str, typer.Option(help="Which nodes: docs/campaigns.md has the language.")],
    policy: Annotated[Path | None, typer.Option(help="How careful (docs/campaigns.md).")] = None,
    by: ByOption = "",
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a draft. It touches nothing; look at it with `preview` and `rehearse`, then `start`."""
    chosen = read_policy(policy)
    ask(data, lambda r: r.create(release, select, chosen, by), as_json, matrix=matrix)


@app.command("list")
def list_campaigns(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """All campaigns, the oldest first."""
    found = with_data(data, lambda d: CampaignRows(d.store).campaigns())
    if as_json:
        typer.echo(json.dumps([c.model_dump(mode="json") for c in found]))
    else:
        show_campaigns(found)


@app.command()
def show(name: IdArgument, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """One campaign, with every node: how far it is, and why."""
    campaign, rows, nodes = with_data(data, lambda d: _seen(d, name))
    if as_json:
        told = [r.model_dump(mode="json") for r in rows]
        typer.echo(json.dumps({"campaign": campaign.model_dump(mode="json"), "nodes": told}))
    else:
        show_rows(campaign, rows, nodes)


@app.command()
def start(
    name: IdArgument,
    confirm: Annotated[
        list[str] | None,
        typer.Option(help='A one-way step, by name: "component version"; repeatable.'),
    ] = None,
    by: ByOption = "",
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    settings: SettingsOption = None,
    lab: LabOption = False,
    as_json: JsonOption = False,
) -> None:
    """From now on nodes are upgraded, by the daemon. Exit code 1: something stands against it."""
    chosen = {"matrix": matrix, "settings": settings, "lab": lab}
    ask(data, lambda r: r.start(name, by, confirm or ()), as_json, **chosen)


@app.command()
def pause(
    name: IdArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Begin with no further node; what is under way ends."""
    ask(data, lambda r: r.pause(name, reason, by), as_json)


@app.command()
def resume(
    name: IdArgument, by: ByOption = "", data: DataOption = Path("var"), as_json: JsonOption = False
) -> None:
    """Go on after a pause or a stop; the failures so far are accepted with it."""
    ask(data, lambda r: r.resume(name, by), as_json)


@app.command()
def abort(
    name: IdArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """End it: what is under way ends, all others stay as they are."""
    ask(data, lambda r: r.abort(name, reason, by), as_json)


@app.command()
def rollback(
    name: IdArgument,
    by: ByOption = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    settings: SettingsOption = None,
    lab: LabOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring every node that was moved back to the release that it came from.

    Exit code 1: a node has no way back; then nothing begins.
    """

    async def look(opened: Data) -> RollbackPreview:
        return await requests_of(opened, matrix, settings, lab=lab).preview_rollback(name)

    planned = with_data(data, look)
    if not planned.refused:
        confirm_change(planned.lines(), yes=yes, dry_run=dry_run, as_json=as_json)
    chosen = {"matrix": matrix, "settings": settings, "lab": lab}
    ask(data, lambda r: r.rollback(name, name_actor(by)), as_json, **chosen)


@app.command()
def defer(
    name: IdArgument,
    node: NodeArgument,
    until: Annotated[str, typer.Option(help="A time of UTC: 2026-12-24T18:00.")],
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Put one node off for its tenant, within the policy's limit."""
    at = when("--until", until)
    ask(data, lambda r: r.defer(name, node, at, by), as_json)


@app.command()
def skip(
    name: IdArgument,
    node: NodeArgument,
    reason: ReasonOption = "left out by request",
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Leave one node as it is."""
    ask(data, lambda r: r.skip(name, node, reason, by), as_json)


@app.command()
def again(
    name: IdArgument,
    node: NodeArgument,
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Try a node once more that failed or was skipped."""
    ask(data, lambda r: r.again(name, node, by), as_json)


@app.command()
def accept(
    name: IdArgument,
    metric: Annotated[str, typer.Argument(metavar="METRIC", help="As `report` names it.")],
    by: ByOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Go on although this metric got worse."""
    ask(data, lambda r: r.accept(name, metric, by), as_json)


@app.command("report")
def report_campaign(
    name: IdArgument, data: DataOption = Path("var"), as_json: JsonOption = False
) -> None:
    """What became of it so far: waves, times, who was left behind, before and after."""
    campaign, rows, _ = with_data(data, lambda d: _seen(d, name))
    found = report(campaign, rows)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        show_report(found)


@app.command()
def watch(name: IdArgument, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """Follow it until it rests. Exit code 1: it was stopped or aborted."""
    ended = _watch_lines(name, data) if as_json else _watch_bars(name, data)
    raise typer.Exit(0 if ended.state == CampaignState.DONE.value else 1)


def when(option: str, text: str) -> float:
    """A time of UTC in seconds since the epoch. Raises InputError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r:.40} is no time"
        raise InputError(option, "", problem, "Write it like 2026-12-24T18:00.") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


async def _seen(opened: Data, name: str) -> Seen:
    campaign = await requests_of(opened).known(name)
    rows = await CampaignRows(opened.store).campaign_rows(name)
    return campaign, rows, await opened.store.nodes()


def _look(name: str, data: Path) -> tuple[Report, bool]:
    campaign, rows, _ = with_data(data, lambda d: _seen(d, name))
    going = (CampaignState.STARTED, CampaignState.ROLLING_BACK, CampaignState.PAUSED)
    return report(campaign, rows), campaign.state in going


def _watch_lines(name: str, data: Path) -> Report:
    """One JSON object a line, whenever something changed."""
    last = None
    while True:
        found, going = _look(name, data)
        if found != last:
            typer.echo(found.model_dump_json())
        if not going:
            return found
        last = found
        time.sleep(_LOOK_S)


def _watch_bars(name: str, data: Path) -> Report:
    """A bar for each wave."""
    words = TextColumn("{task.fields[states]}")
    bars = Progress(TextColumn("{task.description}"), BarColumn(), words)
    tasks: dict[str, TaskID] = {}
    with Live(console=console(), refresh_per_second=4) as live:
        while True:
            found, going = _look(name, data)
            for wave in found.waves:
                if wave.name not in tasks:
                    tasks[wave.name] = bars.add_task(wave.name, total=wave.nodes, states="")
                settled, told = _settled(wave)
                bars.update(tasks[wave.name], completed=settled, states=told)
            grid = Table.grid()
            reason = f" ({found.reason})" if found.reason else ""
            grid.add_row(f"{found.campaign} to {found.release}: {found.state}{reason}")
            grid.add_row(bars)
            live.update(grid)
            if not going:
                return found
            time.sleep(_LOOK_S)


def _settled(wave: WaveReport) -> tuple[int, str]:
    ended = sum(wave.states.get(s, 0) for s in ("done", "failed", "skipped"))
    return ended, ", ".join(f"{count} {state}" for state, count in wave.states.items())
