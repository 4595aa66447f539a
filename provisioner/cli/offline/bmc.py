"""`provisioner bmc dry-run`: the requests of an action, recorded instead of sent."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer
from rich.markup import escape
from rich.table import Table

from provisioner import components, quirks
from provisioner.adapters.redfish import accounts
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import (
    HIDDEN,
    DryRunTransport,
    StandingClock,
    Write,
)
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc
from provisioner.adapters.redfish.settings.card_writes import set_card
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.upkeep.bmc_time import set_clock
from provisioner.adapters.redfish.walk import Walk
from provisioner.cli.offline.boot_options import print_boot_options
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
)
from provisioner.cli.options.setting_pairs import parse_settings
from provisioner.cli.options.showing import open_console
from provisioner.execution.actions.power import Pace, cycle_standby, switch_off, switch_on
from provisioner.execution.steps.boot_sources import boot_disk, boot_image
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import DPU, find_kind
from provisioner.ports import BmcAddress, PortError, Secret
from provisioner.runtime import permit
from provisioner.settings.maintenance import BootWay

app = typer.Typer(help="BMCs: requests to one, previewed; network boot.", no_args_is_help=True)

Action = Literal[
    "boot-maintenance",
    "boot-disk",
    "change-password",
    "push",
    "ac-cycle",
    "power",
    "subscribe",
    "enable-media",
    "set-time",
    "set-bios",
    "set-bmc",
]
ACTIONS = get_args(Action)
_PULLED_FROM = "http://provisioner.invalid"  # where no daemon serves the file
_POWER = ("on", "off", "cycle")


@dataclass(frozen=True)
class Request:
    """One action with its options, as they were checked."""

    action: Action
    what: str = ""
    image: str = ""
    file: Path | None = None
    destination: str = ""
    way: BootWay = "vendor"
    force: bool = False
    ntp: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


@app.callback()
def _group() -> None:
    """BMCs: requests to one, previewed; network boot."""


app.command("boot-options")(print_boot_options)


@app.command("dry-run")
def dry_run(
    url: UrlArgument,
    action: Annotated[str, typer.Argument(help=f"One of {', '.join(ACTIONS)}.")],
    what: Annotated[
        str, typer.Argument(help="KIND or KIND/SLOT of `push`; on, off or cycle of `power`.")
    ] = "",
    image: Annotated[str, typer.Option(help="URL of the maintenance image.")] = "",
    file: Annotated[Path | None, typer.Option(help="The package of `push`.")] = None,
    destination: Annotated[str, typer.Option(help="URL to which events are posted.")] = "",
    maintenance_boot: Annotated[
        str, typer.Option(help="vendor, virtual_media, http, http_dhcp or pxe: as the setting.")
    ] = "vendor",
    ntp: Annotated[
        list[str] | None, typer.Option(help="Time server of `set-time`; repeat it for more.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE of `set-bios` and `set-bmc`; repeat it for more."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Push an older version.")] = False,
    user: UserOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    insecure: InsecureOption = False,
    pin: PinOption = "",
    ca: CaOption = None,
) -> None:
    """Read a BMC for real, and print each request that an action would send to change something.

    Exit code 1: the action is refused, or the BMC does not answer.

    Example: provisioner bmc dry-run https://10.0.0.11 power cycle --user admin
    """
    address = build_address(url, user, pin, ca, insecure=insecure)
    request = _checked(action, what, image, file, destination, maintenance_boot, force=force)
    pairs = parse_settings(action, settings or [])
    request = replace(request, ntp=tuple(ntp or ()), settings=pairs)
    writes, refused = asyncio.run(_run(address, ca, request))
    if as_json:
        typer.echo(json.dumps(as_object(writes, refused)))
    else:
        _show(writes, refused)
    raise typer.Exit(1 if refused is not None else 0)


def as_object(writes: list[Write], refused: Blocker | None) -> dict[str, Any]:
    """Return the object that is printed: requests in the order of sending, and the refusal."""
    reason = refused and {
        "reason": refused.reason.value,
        "detail": refused.detail,
        "unblock": refused.unblock,
    }
    return {"writes": [write.model_dump(mode="json") for write in writes], "refused": reason}


async def _run(
    address: BmcAddress, ca: Path | None, request: Request
) -> tuple[list[Write], Blocker | None]:
    transport = DryRunTransport(RedfishTransport(ca_file=ca))
    with permit.close_gate("this is a dry run"):
        try:
            root = await Walk(transport, address, quirks.UNKNOWN).read_root()
            if not root:
                return [], _no_service(address.url)
            clock = StandingClock()
            client = Redfish(transport, address, quirks.identify(root), clock.sleep)
            refused = await carry_out(client, clock, request)
        except PortError as error:
            refused = Blocker(
                reason=error.reason,
                subject=address.url,
                detail=str(error),
                unblock="Check the address, --user, and --ca, --pin or --insecure.",
            )
        finally:
            await transport.close()
    return transport.writes, refused


async def carry_out(client: Redfish, clock: StandingClock, request: Request) -> Blocker | None:
    """Do the action as the daemon does it; return why it is refused."""
    pace = Pace(clock, poll_s=1.0, limit_s=60.0, subject="host")
    match request.action:
        case "boot-maintenance":
            return await boot_image(client, pace, request.image, request.way)
        case "boot-disk":
            return await boot_disk(client, pace)
        case "change-password":
            name = client.address.username or await accounts.find_administrator(client.service)
            return await client.set_password(name or "", Secret(HIDDEN))
        case "push":
            return await _push(client, request)
        case "ac-cycle":
            return await cycle_standby(client, pace, _return_at_once)
        case "power":
            return await _power(client, pace, request.what)
        case "subscribe":
            made = await subscriptions.make_subscription(
                client.service, request.destination, HIDDEN
            )
            if isinstance(made, Blocker):
                return made
            return await subscriptions.submit_test(client.service)
        case "enable-media":
            return await client.enable_media()
        case "set-time":
            return await set_clock(client.service, request.ntp, time.time)
        case "set-bios":
            if any(find_kind(name) == DPU for name, _ in request.settings):
                return await set_card(client.service, dict(request.settings))
            sent = await set_bios(client.service, dict(request.settings))
            return sent if isinstance(sent, Blocker) else None
        case "set-bmc":
            return await set_bmc(client.service, dict(request.settings))


async def _push(client: Redfish, request: Request) -> Blocker | None:
    kind, _, slot = request.what.partition("/")
    assert request.file is not None
    match components.ALL[kind].method:
        case "redfish_push":
            slots = (slot,) if slot else ()
            sent = await client.push(kind, slots, request.file, force=request.force)
        case "bluefield_bfb":
            sent = await client.simple_update(f"{_PULLED_FROM}/{request.file.name}", kind)
        case method:
            return Blocker(
                reason=Reason.NOT_OFFERED,
                subject=kind,
                detail=f"{components.ALL[kind].title} is not written through Redfish ({method})",
                unblock="Push the package that holds it, or let the daemon write it in band.",
            )
    return sent if isinstance(sent, Blocker) else await client.end_push()


async def _power(client: Redfish, pace: Pace, what: str) -> Blocker | None:
    """Switch as a person asks: on and off are sent whatever the state is."""
    if what == "on":
        return await client.reset_system("On")
    if what == "off":
        return await client.reset_system("ForceOff")
    refused = await client.admit_act() or await switch_off(client, pace)
    return refused or await switch_on(client, pace)


async def _return_at_once() -> Blocker | None:
    return None


def _checked(
    action: str,
    what: str,
    image: str,
    file: Path | None,
    destination: str,
    way: str,
    *,
    force: bool,
) -> Request:
    """Return the request. Raises InputError for what is missing or not known."""
    if action not in ACTIONS:
        raise InputError("ACTION", action, "no such action", f"Write {', '.join(ACTIONS)}.")
    if way not in get_args(BootWay):
        remedy = f"Write one of {', '.join(get_args(BootWay))}."
        raise InputError("--maintenance-boot", way, "no such way", remedy)
    missing = {"boot-maintenance": (image, "--image"), "subscribe": (destination, "--destination")}
    value, option = missing.get(action, ("-", ""))
    if not value:
        raise InputError(option, "", f"{action} needs it", f"Give {option} URL.")
    if action == "power" and what not in _POWER:
        raise InputError("ACTION", f"power {what}", "no such state", "Write on, off or cycle.")
    if action == "push":
        kind = what.partition("/")[0]
        if kind not in components.ALL:
            remedy = "Write a kind of the matrix, for example host.bios or hgx.bundle."
            raise InputError("ACTION", f"push {what}", "no such component kind", remedy)
        if file is None or not file.is_file():
            raise InputError("--file", str(file or ""), "no such file", "Give --file FILE.")
    return Request(
        cast("Action", action), what, image, file, destination, cast("BootWay", way), force
    )


def _no_service(url: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=url,
        detail="no Redfish service root",
        unblock="Check the address; some services want --user.",
    )


def _show(writes: list[Write], refused: Blocker | None) -> None:
    table = Table("#", "method", "path", "body", title="Requests that would be sent")
    for number, write in enumerate(writes, 1):
        body = write.upload.model_dump(mode="json") if write.upload else write.body
        table.add_row(str(number), write.method, write.path, escape(json.dumps(body)))
    if writes or refused is not None:
        open_console().print(table)
    else:
        typer.echo("No request would be sent: everything is as it would be set.")
    if refused is not None:
        typer.echo(f"refused: {refused.reason}: {refused.detail}. {refused.unblock}", err=True)
