"""Identify the devices behind BMC addresses: vendor without login, serials with the factory one.

A login is tried once per BMC and only where the expected-hardware list gives a factory credential
for its vendor; a BMC that a node already has is not asked again. A BMC that shows nothing before
its factory password is changed (BlueField) gets a unique one now, stored under its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.discovery import Probe, probe
from provisioner.execution.actions.once import blocked
from provisioner.execution.observe.rotation import rotate
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.machine.settings import split_pins
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.planning.intake.pairing import Endpoint
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Credentials,
    LoginRefused,
    PortError,
    Secret,
    Unreachable,
)

INTRODUCED_MAX = 64  # BMCs at once: each takes some ten requests and, mostly, a new password


@dataclass(frozen=True)
class Found:
    """An endpoint that let us in, and with which credential."""

    endpoint: Endpoint
    username: str
    secret: Secret


async def introduce_bmcs(
    transport: BmcTransport,
    credentials: Credentials | None,
    probes: Sequence[Probe],
    factory: Mapping[str, tuple[str, Secret]],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> tuple[tuple[Found, ...], tuple[Blocker, ...]]:
    """Log in to each probed BMC and read who it is. No `credentials`: change nothing.

    `INTRODUCED_MAX` at once, for a whole site's BMCs at one time would not be answered in time. One
    that was silent although it had answered the probe is asked again when the others are through.
    """
    results: dict[int, Found | Blocker] = {}

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            try:
                results[number] = await _introduce(transport, credentials, probes[number], factory)
            except PortError as error:
                results[number] = blocked(error, probes[number].url)
            progress(len(results), len(probes))

    async def introduce(numbers: Sequence[int]) -> None:
        shared = iter(numbers)  # so that there are no more tasks than are at work
        await asyncio.gather(*(work(shared) for _ in numbers[:INTRODUCED_MAX]))

    await introduce(range(len(probes)))
    await introduce([n for n in range(len(probes)) if _was_silent(results[n])])
    in_order = [results[number] for number in range(len(probes))]
    endpoints = tuple(r for r in in_order if isinstance(r, Found))
    return endpoints, tuple(r for r in in_order if isinstance(r, Blocker))


def _was_silent(result: Found | Blocker) -> bool:
    return isinstance(result, Blocker) and result.reason is Reason.UNREACHABLE


async def _introduce(
    transport: BmcTransport,
    credentials: Credentials | None,
    probe: Probe,
    factory: Mapping[str, tuple[str, Secret]],
) -> Found | Blocker:
    quirk = quirks.identify(probe.root)
    if quirk.name not in factory:
        return Blocker(
            reason=Reason.UNKNOWN_VENDOR,
            subject=probe.url,
            detail=f"no factory credential is given for {quirk.name}",
            unblock=f"Add `{quirk.name}` to `factory_credentials` of the expected-hardware list.",
        )
    username, secret = factory[quirk.name]
    address = BmcAddress(probe.url, username, secret, probe.fingerprint)
    name = f"endpoint/{probe.url}"
    ours = await credentials.current(name) if credentials is not None else None
    if ours is not None:
        address = replace(address, username=ours[0], secret=ours[1])
    factory_fresh = credentials is not None and ours is None
    if credentials is None and await transport.password_change(address) is not None:
        return Blocker(
            reason=Reason.PASSWORD_CHANGE,
            subject=probe.url,
            detail=f"a {quirk.name} BMC shows its serial only after its password is changed",
            unblock="Nothing to do: `provisioner intake` changes it.",
        )
    try:
        if factory_fresh and await transport.password_change(address) is not None:
            raise LoginRefused("its factory password must be changed before it answers")
        inventory = await Redfish(transport, address, quirk).read_identity()
    except LoginRefused:
        if not factory_fresh:
            raise
        assert credentials is not None
        inventories: list[Inventory] = []

        async def proof(client: Redfish) -> bool:
            inventories.append(_shown(await client.read_identity()))
            return True

        changed = await rotate(transport, credentials, quirk, name, address, proof)
        if isinstance(changed, Blocker):
            return changed
        address = changed
        ours = (changed.username, changed.secret or secret)
        inventory = inventories[-1]
    endpoint = _endpoint(probe, quirk.name, inventory)
    assert address.secret is not None
    return Found(
        endpoint.model_copy(update={"rotated": ours is not None}), address.username, address.secret
    )


def _shown(seen: Inventory) -> Inventory:
    """A BMC's inventory after its new login; it must have more than the public service root."""
    if not (seen.devices or seen.system_serial or seen.system_uuid):
        raise Unreachable("it does not show its systems now", maybe_executed=False)
    return seen


def _endpoint(probe: Probe, vendor: str, inventory: Inventory) -> Endpoint:
    cards = inventory.devices_of(DeviceKind.DPU)
    is_card = inventory.system_serial is None and bool(cards)
    return Endpoint(
        url=probe.url,
        vendor=vendor,
        kind="dpu" if is_card else "host",
        serial=(cards[0].serial if is_card else inventory.system_serial) or "",
        base_mac=(cards[0].mac or "") if is_card else "",
        pin=probe.fingerprint,
    )


# ------------------------------------------------------------------------------
# Follow a BMC to another address: by its pinned certificate, its login and its serial.
#
# A lease, a MAC or a host name is the client's own claim. So the new address is asked for the
# certificate that was pinned, over a connection that no other certificate would get, then for the
# serial with the stored login. Only readings are sent; a login goes to the pinned certificate
# alone.


_NOT_IT = "Is it the same board? Compare the label; a board that was exchanged is a repair."


async def prove_move(
    transport: BmcTransport, credentials: Credentials, node: str, bmc: BmcRef, url: str
) -> Blocker | None:
    """Return why the BMC at `url` is not proved to be this one; None if it is."""
    subject = f"{node}/{bmc.name}"
    if not bmc.pin or not bmc.serial:
        lacks = "pinned certificate" if not bmc.pin else "serial"
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=subject,
            detail=f"its row has no {lacks} to know it by",
            unblock="Give it its old address again: it cannot be told from another BMC.",
        )
    probed = await probe(transport, url)
    if isinstance(probed, Gap):
        return Blocker(
            reason=probed.reason,
            subject=subject,
            detail=f"{url}: {probed.detail}",
            unblock="Check the address, and whether the BMC has it now.",
        )
    if probed.fingerprint not in split_pins(bmc.pin):
        return Blocker(
            reason=Reason.CERTIFICATE_CHANGED,
            subject=subject,
            detail=f"{url} has another certificate than the pinned one",
            unblock=_NOT_IT,
        )
    login = await credentials.current(subject)
    if login is None:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=subject,
            detail="no login of it is stored",
            unblock="Take the node in, or adopt it, with its login.",
        )
    answers, refusals = await introduce_bmcs(
        transport, None, [probed], dict.fromkeys(quirks.ALL, login)
    )
    if not answers:
        return refusals[0].model_copy(update={"subject": subject})
    serial = answers[0].endpoint.serial
    if serial != bmc.serial:
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=subject,
            detail=f"{url} reports the serial {serial[:64] or 'none'}, the row has {bmc.serial}",
            unblock=_NOT_IT,
        )
    return None
