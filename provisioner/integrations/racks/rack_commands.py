"""`provisioner rack`: the racks of a site as they stand, held against the plan."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from provisioner.adapters.redfish.recorded import RecordedTransport
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
    read_password,
    read_recording,
)
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.racks import (
    campaign_commands,
    cold_reboot_commands,
    firmware_commands,
    isolation_commands,
    password_commands,
    update_commands,
    water_commands,
)
from provisioner.integrations.racks.duty import (
    approve_commands,
    certificate_commands,
    rotate_commands,
)
from provisioner.integrations.racks.elevation import draw_elevation
from provisioner.integrations.racks.fabric import fabric_commands
from provisioner.integrations.racks.fabric.switch_looks import OURS
from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.leaving import decommission_commands
from provisioner.integrations.racks.looks import keep_look
from provisioner.integrations.racks.membership import (
    RackVerdict,
    UnitReading,
    Water,
    judge_rack,
    judge_water,
)
from provisioner.integrations.racks.partitions import partition_commands
from provisioner.integrations.racks.plan import PlannedUnit, RackPlan, read_plan
from provisioner.integrations.racks.reading import LIMIT_S, read_switch_location, read_unit
from provisioner.integrations.racks.targets import target_commands
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Gap
from provisioner.ports import BmcAddress, Secret, SwitchAddress

AT_ONCE = 16  # BMCs that are read at one time

app = typer.Typer(
    help="Racks: what stands in them, what a campaign would do, water and power.",
    no_args_is_help=True,
)
app.command()(target_commands.targets)
app.command()(campaign_commands.plan)
app.command()(campaign_commands.impact)
app.command()(update_commands.update)
app.command("cold-reboot")(cold_reboot_commands.cold_reboot)
app.command()(decommission_commands.decommission)
app.command()(water_commands.water)
app.command()(water_commands.dry)
app.command()(water_commands.power)
app.command()(isolation_commands.isolate)
app.command()(password_commands.password)
app.command()(fabric_commands.fabric)
app.command()(partition_commands.partitions)
app.command()(certificate_commands.certificates)
app.command("rotate-certificate")(rotate_commands.rotate_certificate)
app.command("verify-certificate")(certificate_commands.verify_certificate)
app.command()(approve_commands.approve)
app.command()(approve_commands.halt)
app.command()(approve_commands.withdraw)
app.command()(approve_commands.vouch)
app.add_typer(firmware_commands.app, name="firmware-object")
PlanArgument = Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")]


@app.command()
def inspect(
    url: UrlArgument,
    user: UserOption = "",
    as_json: JsonOption = False,
    insecure: InsecureOption = False,
    pin: PinOption = "",
    ca: CaOption = None,
) -> None:
    """Print what a BMC of a rack is, where it says that it sits, its leak detectors and its power.

    URL may also be the file of a recording (`provisioner record`). Exit code 1: it does not answer,
    or two kinds fit it equally.

    Example: provisioner rack inspect https://10.0.0.11 --user admin
    """
    if Path(url).is_file():
        recorded = RecordedTransport(read_recording(Path(url)).tree)
        reading = asyncio.run(read_unit(recorded, BmcAddress(url="https://recording.invalid")))
    else:
        address = build_address(url, user, pin, ca, insecure=insecure)
        reading = asyncio.run(_read_one(address, ca))
    if as_json:
        typer.echo(json.dumps(_reading_as_json(reading), indent=2))
    else:
        _show_reading(url, reading)
    if reading.unread:
        typer.echo(f"error: {reading.unread}", err=True)
    raise typer.Exit(1 if reading.unread or reading.kind is None else 0)


@app.command()
def show(
    plan: PlanArgument,
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    user: UserOption = "",
    nvos_user: Annotated[
        str, typer.Option(help=f"User at NVOS; its password is taken from {OURS}.")
    ] = "",
    svg: Annotated[
        Path | None, typer.Option(help="Also draw the elevation into this file.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Also keep what was judged as RACK.json in this folder.")
    ] = None,
    as_json: JsonOption = False,
    insecure: InsecureOption = False,
    ca: CaOption = None,
) -> None:
    """Read every BMC of a rack, draw its elevation, and hold it against the plan.

    Each tray and switch must be read, and must agree with the plan in each thing that it states.

    Exit code 1: the rack is not proved to be the planned one; each reason is told.

    Example: provisioner rack show racks.yaml r01 --user admin --nvos-user admin
    """
    planned = read_plan(plan)
    wanted = planned.find(rack)
    addresses = {
        unit.name: build_address(unit.bmc, "", "", ca, insecure=insecure)
        for unit in wanted.units
        if unit.bmc
    }
    secret = read_password(user)
    logged_in = {
        name: replace(one, username=user, secret=secret) for name, one in addresses.items()
    }
    readings = asyncio.run(_read_rack(wanted.units, logged_in, _nvos_login(nvos_user), ca))
    verdict = judge_rack(planned, rack, readings)
    if keep is not None:
        keep_look(keep, verdict, time.time())
    if svg is not None:
        try:
            svg.write_text(draw_elevation(verdict), encoding="utf-8")
        except OSError as error:
            problem = f"it cannot be written ({error.strerror})"
            raise InputError("--svg", str(svg), problem, "Name another file.") from None
    if as_json:
        typer.echo(json.dumps(_verdict_as_json(verdict), indent=2))
    else:
        _show_rack(verdict)
    raise typer.Exit(0 if verdict.proved else 1)


@app.command()
def check(plan: PlanArgument, as_json: JsonOption = False) -> None:
    """Check a plan of racks: nothing is read but the file.

    Example: provisioner rack check racks.yaml
    """
    planned = read_plan(plan)
    counts = _count_kinds(planned)
    if as_json:
        typer.echo(json.dumps({"racks": len(planned.racks), "units": counts}))
        return
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    typer.echo(f"{len(planned.racks)} racks: {listed}")


def _count_kinds(plan: RackPlan) -> dict[str, int]:
    kinds = [unit.kind.value for rack in plan.racks for unit in rack.units]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def _nvos_login(user: str) -> tuple[str, Secret] | None:
    if not user:
        return None
    password = os.environ.get(OURS, "")
    if not password:
        raise InputError("--nvos-user", user, "no password is given", f"Set {OURS}.")
    return user, Secret(password)


async def _read_one(address: BmcAddress, ca: Path | None) -> UnitReading:
    transport = RedfishTransport(ca_file=ca)
    try:
        return await read_unit(transport, address)
    finally:
        await transport.close()


async def _read_rack(
    units: Sequence[PlannedUnit],
    addresses: Mapping[str, BmcAddress],
    nvos: tuple[str, Secret] | None,
    ca: Path | None,
) -> Mapping[str, UnitReading]:
    """Return the readings of the units with an address by name, `AT_ONCE` at one time."""
    bmcs = RedfishTransport(ca_file=ca)
    switches = SwitchHttps(ca_file=ca)
    slots = asyncio.Semaphore(AT_ONCE)
    read: dict[str, UnitReading] = {}

    async def one(unit: PlannedUnit, progress: Progress, task: Any) -> None:
        async with slots:
            reading = await read_unit(bmcs, addresses[unit.name])
            if unit.nvos and nvos is not None:
                address = SwitchAddress(url=unit.nvos, username=nvos[0], secret=nvos[1])
                reading = _with_place(reading, await read_switch_location(switches, address))
        read[unit.name] = reading
        progress.advance(task)

    try:
        with Progress(console=open_console(), transient=True) as progress:
            task = progress.add_task("reading BMCs", total=len(addresses))
            asked = [one(unit, progress, task) for unit in units if unit.name in addresses]
            await asyncio.gather(*asked)
    finally:
        await bmcs.close()
        await switches.close()
    return read


def _with_place(reading: UnitReading, told: Place | Gap) -> UnitReading:
    if isinstance(told, Gap):
        return replace(reading, gaps=(*reading.gaps, told))
    return replace(reading, places=(*reading.places, told))


def _reading_as_json(reading: UnitReading) -> dict[str, Any]:
    water = judge_water(reading, reading.kind or Kind.OTHER)
    return {
        "kind": reading.kind,
        "evidence": reading.evidence,
        "model": reading.model,
        "serial": reading.serial,
        "power": reading.power,
        "water": water,
        "places": [asdict(place) for place in reading.places],
        "gpus": reading.gpus,
        "cartridges": reading.cartridges,
        "leak_detectors": [one.model_dump(mode="json") for one in reading.leaks],
        "power_supplies": reading.supplies,
        "gaps": [gap.model_dump(mode="json") for gap in reading.gaps],
        "unread": reading.unread,
        "limit_s": LIMIT_S,
    }


def _verdict_as_json(verdict: RackVerdict) -> dict[str, Any]:
    return {
        "rack": verdict.rack.name,
        "chassis_serial": verdict.rack.chassis_serial,
        "domain": verdict.rack.domain,
        "proved": verdict.proved,
        "findings": [one.model_dump(mode="json") for one in verdict.findings],
        "units": [
            {
                "name": one.unit.name,
                "u": one.unit.u,
                "planned": one.unit.kind,
                "member": one.member,
                "water": one.water,
                "findings": [each.model_dump(mode="json") for each in one.findings],
                "reading": None if one.reading is None else _reading_as_json(one.reading),
            }
            for one in verdict.units
        ],
    }


def _show_reading(url: str, reading: UnitReading) -> None:
    console = open_console()
    kind = reading.kind or "cannot tell"
    heading = [str(kind), reading.model or "unknown model", f"power {reading.power}"]
    if reading.serial:
        heading.insert(2, f"serial {reading.serial}")
    console.print(f"{url}  {', '.join(heading)}")
    for sentence in reading.evidence:
        console.print(f"  {sentence}")
    if reading.places:
        table = Table("says", "chassis serial", "slot", "tray index", "topology", title="Place")
        for place in reading.places:
            cells = (place.chassis_serial, place.slot, place.tray_index, place.topology)
            table.add_row(place.witness, *("-" if c is None else str(c) for c in cells))
        console.print(table)
    if reading.supplies:
        console.print(f"power supplies: {', '.join(reading.supplies)}")
    for detector in reading.leaks:
        console.print(f"{detector.slot}: {detector.moisture.value} ({detector.detail})")
    if reading.kind is not Kind.POWER_SHELF and not reading.leaks and not reading.unread:
        console.print("leak detectors: none is shown, so that nobody knows whether it is dry")
    for gap in reading.gaps:
        console.print(f"not known: {gap.source}: {gap.detail}")


_SAID = {Water.NONE: "-"}


def _show_rack(verdict: RackVerdict) -> None:
    """Draw the elevation, the highest unit first, then each reason against it."""
    table = Table("U", "unit", "kind", "slot", "power", "water", "proved", "serial")
    for one in sorted(verdict.units, key=lambda v: -v.unit.u):
        reading = one.reading
        table.add_row(
            str(one.unit.u),
            one.unit.name,
            str(one.unit.kind),
            "-" if one.unit.slot is None else f"{one.unit.slot}/{one.unit.tray_index}",
            "-" if reading is None else reading.power,
            _SAID.get(one.water, one.water.value),
            _say_proof(one.unit.kind, member=one.member),
            (reading.serial if reading else "") or "-",
        )
    rack = verdict.rack
    table.title = f"{rack.name}  chassis {rack.chassis_serial}"
    console = open_console()
    console.print(table)
    findings = [*verdict.findings, *(f for one in verdict.units for f in one.findings)]
    for finding in findings:
        console.print(f"{finding.subject}: {finding.detail}. {finding.unblock}")
    if verdict.proved:
        console.print("every tray and switch is where the plan has it")
    else:
        console.print(f"not proved: {len(findings)} reasons")
    console.print("power shelves state no place: theirs is the plan's alone")


def _say_proof(kind: Kind, *, member: bool) -> str:
    if kind is Kind.POWER_SHELF:
        return "planned" if member else "no"
    return "yes" if member else "no"
