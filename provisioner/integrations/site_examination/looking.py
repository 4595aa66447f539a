"""Examine the devices of a site before it goes live, and change nothing.

Each BMC and switch is asked once without a login and once with the stored credential. A refusal is
recorded as always, so that an examination never locks an account.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from provisioner.adapters.redfish.discovery import probe
from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.discover import introduce_bmcs
from provisioner.integrations.site_examination import judging as examination
from provisioner.integrations.site_examination.judging import Examined
from provisioner.model.base import Record
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.model.switch import Surroundings
from provisioner.planning.intake.pairing import Endpoint
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    Clock,
    PortError,
    Secret,
    SwitchAddress,
    Switches,
    SwitchRefused,
)
from provisioner.settings import Settings

ROOT = "/redfish/v1"
MANAGERS = "/redfish/v1/Managers"  # every BMC has it, and none shows it without a login (DSP0266)
LIMIT_S = 20.0
AT_ONCE = 64


class Looked(Record):
    """The result of examining one device. `skew_s`: its clock ahead of ours; None if it reported no
    time.
    """

    subject: str
    examined: tuple[Examined, ...]
    skew_s: float | None = None
    endpoint: Endpoint | None = None  # a BMC that is not taken in, as it named itself
    refusal: Blocker | None = None  # why it did not
    around: Surroundings | None = None  # of a switch, where its cables are to be compared


async def stranger(
    transport: BmcTransport, clock: Clock, url: str, factory: Mapping[str, tuple[str, Secret]]
) -> Looked:
    """Examine a BMC that is not taken in yet: one login with the factory credential of its vendor.

    Nothing is changed on it, a password that must be changed neither.
    """
    try:
        pin = await transport.fingerprint(BmcAddress(url))
        reply = await transport.request(BmcAddress(url, pin=pin), _get(ROOT))
    except PortError as error:
        return Looked(
            subject=url,
            examined=(examination.report_failure("bmc", url, error.reason, str(error)),),
        )
    if reply.status not in (200, 401, 403):
        finding = examination.report_failure(
            "bmc", url, Reason.NOT_OFFERED, f"service root: {reply.status}"
        )
        return Looked(subject=url, examined=(finding,))
    skew = examination.compute_skew_s(reply.headers.get("date", ""), clock.now())
    reached = examination.report_good("bmc", url, "a Redfish service root")
    try:
        probed = await probe(transport, url)
    except PortError as error:
        probed = Gap(reason=error.reason, source=url, detail=str(error))
    if isinstance(probed, Gap):
        finding = examination.report_failure("bmc", url, probed.reason, probed.detail)
        return Looked(subject=url, examined=(finding,), skew_s=skew)
    found, refused = await introduce_bmcs(transport, None, [probed], factory)
    endpoint = found[0].endpoint if found else None
    refusal = refused[0] if refused else None
    return Looked(
        subject=url,
        examined=(reached, examination.judge_first_login(url, endpoint, refusal)),
        skew_s=skew,
        endpoint=endpoint,
        refusal=refusal,
    )


async def bmc(reach: Reach, clock: Clock, node: Node, ref: BmcRef) -> Looked:
    """Examine one BMC of a node: its pinned certificate, and the stored login."""
    subject = f"{node.id}/{ref.name}"
    skew = None
    examined = []
    try:
        address = await reach.address(node, ref)
        pin = ref.pin or await reach.transport.fingerprint(BmcAddress(ref.url))
        bare = BmcAddress(url=ref.url, pin=pin)
        reply = await reach.transport.request(bare, _get(ROOT))
        skew = examination.compute_skew_s(reply.headers.get("date", ""), clock.now())
        examined.append(_reached(subject, ref, reply.status))
        if isinstance(address, Blocker):
            finding = examination.report_bad("credential", subject, address.detail, address.unblock)
            return Looked(subject=subject, examined=(*examined, finding), skew_s=skew)
        if not ref.pin:
            return Looked(
                subject=subject, examined=(*examined, _unpinned(subject, pin)), skew_s=skew
            )
        reply = await reach.transport.request(address, _get(MANAGERS))
        await reach.transport.forget(address)
        examined.append(_let_in(subject, ref, reply.status))
    except PortError as error:
        login = error.reason in (Reason.LOGIN_REFUSED, Reason.ACCOUNT_LOCKED)
        area = "credential" if login else "bmc"
        examined.append(examination.report_failure(area, subject, error.reason, str(error)))
    return Looked(subject=subject, examined=tuple(examined), skew_s=skew)


def _reached(subject: str, ref: BmcRef, status: int) -> Examined:
    if status not in (200, 401, 403):
        return examination.report_failure(
            "bmc", subject, Reason.NOT_OFFERED, f"service root: status {status}"
        )
    if not ref.url.startswith("https:"):
        remedy = "Let the BMC speak https, then take it in again."
        return examination.report_bad("bmc", subject, "it is asked over plain http", remedy)
    detail = "answers with the pinned certificate" if ref.pin else "answers"
    return examination.report_good("bmc", subject, detail)


def _let_in(subject: str, ref: BmcRef, status: int) -> Examined:
    if status != 200:
        detail = f"{MANAGERS}: status {status}"
        return examination.report_failure("credential", subject, Reason.LOGIN_REFUSED, detail)
    if not ref.rotated:
        remedy = "Nothing to do: the daemon sets one of its own at intake."
        return examination.report_warning(
            "credential", subject, "it works, and is not ours alone yet", remedy
        )
    return examination.report_good("credential", subject, "works, and is unique to it")


async def switch(reach: Reach, clock: Clock, node: Node, *, cables: bool = False) -> Looked:
    """A switch's API: reached, and the login that we keep. Over ssh:// it is not looked at.

    `cables`: what its ports hear is read as well.
    """
    if node.address.startswith("ssh://"):
        remedy = f"Try it by hand: `ssh {node.address.removeprefix('ssh://')} show version`."
        finding = examination.report_not_looked(
            "switch", node.id, "it is reached by SSH key only", remedy
        )
        return Looked(subject=node.id, examined=(finding,))
    try:
        address = await reach.switch(node)
    except PortError as error:
        finding = examination.report_failure("switch", node.id, error.reason, str(error))
        return Looked(subject=node.id, examined=(finding,))
    if isinstance(address, Blocker):
        finding = examination.report_bad("switch", node.id, address.detail, address.unblock)
        return Looked(subject=node.id, examined=(finding,))
    found = (node.id, address)
    return await switch_at(reach.transport, reach.switches, clock, *found, cables=cables)


async def switch_at(
    transport: BmcTransport,
    switches: Switches,
    clock: Clock,
    name: str,
    address: SwitchAddress,
    *,
    cables: bool = False,
) -> Looked:
    """Examine a switch by a login: it is tried once, and the system's version read with it."""
    notes: tuple[Examined, ...] = ()
    skew: float | None = None
    try:
        if not address.pin:
            pin = await transport.fingerprint(BmcAddress(address.url))
            address = replace(address, pin=pin)
            notes = (_unpinned(name, pin),)
        opened = switches.open(name, address, clock, Settings())
        login = await opened.check_login()
        skew = examination.compute_skew_s(login.date, clock.now())
        if login.status != "accepted":
            finding = examination.report_failure("switch", name, Reason.LOGIN_REFUSED, login.detail)
            return Looked(subject=name, examined=(finding,), skew_s=skew)
        images = await opened.read_images()
        around = await opened.read_surroundings() if cables else None
    except SwitchRefused as refused:
        finding = examination.report_failure("switch", name, refused.reason, str(refused))
        return Looked(subject=name, examined=(finding,), skew_s=skew)
    except PortError as error:
        finding = examination.report_failure("switch", name, error.reason, str(error))
        return Looked(subject=name, examined=(finding,))
    finding = examination.report_good("switch", name, f"its API answers; it runs {images.running}")
    return Looked(subject=name, examined=(finding, *notes), skew_s=skew, around=around)


def _unpinned(subject: str, pin: str) -> Examined:
    """Return the fingerprint that the daemon will pin at first contact, for a person to compare."""
    remedy = "Compare it on the device's console; the daemon pins it when it takes the node over."
    return examination.report_warning(
        "certificate", subject, f"not pinned yet: SHA-256 {pin}", remedy
    )


def looks(
    reach: Reach, clock: Clock, nodes: Iterable[Node], *, cables: bool = False
) -> tuple[Callable[[], Awaitable[Looked]], ...]:
    """Return one examination for each BMC and switch, to be run in any order."""
    examinations: list[Callable[[], Awaitable[Looked]]] = []
    for node in nodes:
        if node.kind is NodeKind.SWITCH:
            examinations.append(partial(switch, reach, clock, node, cables=cables))
        else:
            examinations += [partial(bmc, reach, clock, node, ref) for ref in node.bmcs]
    return tuple(examinations)


async def taken(
    wanted: Sequence[Callable[[], Awaitable[Looked]]], done: Callable[[int, int], None]
) -> tuple[Looked, ...]:
    """Return all looks, AT_ONCE at a time, each within its limit; in their order."""
    turn = asyncio.Semaphore(AT_ONCE)
    count = 0

    async def one(look: Callable[[], Awaitable[Looked]]) -> Looked:
        nonlocal count
        async with turn:
            looked = await look()
        count += 1
        done(count, len(wanted))
        return looked

    return tuple(await asyncio.gather(*map(one, wanted)))


def file_digest(directory: Path, name: str) -> str | None:
    """The SHA-256 of a file of the artifact directory; None if there is no such file. Blocks."""
    path = directory / name
    if Path(name).name != name or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _get(path: str) -> Call:
    return Call("GET", path, timeout_s=LIMIT_S)
