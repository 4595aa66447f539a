"""`provisioner rack password`: the BMCs of racks get the site's password in place of the factory's.

Each BMC is asked with the factory's password first, and with ours where that is refused: one wrong
login at most in a run, two where neither is right, so that no account is locked. What took ours has
to open with it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.parsing import link
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.walk import Walk
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    UserOption,
    build_address,
    read_password,
)
from provisioner.cli.options.checked_options import PASSWORD, JsonOption
from provisioner.cli.options.tables import Table, open_console, strip_controls
from provisioner.integrations.racks.plan import read_plan
from provisioner.integrations.racks.water_commands import PlanFile, ask_person
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, BmcTransport, LoginRefused, PortError, Secret, Unreachable

FACTORY = "PROVISIONER_BMC_FACTORY_PASSWORD"
AT_ONCE = 16


class Given(StrEnum):
    """What became of one BMC's password."""

    CHANGED = "changed"
    OURS = "ours already"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """One BMC. `detail`: why it failed."""

    unit: str
    given: Given
    detail: str = ""


async def give_password(
    bmcs: BmcTransport, unit: str, address: BmcAddress, factory: Secret
) -> Outcome:
    """Have a BMC take the password of `address` in place of the factory's. Raises nothing: what
    does not answer has failed, and the next run looks anew.
    """
    theirs = replace(address, secret=factory)
    try:
        if not await _opens(bmcs, theirs):
            if await _opens(bmcs, address):
                return Outcome(unit, Given.OURS)
            return Outcome(unit, Given.FAILED, "it takes neither the factory's password nor ours")
        assert address.secret is not None
        client = Redfish(bmcs, theirs, quirks.UNKNOWN, admit=_admit)
        refused = await client.set_password(address.username, address.secret)
        if refused is not None:
            return Outcome(unit, Given.FAILED, f"{refused.reason}: {refused.detail}")
        await bmcs.forget(theirs)
        if await _opens(bmcs, address):
            return Outcome(unit, Given.CHANGED)
        return Outcome(unit, Given.FAILED, "it took our password, and does not open with it")
    except PortError as error:
        return Outcome(unit, Given.FAILED, f"{error.reason}: {error}")


async def _admit() -> Blocker | None:
    return None  # a person asked for it


async def _opens(bmcs: BmcTransport, address: BmcAddress) -> bool:
    """Return whether a BMC takes this login, also one that has to change its password first.

    Raises PortError while that is open.
    """
    try:
        if await bmcs.password_change(address) is not None:
            return True
        walk = Walk(bmcs, address, quirks.UNKNOWN)
        chassis = link(await walk.read_root(), "Chassis")  # kinds without Systems have it, too
        if chassis is not None and (await walk.read(chassis)).data:
            return True
    except LoginRefused:
        return False
    if any(gap.reason is Reason.LOGIN_REFUSED for gap in walk.gaps):
        return False
    raise Unreachable("it does not show its chassis now", maybe_executed=False)


def password(
    file: PlanFile,
    racks: Annotated[list[str], typer.Argument(metavar="RACK...", help="Racks, by name.")],
    user: UserOption = "",
    insecure: InsecureOption = False,
    ca: CaOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Have each BMC of racks take the site's password in place of the factory's.

    Trays that the daemon takes in get a password of their own from it: leave those out of the
    plan's file. The factory's is read from PROVISIONER_BMC_FACTORY_PASSWORD. It may be run again:
    what has the site's password keeps it.

    Exit code 1: a BMC takes neither, or did not answer.

    Example: provisioner rack password racks.yaml r01 --user root
    """
    plan = read_plan(file)
    units = [u for name in racks for u in plan.find(name).units if u.bmc]
    secret = read_password(user)
    theirs = os.environ.get(FACTORY, "")
    if secret is None or not theirs:
        remedy = f"Give --user, {PASSWORD} and {FACTORY}."
        raise InputError("--user", user, "both passwords are needed", remedy)
    if theirs == secret.reveal():
        raise InputError(FACTORY, "", "both passwords are the same", "Choose another one.")
    listed = [
        (u.name, replace(build_address(u.bmc, "", "", ca, insecure=insecure), username=user))
        for u in units
    ]
    ask_person(f"change the password of {len(listed)} BMCs", yes=yes)
    addresses = [(name, replace(address, secret=secret)) for name, address in listed]
    outcomes = asyncio.run(_give_all(addresses, Secret(theirs), ca))
    if as_json:
        rows = [{"unit": o.unit, "password": o.given, "detail": o.detail} for o in outcomes]
        typer.echo(json.dumps(rows, indent=2))
    else:
        table = Table("unit", "password", "why")
        for one in outcomes:
            table.add_row(one.unit, one.given, strip_controls(one.detail))
        open_console().print(table)
    raise typer.Exit(1 if any(o.given is Given.FAILED for o in outcomes) else 0)


async def _give_all(
    addresses: Sequence[tuple[str, BmcAddress]], factory: Secret, ca: Path | None
) -> Sequence[Outcome]:
    bmcs = RedfishTransport(ca_file=ca)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(unit: str, address: BmcAddress) -> Outcome:
        async with slots:
            return await give_password(bmcs, unit, address, factory)

    try:
        return await asyncio.gather(*(one(*each) for each in addresses))
    finally:
        await bmcs.close()
