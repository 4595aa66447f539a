"""Finds BMCs at an address, in a network, or by multicast, without logging in.

DSP0266 requires the service root to be readable without a login; it names vendor and product.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field
from yarl import URL

from provisioner import quirks
from provisioner.adapters.redfish.session import ROOT
from provisioner.adapters.redfish.ssdp import discover_services
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Gap, Reason
from provisioner.ports import BmcAddress, BmcTransport, Call, PortError

LOG = logging.getLogger(__name__)

PROBES_MAX = 128  # at once: below the usual 1,024 open files, and kind to switches' ARP tables
KNOCK_S = 2.0  # a dark address costs this; management networks answer in milliseconds
ADDRESSES_MAX = 65536  # a /16: the management network of one site is not larger
PROBE_LIMIT_S = 20.0
ROOT_MAX_BYTES = 256 * 1024  # roots are 1 to 6 KB
TEXT_MAX = 128  # characters kept of a text that an unauthenticated service sent

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Progress = Callable[[int, int], None]


class Probe(Record):
    """The identity that an address claims without a login; nothing has proved it.

    `vendor` is the name of the quirk declaration that fits. `root` is empty where it is guarded.
    """

    url: str
    vendor: str
    product: str = ""
    uuid: str = ""
    redfish_version: str = ""
    fingerprint: str = ""  # SHA-256 of the certificate (DER), hex; "" over plain http
    root: dict[str, Any] = Field(default_factory=dict)


def _log_gap(gap: Gap) -> None:
    LOG.warning("%s: %s: %s", gap.source, gap.reason, gap.detail)


def _nothing(_done: int, _total: int) -> None:
    return


async def probe(transport: BmcTransport, url: str) -> Probe | Gap:
    """Who answers at `url`. The root is read over the very certificate that is reported."""
    try:
        origin = str(URL(url).origin())
    except ValueError as error:
        return Gap(reason=Reason.MALFORMED, source=url, detail=f"no address: {error}")
    call = Call("GET", ROOT, timeout_s=PROBE_LIMIT_S, size_max_bytes=ROOT_MAX_BYTES)
    try:
        pin = await transport.fingerprint(BmcAddress(origin))
        reply = await transport.request(BmcAddress(origin, pin=pin), call)
        root = reply.json() if reply.status == 200 else {}
    except PortError as error:
        return Gap(reason=error.reason, source=origin, detail=str(error))
    if reply.status not in (200, 401, 403) or not isinstance(root, Mapping):
        detail = f"no Redfish service root (status {reply.status})"
        return Gap(reason=Reason.NOT_OFFERED, source=origin, detail=detail)
    return Probe(
        url=origin,
        vendor=quirks.identify(root).name,
        product=_text(root, "Product"),
        uuid=_text(root, "UUID"),
        redfish_version=_text(root, "RedfishVersion"),
        fingerprint=pin,
        root=dict(root),
    )


async def probe_all(
    transport: BmcTransport,
    urls: Iterable[str],
    progress: Progress = _nothing,
    gap_seen: Callable[[Gap], None] = _log_gap,
) -> list[Probe]:
    """Probe each address once, PROBES_MAX at a time; other services become gaps."""
    targets = list(dict.fromkeys(urls))

    async def one(url: str) -> Probe | Gap | None:
        return await probe(transport, url)

    return await _each(targets, len(targets), one, progress, gap_seen)


async def scan(
    transport: BmcTransport,
    network: Network,
    port: int = 443,
    progress: Progress = _nothing,
    gap_seen: Callable[[Gap], None] = _log_gap,
    knock_s: float = KNOCK_S,
) -> list[Probe]:
    """Every Redfish service in `network`, in the order of addresses.

    An address that does not accept a connection is nothing; one that does and is no Redfish service
    is a gap. Raises InputError for a network of more than ADDRESSES_MAX addresses.
    """
    if network.num_addresses > ADDRESSES_MAX:
        raise InputError(
            "--range",
            str(network),
            f"{network.num_addresses} addresses are too many to knock at",
            "Scan a /16 or smaller at a time, for example the management network of one pod.",
        )
    addresses = network.hosts() if network.num_addresses > 2 else iter(network)

    async def one(address: str) -> Probe | Gap | None:
        if not await _answers(address, port, knock_s):
            return None
        host = f"[{address}]" if ":" in address else address
        return await probe(transport, f"https://{host}" + (f":{port}" if port != 443 else ""))

    total = max(network.num_addresses - 2, min(network.num_addresses, 2))
    return await _each(map(str, addresses), total, one, progress, gap_seen)


async def _each(
    places: Iterable[str],
    total: int,
    one: Callable[[str], Any],
    progress: Progress,
    gap_seen: Callable[[Gap], None],
) -> list[Probe]:
    """Ask `one` of each place, PROBES_MAX at a time, with no more tasks than that."""
    numbered: Iterator[tuple[int, str]] = zip(itertools.count(), places)
    probes: dict[int, Probe] = {}
    count = 0

    async def work() -> None:
        nonlocal count
        for number, place in numbered:
            match await one(place):
                case Probe() as result:
                    probes[number] = result
                case Gap() as gap:
                    gap_seen(gap)
            count += 1
            progress(count, total)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(PROBES_MAX, total)):
            group.create_task(work())
    return [probes[number] for number in sorted(probes)]


async def _answers(address: str, port: int, limit_s: float) -> bool:
    """Whether a connection is accepted there."""
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(address, port)
    except OSError:  # TimeoutError is one
        return False
    writer.transport.abort()
    return True


def _text(root: Mapping[str, Any], name: str) -> str:
    value = root.get(name)
    return value.strip()[:TEXT_MAX] if isinstance(value, str) else ""


__all__ = ["Network", "Probe", "discover_services", "probe", "probe_all", "scan"]
