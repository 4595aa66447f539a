"""`provisioner rack approve`, `halt` and `withdraw`: a person's word on the daemon's campaigns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.duty.approval import (
    Approval,
    digest_campaign,
    find_campaign,
    keep_approval,
    read_approval,
)
from provisioner.integrations.racks.plan import read_plan, read_record
from provisioner.integrations.racks.update_start import check_packages, limit_plan
from provisioner.integrations.racks.water_commands import ask_person
from provisioner.model.input_error import InputError

FolderArgument = Annotated[
    Path, typer.Argument(help="The daemon's folder of racks (`racks_folder`).")
]
NameArgument = Annotated[str, typer.Argument(help="Name of the campaign: its folder's name.")]
WhoOption = Annotated[str, typer.Option(help="Who says it.")]
WhyOption = Annotated[str, typer.Option(help="Why.")]


def approve(
    folder: FolderArgument,
    name: NameArgument,
    racks: Annotated[list[str], typer.Argument(metavar="RACK...", help="Racks, by name.")],
    who: WhoOption,
    why: WhyOption,
    user: Annotated[str, typer.Option(help="User at BMCs of which the daemon has no login.")] = "",
    nvos_user: Annotated[str, typer.Option(help="User at NVOS.")] = "",
    grace_h: Annotated[
        float, typer.Option(min=0, max=24 * 90, help="Hours that tenants get to leave a domain.")
    ] = 24.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Allow the daemon to carry a campaign out on racks, as its file is now.

    The daemon does so if `racks_update` is set; `provisioner hardware rack RACK` shows how far it
    is. A domain is begun once no tenant uses it, and held if one stays for longer than the grace.

    Example: provisioner rack approve /srv/racks winter r01 r02 --who amy --why "CVE" --user admin
    """
    campaign = find_campaign(folder, name)
    plan = read_plan(folder / "racks.yaml")
    for rack in racks:
        plan.find(rack)
    asked = read_record(campaign / "campaign.yaml", CampaignFile)
    limited = limit_plan(plan, racks)
    check_packages(asked, limited, campaign)
    if (campaign / "approved.json").exists() and not read_approval(campaign).withdrawn:
        problem = "it is approved already"
        raise InputError("NAME", name, problem, "`rack withdraw` it, or name another one.")
    if (campaign / "journal").exists():
        problem = "it was begun once, and its journal is there"
        raise InputError("NAME", name, problem, "Give the new one a folder of its own.")
    touched = ", ".join(rack.name for rack in limited.racks)
    ask_person(f"allow {name} on {touched}", yes=yes)
    made = Approval(
        campaign_sha256=digest_campaign(campaign),
        racks=tuple(rack.name for rack in limited.racks),
        who=who.strip() or "-",
        why=why.strip() or "-",
        at=time.time(),
        user=user,
        nvos_user=nvos_user,
        grace_h=grace_h,
    )
    keep_approval(campaign, made)
    typer.echo(f"{name} may be carried out on {touched}")


def halt(
    folder: FolderArgument,
    name: NameArgument,
    who: WhoOption,
    why: WhyOption,
    go_on: Annotated[bool, typer.Option("--go-on", help="End a halt.")] = False,
) -> None:
    """Have the daemon begin no further act of a campaign; what runs goes on to its end.

    Example: provisioner rack halt /srv/racks winter --who amy --why "two trays failed"
    """
    campaign = find_campaign(folder, name)
    approval = read_approval(campaign)
    said = "" if go_on else f"{who}: {why}"[:400]
    keep_approval(campaign, approval.model_copy(update={"halted": said}))
    typer.echo(f"{name} goes on" if go_on else f"{name} begins nothing new")


def withdraw(folder: FolderArgument, name: NameArgument, who: WhoOption, why: WhyOption) -> None:
    """End a campaign for good: nothing new is begun, and its nodes are the daemon's again.

    Units may be left between two versions: look at each before they serve.

    Example: provisioner rack withdraw /srv/racks winter --who amy --why "t3 was replaced"
    """
    campaign = find_campaign(folder, name)
    said = f"{who}: {why}"[:400]
    keep_approval(campaign, read_approval(campaign).model_copy(update={"withdrawn": said}))
    typer.echo(f"{name} is withdrawn once what runs has ended")
