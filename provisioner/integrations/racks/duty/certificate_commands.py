"""`provisioner rack certificates` and `rack verify-certificate`: of its machines, and of a rack.

When TLS certificates end is read by a handshake, before any login: of BMCs, of NVOS, and of the
NVLink controller's port (gRPC on 9370, docs/sources/hardware.md#nvlink-fabric), of which nothing
else is used. A controller that ends the handshake for want of a client's certificate before its own
was sent is unread. Which authority signed one is not judged here: that is `--ca` of the commands.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from pydantic import ValidationError

from provisioner.cli.options.bmc_options import KeyOption, read_trusted_keys
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console, strip_controls
from provisioner.integrations.racks.duty.rack_certificate import RACK_PAYLOAD, RackCertificate
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, read_plan
from provisioner.model.input_error import InputError
from provisioner.planning.certification.attestation import NotAnAttestation, parse_envelope
from provisioner.runtime.shipped import read_text
from provisioner.store.signing import signed

CONTROLLER_PORT = 9370
HANDSHAKE_S = 15.0
AT_ONCE = 16
DAY_S = 86_400.0
WARN_DAYS = 30  # an order of the site's authority and a visit take weeks


@dataclass(frozen=True)
class Door:
    """One TLS port of a unit; `optional`: one machine of several opens it."""

    unit: str
    what: str  # "BMC", "NVOS", "NVLink controller"
    host: str
    port: int
    optional: bool = False


@dataclass(frozen=True)
class Presented:
    """What a port presented. `ends_at` 0: nothing was read, and `unread` says why."""

    door: Door
    subject: str = ""
    ends_at: float = 0.0
    unread: str = ""
    sha256: str = ""  # of the certificate (DER), hex


def list_doors(racks: Sequence[PlannedRack]) -> Sequence[Door]:
    """Return every TLS port of the plan; an address over plain http has no certificate."""
    doors: list[Door] = []
    for unit in (unit for rack in racks for unit in rack.units):
        for what, url in (("BMC", unit.bmc), ("NVOS", unit.nvos)):
            parts = urlsplit(url)
            if parts.scheme == "https" and parts.hostname:
                doors.append(Door(unit.name, what, parts.hostname, parts.port or 443))
        host = urlsplit(unit.nvos).hostname
        if unit.kind is Kind.NVLINK_SWITCH and host:
            doors.append(Door(unit.name, "NVLink controller", host, CONTROLLER_PORT, optional=True))
    return doors


async def read_door(door: Door, limit_s: float = HANDSHAKE_S) -> Presented:
    """Return what a port presents. Raises nothing: an unread one says why."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE  # nothing is sent or believed but the date
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(
                door.host, door.port, ssl=trust, server_hostname=door.host
            )
    except (OSError, ssl.SSLError, TimeoutError, ValueError, OverflowError) as error:
        said = str(error) or f"no answer in {limit_s:.0f} s"
        return Presented(door, unread=said[:200])
    try:
        tls = writer.get_extra_info("ssl_object")
        read = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
        ends = read.not_valid_after_utc.timestamp()
        mark = read.fingerprint(hashes.SHA256()).hex()
        return Presented(door, read.subject.rfc4514_string()[:200], ends, sha256=mark)
    except (ValueError, OverflowError, OSError, x509.InvalidVersion) as error:
        return Presented(door, unread=f"its certificate cannot be read ({error})"[:200])
    finally:
        writer.transport.abort()


def judge(presented: Presented, now: float, days: float = WARN_DAYS) -> str:
    """Return "good", "ends soon", "over", "closed" or "unread"."""
    if presented.ends_at:
        left = presented.ends_at - now
        return "over" if left <= 0 else "ends soon" if left < days * DAY_S else "good"
    return "closed" if presented.door.optional else "unread"


async def read_doors(doors: Sequence[Door]) -> Sequence[Presented]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(door: Door) -> Presented:
        async with slots:
            return await read_door(door)

    return await asyncio.gather(*(one(door) for door in doors))


def verify_certificate(
    file: Annotated[Path, typer.Argument(help="RACK.certificate.json of a campaign.")],
    key: KeyOption,
    as_json: JsonOption = False,
) -> None:
    """Check that a rack's certificate is unchanged and signed by a trusted site.

    It says what was read at its time, and not what the rack is now. Exit code 1: it is not good.

    Example: provisioner rack verify-certificate r01.certificate.json --key keys.pem
    """
    keys = read_trusted_keys(key)
    remedy = "Name a file that the daemon wrote beside a campaign."
    try:
        envelope = parse_envelope(read_text(file))
    except NotAnAttestation as error:
        raise InputError(str(file), "", str(error), remedy) from None
    if envelope.payload_type != RACK_PAYLOAD or not signed(envelope, keys):
        typer.echo(f"{file}: no trusted key signed it as the certificate of a rack", err=True)
        raise typer.Exit(1)
    try:
        read = RackCertificate.model_validate_json(envelope.payload)
    except ValidationError:
        raise InputError(str(file), "", "its payload is no certificate of a rack", remedy) from None
    if as_json:
        typer.echo(read.model_dump_json(indent=2))
        return
    when = time.strftime("%F %H:%M", time.gmtime(read.judged_at))
    typer.echo(f"{read.rack} ({read.chassis_serial}): {len(read.units)} units at {when} UTC")
    for kind, targets in read.targets.items():
        for component, version in targets.items():
            typer.echo(f"  {kind}: {component} {version}")
    for each in read.fabric:
        typer.echo(f"  proved: {strip_controls(each)}")
    typer.echo(f"not judged: {strip_controls('; '.join(read.not_judged))}")


def certificates(
    plan: Annotated[Path, typer.Argument(help="YAML file with the racks; see docs/racks.md.")],
    racks: Annotated[
        list[str] | None, typer.Argument(metavar="[RACK]...", help="Racks by name; none: all.")
    ] = None,
    days: Annotated[
        float, typer.Option(min=0, max=3650, help="Tell those that end within so many days.")
    ] = WARN_DAYS,
    as_json: JsonOption = False,
) -> None:
    """Print when the certificates of BMCs, NVOS and the NVLink controllers of racks end.

    Each is read by a TLS handshake; no login is sent, and nothing is replaced. One machine of a
    domain runs the controller: a closed port of it is no fault.

    Exit code 1: one is over, ends within --days, or could not be read.

    Example: provisioner rack certificates racks.yaml r01
    """
    planned = read_plan(plan)
    chosen = [planned.find(name) for name in racks or ()] or list(planned.racks)
    read = asyncio.run(read_doors(list_doors(chosen)))
    now = time.time()
    judged = [(one, judge(one, now, days)) for one in read]
    if as_json:
        rows = [
            {
                "unit": one.door.unit,
                "what": one.door.what,
                "state": state,
                "ends_at": one.ends_at or None,
                "subject": one.subject,
                "unread": one.unread,
            }
            for one, state in judged
        ]
        typer.echo(json.dumps(rows, indent=2))
    else:
        table = Table("unit", "port", "certificate", "ends", "of")
        for one, state in judged:
            ends = time.strftime("%F", time.gmtime(one.ends_at)) if one.ends_at else "-"
            table.add_row(one.door.unit, one.door.what, state, ends, one.subject or one.unread)
        open_console().print(table)
    raise typer.Exit(0 if all(state in {"good", "closed"} for _, state in judged) else 1)
