"""`provisioner rack partitions`: each tenant's GPUs in one NVLink partition, and nobody else's."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import CaOption
from provisioner.cli.options.checked_options import JsonOption, check_ca, check_url
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.partitions.owed_acts import OwedActs
from provisioner.integrations.racks.partitions.tenant_partitions import (
    PartitionPlan,
    plan_partitions,
)
from provisioner.integrations.racks.plan import RackPlan, read_plan, read_record
from provisioner.integrations.racks.update_start import limit_plan
from provisioner.integrations.racks.water_commands import PlanFile, ask_person
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, Secret, SwitchAddress


def partitions(
    file: PlanFile,
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="YAML file that says who uses each tray.")
    ],
    racks: Annotated[list[str], typer.Argument(metavar="RACK...", help="Racks, by name.")],
    manager: Annotated[str, typer.Option(help="https://HOST of NMX Manager or NetQ NVLink.")],
    user: Annotated[str, typer.Option(help=f"Its user; the password is in {VARIABLE}.")],
    apply: Annotated[bool, typer.Option("--apply", help="Make the changes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the NVLink partitions of racks' domains against who uses each tray; --apply makes them.

    A tenant's trays of a domain are in the partition TENANT.DOMAIN, and those of nobody in none.
    What leaves a partition leaves first. Each change is followed and read back. A tray that the
    manager does not list, or a partition that is not ours and has one of its GPUs, stops it.

    Exit code 1: they are not so, or it cannot be told; each reason is told.

    Example: provisioner rack partitions r.yaml c.yaml r01 --manager https://netq --user ro-user
    """
    plan = read_plan(file)
    limited = limit_plan(plan, [plan.find(name).name for name in racks])
    tenants = _read_tenants(campaign)
    address = read_manager_login(manager, user)
    check_ca("--ca", ca)

    async def run() -> tuple[PartitionPlan, Blocker | None]:
        transport = SwitchHttps(ca_file=ca)
        try:
            asked = NmxClient(transport, address, asyncio.sleep)
            planned = plan_partitions(limited, tenants, *await asked.look())
            if not (apply and planned.acts):
                return planned, None
            changes = "; ".join(map(str, planned.acts))
            ask_person(f"send this to the manager: {strip_controls(changes)}", yes=yes)
            now = _read_tenants(campaign)  # who uses a tray may have changed while a person thought
            return await _carry_out(OwedActs(file.parent, asked), asked, limited, now, planned)
        finally:
            await transport.close()

    try:
        planned, failed = asyncio.run(run())
    except PortError as error:
        problem = f"{error.reason}: {error}"
        raise InputError("--manager", manager, problem, "Look at its login and its log.") from None
    blockers = (*planned.blockers, *((failed,) if failed is not None else ()))
    told = [str(act) for act in planned.acts]
    why = [f"{one.subject}: {one.detail}. {one.unblock}" for one in blockers]
    if as_json:
        said = {"changes": told, "blockers": why, "wrong": planned.wrong}
        typer.echo(json.dumps(said, indent=2))
    else:
        for line in (*(f"needs: {each}" for each in told), *why, *planned.wrong):
            typer.echo(strip_controls(line))
        if not (told or why or planned.wrong):
            typer.echo("every tray is in its tenant's partition")
    raise typer.Exit(1 if told or why or planned.wrong else 0)


def _read_tenants(campaign: Path) -> dict[str, str | None]:
    units = read_record(campaign, CampaignFile).units
    return {name: state.tenant for name, state in units.items()}


async def _carry_out(
    owed: OwedActs,
    asked: NmxClient,
    plan: RackPlan,
    tenants: dict[str, str | None],
    planned: PartitionPlan,
) -> tuple[PartitionPlan, Blocker | None]:
    """Make the acts that a person wants; return what is left to be done, and what failed."""
    again = plan_partitions(plan, tenants, *await asked.look())
    if again.acts != planned.acts:  # an old plan would take GPUs from who has them now
        changed = Blocker(
            reason=Reason.CANNOT_TELL,
            subject="partitions",
            detail="they, or who uses a tray, changed while a person was asked; nothing was sent",
            unblock="Look at them, and give the command again.",
        )
        return again, changed
    for act in planned.acts:
        name = act.name
        late = await owed.settle(lambda one, _, name=name: one.name == name)  # type: ignore[misc]
        if (failed := late or await owed.make(act)) is not None:
            return plan_partitions(plan, tenants, *await asked.look()), failed
    return plan_partitions(plan, tenants, *await asked.look()), None


def read_manager_login(manager: str, user: str, option: str = "--user") -> SwitchAddress:
    """Return the manager's address and login. `option`: of its user. Raises InputError."""
    secret = os.environ.get(VARIABLE, "")
    if not secret:
        raise InputError(option, user, "no password is given", f"Set {VARIABLE}.")
    return SwitchAddress(check_url("--manager", manager), user, Secret(secret))
