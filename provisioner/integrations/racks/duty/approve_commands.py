"""`provisioner rack approve`, `halt`, `withdraw`, `vouch`: a person's word on a campaign."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.duty.approval import (
    CAMPAIGNS,
    TEXT_MAX,
    Approval,
    Vouched,
    build_mark,
    digest_campaign,
    find_campaign,
    keep_approval,
    keep_vouched,
    read_approval,
    read_vouched,
)
from provisioner.integrations.racks.hand_journals import find_content
from provisioner.integrations.racks.locks import hold_name
from provisioner.integrations.racks.plan import NAME, read_plan, read_record
from provisioner.integrations.racks.update_start import check_packages, limit_plan
from provisioner.integrations.racks.water_commands import ask_person
from provisioner.model.input_error import InputError

TRIES = 100  # of an approval, which each command has for a moment

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
    digest = digest_campaign(campaign)  # before all that is shown of it
    plan = read_plan(folder / "racks.yaml")
    for rack in racks:
        plan.find(rack)
    asked = read_record(campaign / "campaign.yaml", CampaignFile)
    limited = limit_plan(plan, racks)
    check_packages(asked, limited, campaign)
    _check_fresh(campaign, digest)
    touched = ", ".join(rack.name for rack in limited.racks)
    ask_person(f"allow {name} on {touched}", yes=yes)
    made = Approval(
        campaign_sha256=digest,
        racks=tuple(rack.name for rack in limited.racks),
        who=who.strip() or "-",
        why=why.strip() or "-",
        at=time.time(),
        user=user,
        nvos_user=nvos_user,
        grace_h=grace_h,
    )
    with _alone(campaign):
        _check_fresh(campaign, digest)
        keep_approval(campaign, made)
    typer.echo(f"{name} may be carried out on {touched}")


def _check_fresh(campaign: Path, digest: str) -> None:
    """Refuse a campaign that was approved, or has changed. Raises InputError."""
    name = campaign.name
    if (campaign / "approved.json").exists() and not read_approval(campaign).withdrawn:
        problem = "it is approved already"
        raise InputError("NAME", name, problem, "`rack withdraw` it, or name another one.")
    if (campaign / "journal").exists() or (campaign / "state.json").exists():
        problem = "it was approved once, and its journal or its state is there"
        raise InputError("NAME", name, problem, "Give the new one a folder of its own.")
    if digest_campaign(campaign) != digest:
        problem = "its file changed while you were asked"
        raise InputError("NAME", name, problem, "Look at it, and approve it anew.")


@contextmanager
def _alone(campaign: Path) -> Iterator[None]:
    """Hold a campaign's approval: of two words at one time none is lost. Raises InputError."""
    busy = InputError("NAME", campaign.name, "another command writes it", "Give it again.")
    try:
        with hold_name(campaign / ".approved.lock", busy, TRIES, shared=True):
            yield
    except OSError as error:
        problem = f"its folder cannot be written ({error.strerror})"
        raise InputError("NAME", campaign.name, problem, "Correct its owner.") from None


def _amend(campaign: Path, **words: str) -> None:
    with _alone(campaign):
        keep_approval(campaign, read_approval(campaign).model_copy(update=words))


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
    _amend(campaign, halted="" if go_on else f"{who}: {why}"[:400])
    typer.echo(f"{name} goes on" if go_on else f"{name} begins nothing new")


def withdraw(folder: FolderArgument, name: NameArgument, who: WhoOption, why: WhyOption) -> None:
    """End a campaign for good: nothing new is begun.

    Nodes of a domain that was written to, and not proved, stay held: until all of it is read to run
    the campaign's versions, or `rack vouch`.

    Example: provisioner rack withdraw /srv/racks winter --who amy --why "t3 was replaced"
    """
    campaign = find_campaign(folder, name)
    _amend(campaign, withdrawn=f"{who}: {why}"[:400])
    typer.echo(f"{name} is withdrawn once what runs has ended")


def vouch(
    folder: FolderArgument,
    name: Annotated[
        str, typer.Argument(help="Name of the campaign, or what a node is held by: NAME.DIGEST.")
    ],
    nodes: Annotated[
        list[str], typer.Argument(metavar="NODE...", help="Nodes of the daemon, by name.")
    ],
    who: WhoOption,
    why: WhyOption,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Vouch for nodes that a withdrawn campaign left held: nobody proved what runs on them.

    Their journey goes on with the daemon's next look, and proves what the matrix pins; of NVLink
    switches, power shelves and what has no pin, your word is all that there is.

    Example: provisioner rack vouch /srv/racks winter n0 --who amy --why "all read by hand"
    """
    mark = _find_withdrawn(folder, name)
    if not (who.strip() and why.strip()):
        problem = "nobody vouches for them, or not why"
        raise InputError("--who", who, problem, "Give --who and --why.")
    journal = find_content(folder, mark)  # the word is about what was there to be read
    ask_person(f"vouch for {', '.join(nodes)}", yes=yes)
    if find_content(folder, mark) != journal:
        problem = "its command wrote to its journal while you were asked"
        raise InputError("NAME", name, problem, "Read what it wrote, and vouch anew.")
    said = f"{who.strip()}: {why.strip()}"[:TEXT_MAX]
    kept = read_vouched(folder, mark, journal)
    vouched = Vouched(journal=journal, nodes={**kept, **dict.fromkeys(nodes, said)})
    keep_vouched(folder, mark, vouched)
    typer.echo(f"{', '.join(nodes)}: not held by {mark} once the daemon has read it")


def _find_withdrawn(folder: Path, name: str) -> str:
    """Return the mark of an approval that was withdrawn, or whose files are lost.

    Raises InputError.
    """
    for known in (name, name.rpartition(".")[0]):
        campaign = folder / CAMPAIGNS / known
        if not re.fullmatch(NAME, known) or not (campaign / "approved.json").exists():
            continue
        approval = read_approval(campaign)
        mark = build_mark(known, approval)
        if name in (known, mark):
            if not approval.withdrawn:
                problem = "it is not withdrawn: it goes on to prove them"
                raise InputError("NAME", name, problem, "`rack withdraw` it first.")
            return mark
    if not re.fullmatch(rf"{NAME[:-1]}\.[0-9a-f]{{8}}$", name):
        problem = f"{folder / CAMPAIGNS} has no such approved campaign"
        remedy = "Give its name with its digest, as `node explain NODE` has it, if it is lost."
        raise InputError("NAME", name, problem, remedy)
    return name
