"""`provisioner rack decommission`: units of racks leave for good, each step proved before it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import CaOption, InsecureOption, UserOption
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.campaign import CampaignFile, group_units
from provisioner.integrations.racks.duty.approval import list_campaigns
from provisioner.integrations.racks.duty.node_holds import find_socket
from provisioner.integrations.racks.fabric.switch_looks import OURS
from provisioner.integrations.racks.hand_journals import check_hand_journal, list_hand_journals
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.leaving.decommission import (
    Disks,
    list_acts,
    list_by_hand,
    take_out,
)
from provisioner.integrations.racks.leaving.decommission_run import Decommission
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.partitions.owed_acts import OwedActs
from provisioner.integrations.racks.partitions.partition_commands import read_manager_login
from provisioner.integrations.racks.plan import (
    PlannedRack,
    PlannedUnit,
    RackPlan,
    read_plan,
    read_record,
)
from provisioner.integrations.racks.update_commands import build_update, read_tenants
from provisioner.integrations.racks.update_log import NOTED, Line, open_log, read_log
from provisioner.integrations.racks.update_start import find_unproved
from provisioner.integrations.racks.water_commands import PlanFile, WaterOption, ask_person
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text
from provisioner.runtime.whole_files import replace_file

_ORDER = (Kind.COMPUTE_TRAY, Kind.NVLINK_SWITCH, Kind.POWER_SHELF)
Chosen = Sequence[tuple[PlannedRack, PlannedUnit]]


def find_open_journals(plan: RackPlan, folder: Path, own: Path, unit: PlannedUnit) -> list[str]:
    """Return the journals of a racks' folder by which a unit's domain is not proved."""
    job = next(job for job, units in group_units(plan).items() if unit in [u for _, u in units])
    told: list[str] = []
    files = [campaign / "journal" for campaign in list_campaigns(folder)]
    for file in [*files, *list_hand_journals(folder)]:
        if file.resolve() == own.resolve():
            continue
        name = f"{file.parent.name}/{file.name}"
        try:
            if job in find_unproved(plan, read_log(file)):
                told.append(f"{name} may have written to its domain, and no version is proved")
        except InputError as error:
            told.append(f"{name} cannot be judged: {error}")
    return told


def read_disks(plan: RackPlan, files: Sequence[Path], word: str) -> Mapping[str, Disks]:
    """Return why each tray's disks hold nothing, by what `node show --json` printed of its node.

    Raises InputError.
    """
    known: dict[str, tuple[str, str]] = {}
    for file in files:
        try:
            shown: Any = json.loads(read_text(file))
            for bmc in shown["bmcs"]:
                known[find_socket(str(bmc["url"]))] = (str(shown["id"]), str(shown["state"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            remedy = "Write it with `provisioner node show NODE --json`."
            raise InputError("--node", str(file), "it shows no node", remedy) from None
    trays = [u for r in plan.racks for u in r.units if u.kind is Kind.COMPUTE_TRAY and u.bmc]
    return {
        unit.name: Disks(*known.get(find_socket(unit.bmc), ("", "")), word=word) for unit in trays
    }


def choose(plan: RackPlan, names: Sequence[str]) -> Chosen:
    """Return the units of these names, or of these racks: trays, then switches, then shelves.

    Raises InputError.
    """
    wanted = set(names)
    every = [(rack, unit) for rack in plan.racks for unit in rack.units]
    strange = wanted - {each for rack, unit in every for each in (rack.name, unit.name)}
    if strange:
        raise InputError("UNIT", min(strange), "the plan has no such unit or rack", "Name one.")
    found = [(r, u) for r, u in every if not wanted.isdisjoint((r.name, u.name))]
    return sorted(found, key=lambda pair: _ORDER.index(pair[1].kind))


def decommission(
    file: PlanFile,
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="YAML file that says who uses each tray.")
    ],
    names: Annotated[list[str], typer.Argument(metavar="UNIT...", help="Units, or whole racks.")],
    water: WaterOption,
    manager: Annotated[str, typer.Option(help="https://HOST of NMX Manager or NetQ NVLink.")],
    manager_user: Annotated[str, typer.Option(help=f"Its user; the password is in {VARIABLE}.")],
    journal: Annotated[Path, typer.Option(help="File that keeps what was sent; it resumes by it.")],
    who: Annotated[str, typer.Option(help="Who decided it.")],
    why: Annotated[str, typer.Option(help="Why.")],
    node: Annotated[
        list[Path] | None, typer.Option(help="`node show NODE --json` of a tray's retired node.")
    ] = None,
    disks: Annotated[
        str, typer.Option(help="Your word on the disks of trays that are no retired node.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Write the plan without what has left.")] = None,
    user: UserOption = "",
    nvos_user: Annotated[str, typer.Option(help=f"User at NVOS; its password is in {OURS}.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Do it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Take trays, NVLink switches and power shelves out of service for good.

    Without --apply it says what is not proved, what would be sent, and what you do by hand. Proved
    twice before each request: nobody uses the trays, no GPU of them is in a partition, their nodes
    are retired, no journal has an unproved write there. A switch's NVOS then loses its
    configuration; hosts are forced off. Exit code 1: something is not proved or done.

    Example: provisioner rack decommission r.yaml c.yaml r01-s0 --water w.json --manager https://netq
    --manager-user ro-user --journal s0.journal --who amy --why "replaced" --nvos-user admin
    """
    mode = check_hand_journal(journal, file, water)
    plan = read_plan(file)
    chosen = choose(plan, names)
    if not (who.strip() and why.strip()):
        raise InputError("--who", who, "nobody decided it, or not why", "Give --who and --why.")
    address = read_manager_login(manager, manager_user, "--manager-user")
    wires = (RedfishTransport(ca_file=ca), SwitchHttps(ca_file=ca))
    asked = read_record(campaign, CampaignFile)
    made = build_update(plan, asked, wires, (user, nvos_user), ca, insecure=insecure)
    made = replace(made, water=water, who_uses=partial(read_tenants, campaign))
    found = read_disks(plan, node or (), disks)
    open_journals = partial(find_open_journals, plan, file.resolve().parent, journal)

    async def run() -> list[str]:
        try:
            with open_log(journal, mode) as log:
                client = NmxClient(wires[1], address, asyncio.sleep)
                owed = OwedActs(file.resolve().parent, client)
                run = Decommission(made, log, client, found, open_journals, owed)
                if not apply:
                    return await show(run, chosen)
                ask_person(f"take {', '.join(u.name for _, u in chosen)} out for good", yes=yes)
                said = f"{who.strip()}: {why.strip()}"[:400]
                log.write(Line("approval", NOTED, said, time.time(), disks[:400]))
                await log.sync()
                return await carry_out(run, chosen, out)
        finally:
            for wire in wires:
                await wire.close()

    left = asyncio.run(run())
    for each in left:
        typer.echo(strip_controls(each), err=True)
    raise typer.Exit(1 if left else 0)


async def show(run: Decommission, chosen: Chosen) -> list[str]:
    """Say what would be sent and what is done by hand; return what is not proved or done."""
    left: list[str] = []
    for rack, unit in chosen:
        if run.has_left(unit.name):
            typer.echo(f"{unit.name} has left")
            continue
        missing = await run.find_missing(rack, unit)
        left += [f"{unit.name}: {each}" for each in missing or ("it would leave",)]
        for act in list_acts(unit):
            typer.echo(f"{unit.name}: would send {act}")
        for each in list_by_hand(unit):
            typer.echo(f"{unit.name}: by hand: {each}")
    return left


async def carry_out(run: Decommission, chosen: Chosen, out: Path | None) -> list[str]:
    """Take each unit out of service in order, up to the first that stays; return why it does."""
    for rack, unit in chosen:
        if why := await run.take(rack, unit):
            return [f"{unit.name}: {strip_controls(why)}"]
        typer.echo(f"{unit.name} has left")
        for each in list_by_hand(unit):
            typer.echo(f"{unit.name}: by hand: {each}")
    if out is not None:
        try:
            kept = take_out(run.update.plan, [u.name for _, u in chosen])
        except ValueError as error:
            return [f"{out} was not written: {error}"[:400]]
        if kept is None:
            return [f"{out} was not written: nothing is left of the plan"]
        written = kept.model_dump_json(indent=2) + "\n"
        await asyncio.to_thread(partial(replace_file, out, written, mode=0o644))
    return []
