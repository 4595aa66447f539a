"""`provisioner bmc dry-run`: the requests of an action, recorded instead of sent."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer
from pydantic import BaseModel, ValidationError
from rich.markup import escape

from provisioner import components, quirks
from provisioner.adapters.redfish import accounts
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import HIDDEN, DryRunTransport, StandingClock, Write
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc, set_card
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.upkeep.bmc_time import set_clock
from provisioner.adapters.redfish.walk import Walk
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
)
from provisioner.cli.options.checked_options import check_artifact_url
from provisioner.cli.options.tables import Table, open_console
from provisioner.execution.actions.power import Pace, cycle_standby, switch_off, switch_on
from provisioner.execution.steps.agent_steps import boot_disk, boot_image
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    DPU,
    find_kind,
    find_setting_fault,
)
from provisioner.ports import BmcAddress, PortError, Secret
from provisioner.runtime import permit
from provisioner.settings.maintenance import BootWay

# ------------------------------------------------------------------------------
# `provisioner bmc boot-options`: what a site's own DHCP, TFTP and HTTP servers need.
#
# With `maintenance_boot: pxe` a host boots the file that the site's DHCP server names. UEFI
# firmware that boots by PXE gets iPXE by TFTP, and iPXE gets a script that loads the kernel and
# ramdisk of the maintenance image by HTTP; firmware that boots by HTTP gets the bootable image
# itself.
#
# source: RFC 4578 and IANA's list of processor architecture types (option 93: 7 and 9 x64 UEFI, 11
# AArch64 UEFI, 16 and 19 the same by HTTP); UEFI 2.10, section 24.7 (HTTPClient in option 60, a URL
# in option 67); ipxe.org, "Chainloading iPXE" (user class iPXE in option 77).


BYTES_MAX = 4 * 1024 * 1024  # of a manifest; one has some 100 KB
SCRIPT = "maintenance.ipxe"
BINARIES = {7: "snponly.efi", 9: "snponly.efi", 11: "snponly-arm64.efi"}
HTTP_TYPES = (16, 19)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BootFile(BaseModel):
    """A file of the image, as its manifest pins it."""

    name: str
    sha256: str
    size_bytes: int


class BootManifest(BaseModel):
    """The part of an image's manifest that a network boot needs."""

    cmdline: str
    files: dict[str, BootFile]


# `--set iommu=off --set attribute:ProcX2Apic=Enabled`: the kinds of settings that an action sets
_KINDS = {"set-bios": (BIOS, DPU), "set-bmc": (BMC, CARD)}


def parse_settings(action: str, pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of an action that sets some. Raises InputError for any other text."""
    kinds = _KINDS.get(action)
    if kinds is None:
        return ()
    if not pairs:
        raise InputError("--set", "", f"{action} needs it", "Give --set NAME=VALUE.")
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InputError("--set", pair, "no name and value", "Give --set NAME=VALUE.")
        if (fault := find_setting_fault(name, value)) is not None:
            raise InputError("--set", pair, *fault)
        if (kind := find_kind(name)) not in kinds:
            other = next((word for word, several in _KINDS.items() if kind in several), "")
            remedy = f"Use {other}." if other else "It is a switch's: pin it in the matrix."
            raise InputError("--set", pair, f"no setting of {action}", remedy)
        settings[name] = value
    return tuple(settings.items())


def print_boot_options(
    manifest: Annotated[Path, typer.Option(help="Manifest beside the built maintenance image.")],
    url: Annotated[str, typer.Option(help="http://SERVER/PATH of a server that has its files.")],
    tftp: Annotated[str, typer.Option(help="The TFTP server that has iPXE.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the DHCP options and files that a network boot of the maintenance image needs.

    Example: provisioner bmc boot-options --manifest image.json --url http://10.0.0.1/boot
    --tftp 10.0.0.1
    """
    pinned = read_boot_manifest(manifest)
    if not _HOST.fullmatch(tftp):
        raise InputError("--tftp", tftp[:80], "not a host name or address", "Write 10.0.0.1.")
    options = build_options(pinned, check_artifact_url(url), tftp)
    if as_json:
        typer.echo(json.dumps(options))
        return
    typer.echo(f"# dnsmasq\n{options['dnsmasq']}")
    typer.echo(f"# Kea (Dhcp4)\n{json.dumps(options['kea'], indent=2)}\n")
    typer.echo(f"# {url}/{SCRIPT}\n{options['script']}")
    typer.echo("# files of the server; check them with sha256sum -c")
    for file in options["files"]:
        typer.echo(f"{file['sha256']}  {file['name']}")
    typer.echo("\n# settings of the daemon")
    typer.echo("\n".join(f"{name}: {value}" for name, value in options["settings"].items()))


def read_boot_manifest(path: Path) -> BootManifest:
    """Return the part of a manifest that is needed. Raises InputError that names the field."""
    remedy = "Give the JSON file that `make image` writes beside the image."
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise InputError("--manifest", str(path), problem, remedy) from None
    if len(raw) > BYTES_MAX:
        raise InputError("--manifest", str(path), f"larger than {BYTES_MAX} bytes", remedy)
    try:
        manifest = BootManifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError("--manifest", where, first["msg"], remedy) from None
    for kind in ("kernel", "initramfs", "iso"):
        if kind not in manifest.files or not _FILE.fullmatch(manifest.files[kind].name):
            raise InputError("--manifest", f"files.{kind}", "no such file is named", remedy)
    if "\n" in manifest.cmdline or "\r" in manifest.cmdline:
        raise InputError("--manifest", "cmdline", "it has several lines", remedy)
    return manifest


def build_options(manifest: BootManifest, url: str, tftp: str) -> dict[str, Any]:
    """Return the options for DHCP servers, the script for iPXE, the files and the settings."""
    script = f"{url}/{SCRIPT}"
    image = f"{url}/{manifest.files['iso'].name}"
    files = [manifest.files[kind] for kind in ("kernel", "initramfs", "iso")]
    return {
        "dnsmasq": _build_dnsmasq(script, image, tftp),
        "kea": {"client-classes": _build_kea_classes(script, image, tftp)},
        "script": _build_script(manifest, url),
        "files": [file.model_dump() for file in files],
        "settings": {"maintenance_boot": "pxe", "agent_lookup_trusts": "first"},
    }


def _build_dnsmasq(script: str, image: str, tftp: str) -> str:
    lines = ["dhcp-userclass=set:ipxe,iPXE", f"dhcp-boot=tag:ipxe,{script}"]
    for number, binary in BINARIES.items():
        lines.append(f"dhcp-match=set:pxe{number},option:client-arch,{number}")
        lines.append(f"dhcp-boot=tag:pxe{number},tag:!ipxe,{binary},,{tftp}")
    for number in HTTP_TYPES:
        lines.append(f"dhcp-match=set:http{number},option:client-arch,{number}")
        lines.append(f"dhcp-option-force=tag:http{number},60,HTTPClient")
        lines.append(f"dhcp-boot=tag:http{number},{image}")
    return "\n".join(lines) + "\n"


def _build_kea_classes(script: str, image: str, tftp: str) -> list[dict[str, Any]]:
    """Return Kea's classes; a client takes the fields of the first class that fits."""
    classes: list[dict[str, Any]] = [
        {"name": "maintenance-ipxe", "test": "option[77].text == 'iPXE'", "boot-file-name": script}
    ]
    classes += [
        {
            "name": f"maintenance-pxe-{number}",
            "test": f"option[93].hex == 0x{number:04x} and not member('maintenance-ipxe')",
            "next-server": tftp,
            "boot-file-name": binary,
        }
        for number, binary in BINARIES.items()
    ]
    classes += [
        {
            "name": f"maintenance-http-{number}",
            "test": f"option[93].hex == 0x{number:04x}",
            "boot-file-name": image,
            "option-data": [
                {"name": "vendor-class-identifier", "data": "HTTPClient", "always-send": True}
            ],
        }
        for number in HTTP_TYPES
    ]
    return classes


def _build_script(manifest: BootManifest, url: str) -> str:
    kernel = manifest.files["kernel"].name
    ramdisk = manifest.files["initramfs"].name
    return (
        "#!ipxe\n"
        f"kernel {url}/{kernel} initrd={ramdisk} {manifest.cmdline}\n"
        f"initrd --name {ramdisk} {url}/{ramdisk}\n"
        "boot\n"
    )


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
