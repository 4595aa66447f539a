"""`provisioner rack rotate-certificate`: a new certificate for the NVLink controller of a switch.

Through NetQ NVLink, which alone documents how (docs/sources/hardware.md#certificate-rotation). One
switch at a time; it is done when a TLS handshake with the controller's port shows the new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from cryptography import x509

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.options.bmc_options import CaOption
from provisioner.cli.options.checked_options import check_ca
from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.racks.duty.certificate_commands import (
    CONTROLLER_PORT,
    Door,
    Presented,
    read_door,
)
from provisioner.integrations.racks.duty.switch_bundle import (
    Bundle,
    find_refusals,
    read_bundle,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.partitions.partition_commands import read_manager_login
from provisioner.integrations.racks.partitions.tenant_partitions import ENDED
from provisioner.integrations.racks.plan import (
    PlannedUnit,
    RackPlan,
    normalize_host,
    read_plan,
)
from provisioner.integrations.racks.update_log import (
    BEGAN,
    TOLD,
    VOID,
    Line,
    UpdateLog,
    hold_log,
    read_log,
)
from provisioner.integrations.racks.water_commands import PlanFile, ask_person
from provisioner.model.input_error import InputError
from provisioner.ports import PortError, Unreachable

SENDS_MAX = 3  # of one bundle: NVIDIA says that one that failed may be tried again
LOOKS_MAX = 60
LOOK_S = 5.0  # five minutes for a controller that starts anew: assumed, nobody publishes how long


@dataclass(frozen=True)
class Rotation:
    """One switch, and what it is to get."""

    unit: str
    door: Door
    bundle: Bundle
    profile: str
    look_s: float = LOOK_S


async def rotate(one: Rotation, client: NmxClient, log: UpdateLog) -> str:
    """Send a bundle, and prove that the switch presents it; return why not, "" for done.

    A predecessor's request is waited for, and looked at until its controller has had its time to
    start anew, before another one is sent.
    """
    act = log.of(one.unit)
    what = one.bundle.sha256
    try:
        if (busy := await client.wait_idle()) is not None:
            return f"{busy.detail}. {busy.unblock}"
    except PortError as error:
        return f"the manager cannot be read ({error}): nothing was sent"
    seen = [await read_door(one.door), await read_door(one.door)]
    if all(each.sha256 == what for each in seen):
        return ""
    if act.count(what) and act.told(what) is None:  # who sent it died, and saw no end of it
        left = (LOOKS_MAX * one.look_s - act.since(what, time.time())) / one.look_s
        if (await _wait_shown(one, min(LOOKS_MAX, int(left) + 1))).sha256 == what:
            return ""
        seen = [await read_door(one.door), await read_door(one.door)]
    if not seen[0].sha256 or seen[0].sha256 != seen[1].sha256:
        return f"its port does not show one certificate twice: {seen[1].unread or 'it changes'}"
    if act.count(what) >= SENDS_MAX:
        return f"it was sent {SENDS_MAX} times, and the switch still presents the old one"
    log.write(Line(one.unit, BEGAN, what, time.time(), seen[0].sha256))
    await log.sync()
    said = ""
    try:
        host = one.door.host
        said = await client.replace_certificate(host, one.bundle.content, one.profile)
    except PortError as error:
        if not (isinstance(error, Unreachable) and error.maybe_executed):
            log.write(Line(one.unit, TOLD, what, time.time(), VOID))
            await log.sync()
            return f"the manager refused it: {error}"
        said = str(error)
    failed = said.partition(":")[0] in ENDED  # it changes nothing more; a lost answer's one may
    shown = await _wait_shown(one, 1 if failed else LOOKS_MAX)
    done = shown.sha256 == what
    log.write(Line(one.unit, TOLD, what, time.time(), "presented" if done else "not presented"))
    await log.sync()
    if done:
        return ""
    return f"its port shows {_name(shown)}; the manager says {said or 'that it is done'}"


async def _wait_shown(one: Rotation, looks: int) -> Presented:
    """Return what the port shows: the new certificate, or what the last of so many looks saw."""
    shown = await read_door(one.door)
    for _ in range(looks - 1):
        if shown.sha256 == one.bundle.sha256:
            break
        await asyncio.sleep(one.look_s)
        shown = await read_door(one.door)
    return shown


def _name(shown: Presented) -> str:
    return f"no certificate ({shown.unread})" if not shown.sha256 else "the old certificate"


def find_switch(plan: RackPlan, name: str) -> PlannedUnit:
    """Return a planned NVLink switch with NVOS over https. Raises InputError."""
    found = [unit for rack in plan.racks for unit in rack.units if unit.name == name]
    if not found or found[0].kind is not Kind.NVLINK_SWITCH:
        raise InputError("SWITCH", name, "the plan has no NVLink switch of this name", "Name one.")
    if urlsplit(found[0].nvos).scheme != "https":
        raise InputError("SWITCH", name, "the plan has no https address of its NVOS", "Add it.")
    return found[0]


def rotate_certificate(
    file: PlanFile,
    switches: Annotated[
        list[str], typer.Argument(metavar="SWITCH...", help="NVLink switches, by name.")
    ],
    bundle: Annotated[
        Path,
        typer.Option(
            help="PKCS#12 file with key, certificate and chain, no passphrase; of several "
            "switches, the folder with SWITCH.p12."
        ),
    ],
    issuer: Annotated[Path, typer.Option(help="PEM file: the authority that the manager has.")],
    manager: Annotated[str, typer.Option(help="https://HOST of NetQ NVLink.")],
    user: Annotated[str, typer.Option(help=f"Its user; the password is in {VARIABLE}.")],
    journal: Annotated[Path, typer.Option(help="File that says what was sent; it may be there.")],
    profile: Annotated[str, typer.Option(help="ID of the switch's profile at the manager.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Send it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    ca: CaOption = None,
) -> None:
    """Give the NVLink controllers of switches a new certificate each, through NetQ NVLink.

    The bundles are judged first: key, names, dates, later end, and a chain to --issuer. The manager
    has to be in its maintenance mode. Done means that a TLS handshake shows the new one. One switch
    after the other; the first one that is not done ends it. Run again, it goes on by looking, and
    names which are done and which not; a switch whose controller's port is closed cannot be proved,
    and gets nothing. One command at a time: NVOS' own certificate and BMCs' are not replaced by it.

    Exit code 1: one would be refused, one is not so, or (without --apply) one would be sent.

    Example: provisioner rack rotate-certificate r.yaml r01-s0 --bundle s0.p12 --issuer ca.pem
    --manager https://netq --user rw-user --journal s0.journal
    """
    plan = read_plan(file)
    names = list(dict.fromkeys(switches))
    wanted = [_prepare(plan, name, bundle, profile, several=len(names) > 1) for name in names]
    authority = _read_issuer(issuer)
    address = read_manager_login(manager, user)
    check_ca("--ca", ca)
    with _alone(plan, names, address.url):
        left = _judge(wanted, authority, read_log(journal))
        if not left:
            return
        if not apply:
            raise typer.Exit(1)
        named = ", ".join(one.unit for one in left)
        ask_person(f"replace the certificates of the NVLink controllers of {named}", yes=yes)

        async def run() -> None:
            transport = SwitchHttps(ca_file=ca)
            try:
                client = NmxClient(transport, address, asyncio.sleep)
                async with hold_log(journal) as log:
                    await _rotate_all(left, client, log)
            finally:
                await transport.close()

        asyncio.run(run())


async def _rotate_all(left: Sequence[Rotation], client: NmxClient, log: UpdateLog) -> None:
    """Go from switch to switch, and say of each what became of it."""
    failed = ""
    for one in left:
        if failed:
            typer.echo(f"{one.unit}: not begun")
        elif failed := await rotate(one, client, log):
            typer.echo(strip_controls(f"{one.unit}: not done: {failed}"))
        else:
            typer.echo(f"{one.unit} presents it")
    if failed:
        raise typer.Exit(1)


def _judge(
    wanted: Sequence[Rotation], authority: x509.Certificate, log: UpdateLog
) -> Sequence[Rotation]:
    """Say of each switch where it stands; return those that need a bundle. Exits where one would be
    refused: nothing is sent to any then.
    """
    left: list[Rotation] = []
    refused = False
    for one in wanted:
        shown = asyncio.run(read_door(one.door))
        if shown.sha256 == one.bundle.sha256:
            typer.echo(f"{one.unit} presents it")
            continue
        left.append(one)
        why = list(find_refusals(one.bundle, authority, one.door.host, shown.ends_at, time.time()))
        if not shown.sha256:
            why.append(f"port {CONTROLLER_PORT} of it shows no certificate ({shown.unread})")
        for each in why:
            typer.echo(strip_controls(f"{one.unit}: refused: {each}"))
        refused = refused or bool(why)
        ends = time.strftime("%F", time.gmtime(one.bundle.ends_at))
        act = log.of(one.unit)
        what = one.bundle.sha256
        sent = bool(act.count(what)) and act.told(what) is None
        before = "; it was sent before, and nobody saw its end" if sent else ""
        if not why:
            said = f"a certificate that ends on {ends} in place of {shown.subject}{before}"
            typer.echo(strip_controls(f"{one.unit}: {said}"))
    if refused:
        raise typer.Exit(1)
    return left


def _prepare(plan: RackPlan, name: str, bundle: Path, profile: str, *, several: bool) -> Rotation:
    unit = find_switch(plan, name)
    host = normalize_host(urlsplit(unit.nvos).hostname or "")
    door = Door(unit.name, "NVLink controller", host, CONTROLLER_PORT, optional=True)
    made = _read_bundle(bundle / f"{name}.p12" if several or bundle.is_dir() else bundle)
    return Rotation(unit.name, door, made, profile)


@contextmanager
def _alone(plan: RackPlan, switches: Sequence[str], manager: str) -> Iterator[None]:
    """Hold what is rotated against another rotation on this machine, whatever files it is given:
    the manager, and each NVLink domain. The kernel lets go of the names with the process.

    Raises InputError.
    """
    units = [(rack, unit) for rack in plan.racks for unit in rack.units if unit.name in switches]
    with ExitStack() as held:
        for name in (manager, *sorted({domain_of(*each) or each[0].name for each in units})):
            one = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            try:
                told = hashlib.sha256(name.encode()).hexdigest()
                one.bind(f"\0provisioner-rotation-{told}")
            except OSError:
                problem = "another rotation of certificates is under way there"
                raise InputError("RACKS", name, problem, "Wait for its end.") from None
        yield


def _read_bundle(file: Path) -> Bundle:
    try:
        return read_bundle(file.read_bytes())
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError("--bundle", str(file), f"{problem}", "Give another file.") from None


def _read_issuer(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        raise InputError("--issuer", str(file), "it is no PEM certificate", "Name it.") from None
