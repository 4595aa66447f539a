"""`provisioner inspect`: the inventory of any Redfish service, as a table or as JSON."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.hardware_tree import HardwareTree
from provisioner.adapters.redfish.parsing import Json, text
from provisioner.adapters.redfish.settings.reading import read_machine_settings
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.upkeep.bmc_time import list_licences, read_clock
from provisioner.adapters.redfish.walk import Allowance, Walk
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
)
from provisioner.cli.options.tables import Table
from provisioner.model.inventory import BmcClock, DeviceKind, Inventory
from provisioner.model.machine.settings import BiosSettings, MachineSettings, Value
from provisioner.ports import BmcAddress, CertificateChanged, PortError

# ------------------------------------------------------------------------------
# The settings of `provisioner inspect --settings`, as tables and as JSON.


_SHOWN_MAX = 80  # characters of a value in a table; JSON has all


def settings_as_json(settings: MachineSettings) -> dict[str, Any]:
    """Return the object that `matrix refresh --settings` reads too."""
    return {
        "vendor": settings.vendor,
        "bios": [
            {
                "source": bios.source,
                "target": bios.target or None,
                "registry": bios.registry_name,
                "registry_read": bios.registry is not None,
                "apply_times": bios.apply_times,
                "attributes": [dict(row) for row in list_attributes(bios)],
            }
            for bios in settings.bios
        ],
        "secure_boot": [one.model_dump(mode="json") for one in settings.secure_boot],
        "bmcs": [one.model_dump(mode="json") for one in settings.bmcs],
        "gaps": [one.model_dump(mode="json") for one in settings.gaps],
    }


def list_attributes(bios: BiosSettings) -> Iterator[dict[str, Any]]:
    """Yield each attribute by name, with its values and the registry's description.

    An attribute that the registry alone lists has no current value: this machine does not show it.
    """
    rules = bios.registry.rules if bios.registry is not None else {}
    current = bios.current or {}
    for name in sorted({*current, *bios.pending, *rules}, key=str.lower):
        rule = rules.get(name)
        yield {
            "name": name,
            "shown": name in current,
            "current": current.get(name),
            "pending": bios.pending.get(name),
            "is_pending": name in bios.pending,
            "type": rule.kind if rule is not None and rule.kind else None,
            "values": list(rule.values) if rule is not None else [],
            "read_only": rule.read_only if rule is not None else None,
            "reset_required": rule.reset_required if rule is not None else None,
        }


def show_settings(console: Console, settings: MachineSettings) -> None:
    """Print the attributes that the machine shows, Secure Boot, and the BMCs' settings."""
    for bios in settings.bios:
        name = bios.registry_name or "none"
        read = "read" if bios.registry is not None else "not read"
        console.print(f"BIOS {bios.source}  registry {name}, {read}", markup=False)
        if bios.current is None:
            console.print("no attributes are shown: unknown, and not the defaults", markup=False)
        table = Table("attribute", "current", "pending", "type", "writable", title="BIOS")
        for row in list_attributes(bios):
            if not row["shown"] and not row["is_pending"]:
                continue
            pending = _cell(row["pending"]) if row["is_pending"] else "-"
            writable = {True: "no", False: "yes", None: "-"}[row["read_only"]]
            cells = (row["name"], _cell(row["current"]), pending, row["type"] or "-", writable)
            table.add_row(*(cell.replace("[", r"\[") for cell in cells))
        console.print(table)
    for one in settings.secure_boot:
        states = {True: "on", False: "off", None: "not shown"}
        console.print(
            f"Secure Boot {states[one.running]}, {states[one.enabled]} from the next boot, "
            f"mode {one.mode or 'not shown'}",
            markup=False,
        )
    table = Table("resource", "setting", "value", title="BMC")
    for bmc in settings.bmcs:
        path = bmc.source.removeprefix("/redfish/v1/")
        for name, value in bmc.values.items():
            table.add_row(path, name.replace("[", r"\["), _cell(value).replace("[", r"\["))
    if table.row_count:
        console.print(table)
    if settings.gaps:
        table = Table("gap", "source", "detail", title="Settings not known")
        for gap in settings.gaps:
            table.add_row(gap.reason.value, gap.source, gap.detail.replace("[", r"\["))
        console.print(table)


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


LIMIT_S = 90.0  # a DGX takes 30 s; a slower BMC needs --limit
REQUESTS_MAX = 8192  # every resource of a DGX H100 is 4,700
BYTES_MAX = 48 * 1024 * 1024  # a DGX gives under 4, with all parts


def inspect(
    url: UrlArgument,
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Also list settings of BIOS, Secure Boot and BMC.")
    ] = False,
    insecure: InsecureOption = False,
    pin: PinOption = "",
    ca: CaOption = None,
    limit: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="Seconds that the whole reading may take.")
    ] = LIMIT_S,
) -> None:
    """Print the inventory of a Redfish service.

    What was not read within the limit is listed as a gap.

    Exit code 1: it does not answer, is no Redfish service, or lists no part.

    Example: provisioner inspect https://10.0.0.11 --user admin
    """
    address = build_address(url, user, pin, ca, insecure=insecure)
    try:
        root, inventory, tree, upkeep = asyncio.run(_collect(address, ca, limit, settings=settings))
    except PortError as error:
        typer.echo(f"error: {error.reason}: {error}", err=True)
        if isinstance(error, CertificateChanged):
            typer.echo(asyncio.run(describe_certificate("inspect", address, user, ca)), err=True)
        raise typer.Exit(1) from None
    if as_json:
        whole = _as_json(address.url, root, inventory, tree, upkeep)
        typer.echo(json.dumps(whole, indent=2))
    else:
        _show(address.url, root, inventory, tree, upkeep)
    if not (inventory.devices or inventory.components):
        problem = "it shows no part and no firmware" if root else "this is no Redfish service"
        gaps = "; ".join(f"{g.source}: {g.detail}" for g in inventory.gaps[:3])
        remedy = "Is the address right? Does the service want --user?"
        typer.echo(f"error: {problem} ({gaps or 'without a reason'}). {remedy}", err=True)
        raise typer.Exit(1)


@dataclass(frozen=True)
class Upkeep:
    """The time of a BMC, and the names of its licences; None: it shows none.

    `settings`: None where they were not asked for.
    """

    clock: BmcClock | None = None
    licences: tuple[str, ...] | None = None
    settings: MachineSettings | None = None


async def _collect(
    address: BmcAddress, ca: Path | None, limit_s: float, *, settings: bool
) -> tuple[Json, Inventory, HardwareTree, Upkeep]:
    """Read the service root, the inventory, all parts, time and licences. Raises `PortError`."""
    transport = RedfishTransport(ca_file=ca)
    try:
        allowance = Allowance(limit_s, REQUESTS_MAX, BYTES_MAX)
        root = await Walk(transport, address, quirks.UNKNOWN, allowance=allowance).read_root()
        client = Redfish(transport, address, quirks.identify(root), allowance=allowance)
        inventory, tree = await client.collect_tree("", "")
        upkeep = await _read_upkeep(client)
        if settings:
            upkeep = replace(upkeep, settings=await read_machine_settings(client.service))
        return root, inventory, tree, upkeep
    finally:
        await transport.close()


async def _read_upkeep(client: Redfish) -> Upkeep:
    """Return the time and the licences; a BMC that is silent about them shows none."""
    try:
        clock = await read_clock(client.service, time.time)
        return Upkeep(clock, await list_licences(client.service))
    except PortError:
        return Upkeep()


def _as_json(
    url: str, root: Json, inventory: Inventory, tree: HardwareTree, upkeep: Upkeep
) -> dict[str, Any]:
    """Return the object that `provisioner plan --inventory` reads too."""
    whole = inventory.model_dump(mode="json")
    settings = {} if upkeep.settings is None else {"settings": settings_as_json(upkeep.settings)}
    system = next(iter(inventory.devices_of(DeviceKind.SYSTEM)), None)
    return {
        "url": url,
        "vendor": text(root.get("Vendor")) or quirks.ALL[inventory.vendor].title,
        "quirk": inventory.vendor,
        "redfish_version": text(root.get("RedfishVersion")),
        "system": {
            "model": inventory.model,
            # a BlueField's serial is the card's, and an inventory has it with the card only
            "serial": inventory.system_serial or (system.serial if system else None),
            "uuid": inventory.system_uuid,
            "power": inventory.power.value,
            "boot_state": inventory.boot_state,
        },
        "components": whole["components"],
        "devices": whole["devices"],
        "clock": None if upkeep.clock is None else upkeep.clock.model_dump(mode="json"),
        "licences": upkeep.licences,
        "leak_detectors": whole["leaks"],
        "obstacles": whole["obstacles"],
        "gaps": whole["gaps"],
        "parts": [
            {"kind": p.kind, "source": p.source, "values": dict(p.values)} for p in tree.parts
        ],
        "unread_parts": [g.model_dump(mode="json") for g in tree.gaps],
        **settings,
    }


def _show(url: str, root: Json, inventory: Inventory, tree: HardwareTree, upkeep: Upkeep) -> None:
    # nothing is cut when the output goes to a file: a table there is as wide as it needs to be
    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False)
    title = quirks.ALL[inventory.vendor].title
    heading = [inventory.model or "unknown model", title, f"power {inventory.power.value}"]
    if inventory.system_serial:
        heading.insert(1, f"serial {inventory.system_serial}")
    console.print(f"{url}  {', '.join(heading)}", markup=False)
    console.print(f"clock: {_describe_clock(upkeep.clock)}", markup=False)
    if upkeep.licences is not None:
        console.print(f"licences: {', '.join(upkeep.licences) or 'none'}", markup=False)
    table = Table("device", "slot", "model", "serial", "part", "MAC", title="Devices")
    for d in inventory.devices:
        table.add_row(*_cells(d.kind.value, d.slot, d.model, d.serial, d.part, d.mac))
    console.print(table)
    table = Table("component", "slot", "version", "staged", "copy", "updateable", title="Firmware")
    for c in sorted(inventory.components, key=lambda c: (c.kind, c.slot)):
        updateable = {True: "yes", False: "no", None: "-"}[c.updateable]
        copied = c.background_copy.value if c.background_copy else None
        table.add_row(*_cells(c.kind, c.slot, c.version or c.part, c.staged, copied, updateable))
    console.print(table)
    if inventory.obstacles:
        table = Table("BMC", "obstacle", "detail", "remedy", title="In the way of writes")
        for obstacle in inventory.obstacles:
            table.add_row(*_cells(obstacle.bmc, obstacle.name, obstacle.detail, obstacle.unblock))
        console.print(table)
    if inventory.leaks:
        table = Table("leak detector", "reading", "detail", title="Leak detectors")
        for detector in inventory.leaks:
            table.add_row(*_cells(detector.slot, detector.moisture.value, detector.detail))
        console.print(table)
    _show_parts(console, tree)
    if upkeep.settings is not None:
        show_settings(console, upkeep.settings)
    if inventory.gaps:
        table = Table("gap", "source", "detail", title="Not known")
        for g in inventory.gaps:
            table.add_row(*_cells(g.reason.value, g.source, g.detail))
        console.print(table)


# columns of the table of parts: the property that fills each is the first that a part has
_COLUMNS = {
    "model": ("Model",),
    "serial": ("SerialNumber",),
    "part": ("PartNumber",),
    "firmware": ("FirmwareVersion", "Revision", "FirmwareRevision", "BiosVersion"),
    "MAC": (
        "PermanentMACAddress",
        "MACAddress",
        "Ethernet.PermanentMACAddress",
        "Ethernet.MACAddress",
        "AssociatedNetworkAddresses.0",
    ),
    "UUID": ("UUID",),
    "health": ("Status.Health",),
}


def _show_parts(console: Console, tree: HardwareTree) -> None:
    """Print each part that has more to show than its health, and each that is not healthy."""
    table = Table("kind", "path", *_COLUMNS, title="Parts")
    for part in tree.parts:
        if part.kind == "SoftwareInventory":  # in the table of the firmware
            continue
        cells = [
            next((v for name in names if (v := part.values.get(name))), None)
            for names in _COLUMNS.values()
        ]
        if any(cells[:-1]) or cells[-1] not in (None, "OK"):
            path = part.source.removeprefix("/redfish/v1").removeprefix("/")
            table.add_row(*_cells(part.kind, path, *cells))
    if table.row_count:
        console.print(table)


def _describe_clock(clock: BmcClock | None) -> str:
    if clock is None or clock.skew_s is None:
        return "not shown"
    side = "ahead of" if clock.skew_s > 0 else "behind"
    skew = f"{abs(clock.skew_s):.0f} s {side} this machine"
    if clock.ntp is None:
        return f"{skew}, NTP not shown"
    return f"{skew}, NTP {'on' if clock.ntp else 'off'} ({', '.join(clock.ntp_servers) or 'none'})"


def _cells(*values: str | None) -> list[str]:
    """Return cells of a device's text, which is shown as it is and never read as markup."""
    return [(v or "-").replace("[", r"\[") for v in values]


async def describe_certificate(
    command: str, address: BmcAddress, user: str, ca: Path | None
) -> str:
    """Return what to do about a certificate that is not trusted: its SHA-256, and the command.

    It is fetched by a connection of its own, on which no login is sent.
    """
    transport = RedfishTransport(ca_file=ca)
    try:
        pin = await transport.fingerprint(BmcAddress(url=address.url))
    except PortError:
        return "  Give --ca, --pin or --insecure."
    finally:
        await transport.close()
    login = f" --user {shlex.quote(user)}" if user else ""
    return (
        f"  Its certificate has the SHA-256 {pin}: compare it at the device's console, then\n"
        f"  provisioner {command} {address.url}{login} --pin {pin}\n"
        "  Or give the file of its CA with --ca; --insecure accepts any certificate."
    )
