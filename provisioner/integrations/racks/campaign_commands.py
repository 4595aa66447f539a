"""`provisioner rack plan` and `rack impact`: what a campaign would do; nothing is read or sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.matrix_files import MatrixOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.racks.campaign import (
    Campaign,
    CampaignFile,
    DomainJob,
    plan_campaign,
    read_durations,
)
from provisioner.integrations.racks.campaign_run import Expected, predict
from provisioner.integrations.racks.impact import Impact, build_graph, derive_impact, find_users
from provisioner.integrations.racks.plan import RackPlan, read_plan, read_record
from provisioner.integrations.racks.targets.target_commands import (
    ProfileOption,
    ReleaseOption,
    read_campaign,
)
from provisioner.model.input_error import InputError

PlanFile = Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")]
CampaignArgument = Annotated[
    Path, typer.Argument(metavar="CAMPAIGN", help="YAML file with targets, states and limits.")
]


def plan(
    racks: PlanFile,
    campaign: CampaignArgument,
    domain: Annotated[
        str, typer.Option(help="Print each act of this domain instead of all domains.")
    ] = "",
    release: ReleaseOption = "",
    profile: ProfileOption = None,
    matrix: MatrixOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a firmware campaign over racks: a dry run. Nothing is read but the two files.

    NVLink switches come first, then trays, then shelves, one supply of a rack at a time; a domain
    is drained as a whole before. A domain of which anything is unknown is held, and told. Times
    are those that the plan expects; for some acts nobody publishes any (`--json` says which).

    Exit code 1: at least one domain is held.

    Example: provisioner rack plan racks.yaml campaign.yaml --domain d01
    """
    planned = read_plan(racks)
    asked = read_campaign(campaign, release, matrix, profile)
    names = {unit.name for rack in planned.racks for unit in rack.units}
    if strange := sorted(asked.units.keys() - names):
        problem = "the plan of the racks has no such unit, so that its state would count for none"
        raise InputError(str(campaign), f"units.{strange[0]}", problem, "Correct its name.")
    made = plan_campaign(planned, asked)
    rows = predict(made)
    jobs = _choose(made, domain)
    if as_json:
        typer.echo(json.dumps(_as_json(made, jobs, rows, planned, asked), indent=2))
    else:
        _show(made, jobs, rows, whole=not domain)
    raise typer.Exit(1 if made.held else 0)


def _choose(made: Campaign, domain: str) -> Sequence[DomainJob]:
    jobs = [job for job in made.jobs if domain in {"", job.domain}]
    if domain and not jobs and domain not in made.held:
        known = ", ".join(job.domain for job in made.jobs[:8]) or "none"
        raise InputError("--domain", domain, f"no such domain is planned (of: {known})", "Name it.")
    return jobs


def _show(
    made: Campaign, jobs: Sequence[DomainJob], rows: Sequence[Expected], *, whole: bool
) -> None:
    console = open_console()
    spans = _measure(made, rows)
    if whole:
        table = Table("domain", "racks", "acts", "hosts out", "begins", "ends", "shares")
        for job in sorted(jobs, key=lambda each: (spans[each.domain], each.domain)):
            begin, end = spans[job.domain]
            shares = [t for t in job.things if t.startswith(("tenant:", "loop:", "feed:"))]
            counts = (str(len(job.acts)), str(len(job.hosts)))
            cells = (job.domain, " ".join(job.racks), *counts, _say(begin), _say(end))
            table.add_row(*cells, " ".join(shares))
    else:
        keys = {act.key for job in jobs for act in job.acts}
        table = Table("begins", "ends", "act", "on", "to")
        for row in (row for row in rows if row.act.key in keys):
            act = row.act
            table.add_row(_say(row.begin_s), _say(row.end_s), act.kind, act.on, act.target or "-")
    if jobs:
        console.print(table)
    for name, reasons in made.held.items():
        console.print(f"held: {name}: {len(reasons)} reasons")
        for reason in reasons[:4]:
            console.print(f"  {reason.subject}: {reason.detail}. {reason.unblock}")
    acts = sum(len(job.acts) for job in made.jobs)
    last = max((end for _, end in spans.values()), default=0.0)
    console.print(
        f"{len(made.jobs)} domains, {acts} acts, {_say(last)} expected; {len(made.held)} held, "
        f"{len(made.done)} have every version. Nothing was sent."
    )


def _measure(made: Campaign, rows: Sequence[Expected]) -> dict[str, tuple[float, float]]:
    by_key = {row.act.key: row for row in rows}
    return {
        job.domain: (
            min(by_key[act.key].begin_s for act in job.acts),
            max(by_key[act.key].end_s for act in job.acts),
        )
        for job in made.jobs
    }


def _say(seconds: float) -> str:
    return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d} h"


def _as_json(
    made: Campaign,
    jobs: Sequence[DomainJob],
    rows: Sequence[Expected],
    planned: RackPlan,
    asked: CampaignFile,
) -> dict[str, Any]:
    tenants = {name: state.tenant or "" for name, state in asked.units.items()}
    graph = build_graph(planned, tenants)
    by_key = {row.act.key: row for row in rows}
    listed = []
    for job in jobs:
        lost = derive_impact(graph, [*job.hosts])
        acts = [
            {
                "key": act.key,
                "act": act.kind,
                "on": act.on,
                "after": act.after,
                "to": act.target,
                "begin_s": by_key[act.key].begin_s,
                "end_s": by_key[act.key].end_s,
            }
            for act in job.acts
        ]
        listed.append(
            {
                "domain": job.domain,
                "racks": job.racks,
                "hosts_out": job.hosts,
                "tenants_out": lost.find_lost("tenant:"),
                "shares": job.things,
                "acts": acts,
            }
        )
    return {
        "jobs": listed,
        "held": {
            name: [reason.model_dump(mode="json") for reason in reasons]
            for name, reasons in made.held.items()
        },
        "done": made.done,
        "makespan_s": max((row.end_s for row in rows), default=0.0),
        "durations": {
            kind: {"seconds": asked.durations_s.get(kind, seconds), "source": source}
            for kind, (seconds, source) in read_durations().items()
        },
    }


def impact(
    racks: PlanFile,
    things: Annotated[
        list[str], typer.Argument(help="Units by name; feed:, outlet:, leaf: or loop: with a NAME.")
    ],
    campaign: Annotated[
        Path | None,
        typer.Option(help="Campaign file, for its trays' tenants: one refuses."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what is lost when units, feeds, leaves or loops of racks are taken away.

    What the plan does not describe counts as lost. Nothing is read but the files. Ask it before
    you switch an outlet, or drain a loop, a feed or a leaf.

    Exit code 1: by the campaign's file a tenant loses a host, or nobody looked who uses one.

    Example: provisioner rack impact racks.yaml outlet:pdu1/3 --campaign campaign.yaml
    """
    planned = read_plan(racks)
    asked = read_record(campaign, CampaignFile) if campaign is not None else None
    units = asked.units if asked is not None else {}
    graph = build_graph(planned, {name: state.tenant or "" for name, state in units.items()})
    found = derive_impact(graph, things)
    tenants = {name: state.tenant for name, state in units.items()}
    refused = list(find_users(found, tenants)) if asked is not None else []
    if as_json:
        said = {"lost": found.lost, "weakened": found.weakened, "unknown": sorted(found.unknown)}
        typer.echo(json.dumps({**said, "refused": refused}, indent=2))
    else:
        _show_impact(found)
        for each in refused:
            typer.echo(f"refused: {each}. Reclaim its nodes first, or wait.", err=True)
    raise typer.Exit(1 if refused else 0)


def _show_impact(found: Impact) -> None:
    table = Table("thing", "is", "because")
    for name, why in found.lost.items():
        table.add_row(name, "lost (not described)" if name in found.unknown else "lost", why)
    for name, why in found.weakened.items():
        table.add_row(name, "weakened", why)
    console = open_console()
    console.print(table)
    hosts = found.find_lost("host:")
    tenants = found.find_lost("tenant:")
    console.print(f"{len(hosts)} hosts lost; tenants: {', '.join(tenants) or 'none known'}")
