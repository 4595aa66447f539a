"""`provisioner rack update`: writes the firmware of one NVLink domain, and proves what runs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    UserOption,
    build_address,
    read_password,
)
from provisioner.cli.options.matrix_files import MatrixOption
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.campaign import Campaign, CampaignFile
from provisioner.integrations.racks.campaign_run import Outcome
from provisioner.integrations.racks.fabric.switch_looks import OURS, log_in
from provisioner.integrations.racks.hand_journals import check_hand_journal
from provisioner.integrations.racks.plan import RackPlan, read_plan, read_record
from provisioner.integrations.racks.rack_rounds import carry_out
from provisioner.integrations.racks.rack_update import Hands
from provisioner.integrations.racks.targets.target_commands import (
    ProfileOption,
    ReleaseOption,
    read_campaign,
)
from provisioner.integrations.racks.update_log import open_log
from provisioner.integrations.racks.update_start import (
    check_packages,
    find_reasons,
    limit_plan,
    prepare,
)
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.racks.water_commands import (
    BuildingOption,
    WaterOption,
    ask_person,
)
from provisioner.model.input_error import InputError

FACTORY = "PROVISIONER_NVOS_FACTORY_PASSWORD"


def update(
    plan: Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")],
    campaign: Annotated[
        Path,
        typer.Argument(metavar="CAMPAIGN", help="YAML file with targets, packages and tenants."),
    ],
    racks: Annotated[
        list[str],
        typer.Argument(metavar="RACK...", help="Names of racks: each one's whole NVLink domain."),
    ],
    water: WaterOption,
    journal: Annotated[
        Path, typer.Option(help="File that keeps what was sent. Keep it: the update resumes by it.")
    ],
    user: UserOption = "",
    nvos_user: Annotated[
        str, typer.Option(help=f"User at NVOS; passwords are taken from {OURS} and {FACTORY}.")
    ] = "",
    building: BuildingOption = None,
    release: ReleaseOption = "",
    profile: ProfileOption = None,
    matrix: MatrixOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read, plan and say what would be sent.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Update NVLink switches, trays and power shelves of domains, and prove each version.

    Everything is read first: a unit that is wet, not where the plan has it, or unread holds the
    domain, and so does a tray with a tenant: the campaign's file is read again each round, and
    nothing is cut once it names one. One domain comes after the other, or as many at one time as
    `limits` has. Each write is in the journal before it is sent; the same command goes on after a
    death. Coolant stops it until a person says that it is dry.

    Exit code 1: it is held, or an act failed; each reason is told.

    Example: provisioner rack update r.yaml c.yaml r01 --water w.json --journal j --user admin
    """
    mode = check_hand_journal(journal, plan, water)
    whole = read_plan(plan)
    planned = limit_plan(whole, [whole.find(rack).name for rack in racks])
    asked = read_campaign(campaign, release, matrix, profile)
    check_packages(asked, planned, campaign.parent)
    wires = (RedfishTransport(ca_file=ca), SwitchHttps(ca_file=ca))
    made = build_update(planned, asked, wires, (user, nvos_user), ca, insecure=insecure)
    made = replace(made, folder=campaign.parent, water=water, building=building)
    made.who_uses = partial(read_tenants, campaign)

    async def run() -> tuple[Campaign, Outcome | None, Hands | None]:
        try:
            with open_log(journal, mode) as log:
                begun = await prepare(made, log)
                _show(begun)
                if dry_run or not begun.jobs:
                    return begun, None, None
                ask_person(f"send this to {', '.join(j.domain for j in begun.jobs)}", yes=yes)
                outcome, hands = await carry_out(made, log, begun)
                return begun, outcome, hands
        finally:
            for wire in wires:
                await wire.close()

    begun, outcome, hands = asyncio.run(run())
    if outcome is None or hands is None:
        raise typer.Exit(bool(begun.held))
    _show_end(outcome, hands)
    raise typer.Exit(0 if outcome.finished and not begun.held else 1)


async def read_tenants(
    campaign: Path, _names: Collection[str], *, hold: bool
) -> Mapping[str, str | None]:
    """Return who uses each tray, as the campaign's file says now; nothing where it is unread."""
    try:
        asked = await asyncio.to_thread(read_record, campaign, CampaignFile)
    except InputError:
        return {}  # nobody can tell
    return {name: state.tenant for name, state in asked.units.items()}


def _show_end(outcome: Outcome, hands: Hands) -> None:
    for domain, key in outcome.held.items():
        typer.echo(f"{domain} is held at {key}: {strip_controls(hands.why.get(key, ''))}", err=True)
    typer.echo(f"{outcome.done} acts done, {outcome.waiting} left")


def _show(begun: Campaign) -> None:
    for reason in find_reasons(begun):
        typer.echo(f"held: {strip_controls(reason)}", err=True)
    for job in begun.jobs:
        typer.echo(f"{job.domain}: {len(job.acts)} acts, {len(job.hosts)} hosts out")
        for act in job.acts:
            typer.echo(f"  {act.key}{f' to {act.target}' if act.target else ''}")
    for domain in begun.done:
        typer.echo(f"{domain}: every version runs already")


def build_update(
    planned: RackPlan,
    asked: CampaignFile,
    wires: tuple[RedfishTransport, SwitchHttps],
    users: tuple[str, str],
    ca: Path | None,
    *,
    insecure: bool,
) -> Update:
    """Return what an update needs of the world, by a command's options. Raises InputError."""
    user, nvos_user = users
    secret = read_password(user)
    units = [unit for rack in planned.racks for unit in rack.units]
    addresses = {
        unit.name: replace(
            build_address(unit.bmc, "", "", ca, insecure=insecure), username=user, secret=secret
        )
        for unit in units
        if unit.bmc
    }
    ours = os.environ.get(OURS, "")
    factory = os.environ.get(FACTORY, "")
    if nvos_user and not ours:
        raise InputError("--nvos-user", nvos_user, "no password is given", f"Set {OURS}.")

    return Update(
        plan=planned,
        asked=asked,
        folder=Path(),
        bmcs=wires[0],
        switches=wires[1],
        addresses=addresses,
        nvos=log_in(planned, nvos_user, ours),
        factory=log_in(planned, nvos_user, factory),
        water=Path(),
        now=time.time,
        say=lambda sentence: typer.echo(strip_controls(sentence)),
    )
