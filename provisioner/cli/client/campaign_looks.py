"""`provisioner campaign preview`, `rehearse` and `notices`: looks; nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.client.campaign_options import (
    IdArgument,
    LabOption,
    MatrixOption,
    PlanOption,
    SettingsOption,
    requests_of,
    show_blockers,
)
from provisioner.cli.client.campaign_tables import moment, show_report
from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    show_table,
    with_data,
)
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import Data, read_settings
from provisioner.model.campaign import Campaign
from provisioner.planning.campaigns.campaign_preview import Blast, Preview
from provisioner.planning.campaigns.campaign_report import Report
from provisioner.store.repositories.campaign_rows import CampaignRows
from provisioner.twin.rehearsal import document, prepared
from provisioner.twin.rehearsal import rehearse as rehearsed
from provisioner.twin.site import HOSTS_MAX, Recorded

ArtifactsOption = Annotated[
    Path | None,
    typer.Option("--artifacts", help="Directory of firmware files: is the way back held there?"),
]


def preview(
    name: IdArgument,
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    settings: SettingsOption = None,
    artifacts: ArtifactsOption = None,
    plan: PlanOption = None,
    lab: LabOption = False,
    as_json: JsonOption = False,
) -> None:
    """Waves, steps, resets, minutes, blast radius, and every node that would be refused."""
    held = None if artifacts is None else frozenset(p.name for p in artifacts.iterdir())

    async def look(opened: Data) -> Preview:
        asked = requests_of(opened, matrix, settings, lab=lab, held=held, plan=plan)
        return await asked.preview(name)

    found = with_data(data, look)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show(found)


def rehearse(
    name: IdArgument,
    nodes: Annotated[
        int, typer.Option(min=1, max=HOSTS_MAX, help="Hosts of the twin: those that come first.")
    ] = 8,
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    settings: SettingsOption = None,
    lab: LabOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run it on a twin: simulated hardware at the recorded versions, in virtual time.

    Takes some ten seconds for each host. Exit code 1: it did not end well.
    """

    async def look(opened: Data) -> tuple[Campaign, Recorded, int]:
        requests = requests_of(opened, matrix, settings, lab=lab)
        campaign = await requests.known(name)
        found = await requests.survey(campaign)
        return (campaign, *await prepared(opened.store, campaign, found.rows, nodes))

    campaign, recorded, of = with_data(data, look)
    out = console()

    def told(seconds: float, now: Report) -> None:
        if not as_json:
            states = ", ".join(f"{count} {state}" for state, count in now.states.items())
            out.print(f"after {seconds / 3600:.1f} h: {now.state}: {states}")

    pinned, chosen = read_matrix(matrix or []), read_settings(settings)
    found = rehearsed(campaign, recorded, of, pinned, chosen, told)
    if as_json:
        typer.echo(json.dumps(document(found)))
    else:
        out.print(Text(f"rehearsed with {found.hosts} of {found.of} hosts", style="bold"))
        show_blockers(found.blockers)
        show_report(found.report)
        for wrong in found.violations:
            out.print(Text(f"must never happen, and did: {wrong}"))
        for sentence in found.assumed:
            out.print(Text(f"  not as in truth: {sentence}"))
    well = found.report.state == "done" and not (found.report.left or found.violations)
    raise typer.Exit(0 if well else 1)


def notices(
    tenant: Annotated[str, typer.Option(help="Of this tenant only.")] = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """What tenants are told: which node, from when on, and whether it was sent."""
    found = with_data(data, lambda d: CampaignRows(d.store).notices(tenant))
    if as_json:
        typer.echo(json.dumps([n.model_dump(mode="json") for n in found]))
        return
    table = Table("tenant", "node", "kind", "written", "from", "sent", "text")
    for n in found:
        times = (moment(n.at), moment(n.effective_at), moment(n.sent_at))
        words = (n.tenant, n.node, n.kind, *times, n.text)
        table.add_row(*(Text(word) for word in words))
    show_table(table, "No tenant was told of a campaign.")


def _show(found: Preview) -> None:
    out = console()
    out.print(Text(f"{found.campaign} to {found.release}", style="bold"))
    out.print(
        f"{found.steps} steps, {found.resets} resets, {found.minutes} node minutes; "
        f"about {found.lasts_s / 3600:.1f} h from its start"
    )
    out.print(Text(f"blast radius: {_blast(found.blast)}"))
    out.print(Text(f"at most at once: {_blast(found.at_once)}"))
    table = Table("wave", "nodes", "blast radius", "steps", "resets", "min", "from h", "to h")
    for w in found.waves:
        times = ("never", "–") if w.begins_s < 0 else (_hours(w.begins_s), _hours(w.ends_s))
        figures = (len(w.nodes), _blast(w.blast), w.steps, w.resets, w.minutes, *times)
        table.add_row(w.name, *(Text(str(f)) for f in figures))
    out.print(table)
    if found.unchanged:
        out.print(Text(f"already there: {', '.join(found.unchanged)}"))
    if found.to_confirm:
        out.print(Text("To be agreed to before it starts, as in the figures above:", style="bold"))
    for step, names in sorted(found.one_way.items()):
        agreed = "confirmed" if step not in found.to_confirm else f'--confirm "{step}"'
        out.print(Text(f"  cannot be undone: {step} on {len(names)} nodes ({agreed})"))
    for blocker in found.stopped:
        out.print(Text(f"would stop by itself: {blocker}"))
    if found.refused:
        refused = Table("node", "why", "what would unblock it", title="Refused")
        for name, blocker in sorted(found.refused.items()):
            refused.add_row(Text(name), Text(str(blocker)), Text(blocker.unblock))
        out.print(refused)


def _blast(b: Blast) -> str:
    rails = f", rails {' '.join(map(str, b.rails))}" if b.rails else ""
    tenants = f", tenants {' '.join(b.tenants)}" if b.tenants else ""
    planes = f", planes {' '.join(map(str, b.planes))}" if b.planes else ""
    return f"{b.hosts} hosts, {b.gpus} GPUs, {b.switches} switches{tenants}{rails}{planes}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}"
