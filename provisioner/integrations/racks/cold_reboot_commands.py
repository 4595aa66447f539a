"""`provisioner rack cold-reboot`: takes all power from a rack, proves it, and gives it back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import CaOption, InsecureOption, UserOption
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.cold_reboot_run import ColdReboot
from provisioner.integrations.racks.hand_journals import check_hand_journal
from provisioner.integrations.racks.plan import read_plan, read_record
from provisioner.integrations.racks.update_commands import build_update, read_tenants
from provisioner.integrations.racks.update_log import open_log
from provisioner.integrations.racks.update_start import limit_plan
from provisioner.integrations.racks.update_steps import Do, Next
from provisioner.integrations.racks.water_commands import (
    BuildingOption,
    WaterOption,
    ask_person,
)


def cold_reboot(
    plan: Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")],
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="YAML file that says who uses each tray.")
    ],
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    water: WaterOption,
    journal: Annotated[
        Path, typer.Option(help="File that keeps what was sent. Keep it: it resumes by it.")
    ],
    user: UserOption = "",
    building: BuildingOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Switch a whole rack off, prove it silent until the charge is gone, and bring it back.

    Trays are set to stay off before their shelves go off, so that what is wet by then gets no
    power by itself. A flash or a copy is waited for; a tenant in the domain refuses it.

    Exit code 1: it was refused or failed, or a host stays off; each reason is told.

    Example: provisioner rack cold-reboot r.yaml c.yaml r01 --water w.json --journal j --user admin
    """
    mode = check_hand_journal(journal, plan, water)
    whole = read_plan(plan)
    wanted = whole.find(rack)
    asked = read_record(campaign, CampaignFile)
    planned = limit_plan(whole, [rack])
    bmcs = RedfishTransport(ca_file=ca)
    switches = SwitchHttps(ca_file=ca)
    made = build_update(planned, asked, (bmcs, switches), (user, ""), ca, insecure=insecure)
    made = replace(made, water=water, building=building)
    made.who_uses = partial(read_tenants, campaign)
    ask_person(f"cut all power of {rack}", yes=yes)

    async def run() -> Next:
        try:
            with open_log(journal, mode) as log:
                return await ColdReboot(made, wanted, log).carry_out()
        finally:
            await bmcs.close()
            await switches.close()

    ended = asyncio.run(run())
    typer.echo(strip_controls(ended.why), err=ended.do is not Do.DONE)
    raise typer.Exit(0 if ended.do is Do.DONE else 1)
