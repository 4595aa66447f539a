"""Finds BMCs at an address, in a network, or by multicast, without logging in.

DSP0266 requires the service root to be readable without a login; it names vendor and product.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import ipaddress
import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field
from yarl import URL

from provisioner import quirks
from provisioner.adapters.redfish.messages import read_document
from provisioner.adapters.redfish.session import ROOT
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Gap, Reason
from provisioner.ports import BmcAddress, BmcTransport, Call, Malformed, PortError, Unreachable

# ------------------------------------------------------------------------------
# SSDP discovery in a process of its own, by the redfish package's `discover_ssdp`.
#
# A process, because that function (redfish/discovery/discovery.py) blocks, and sets the default
# timeout of every socket of its process. One malformed datagram would end it: see `_Datagram`.


RESPONSE_S = 3  # SSDP's MX: devices answer at a random moment within it
GRACE_S = 10.0  # for starting Python, and the two seconds that discover_ssdp adds
ANSWERS_MAX_BYTES = 1024 * 1024  # some 8,000 services; a segment holds a few hundred
HARMLESS = b"HTTP/1.1 200 OK\r\nUSN: none\r\n\r\n"


async def discover_services(
    *, interface: str = "", address: str = "", port: int = 1900, response_s: int = RESPONSE_S
) -> list[str]:
    """URLs of the Redfish services that answer a multicast, "https://10.0.0.9", sorted.

    `interface` and `address` choose where to ask. Raises Unreachable if it cannot be asked at all.
    """
    command = [sys.executable, "-m", "provisioner.adapters.redfish.discovery", "--port", str(port)]
    command += ["--response", str(response_s), "--interface", interface, "--address", address]
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdout is not None, "it was asked for"
    try:
        async with asyncio.timeout(response_s + GRACE_S):
            text = await child.stdout.read(ANSWERS_MAX_BYTES)
            code = await child.wait()
    except TimeoutError:
        raise Unreachable("SSDP: no end of answers", maybe_executed=False) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if code != 0:
        detail = text.decode("utf-8", "replace").strip()[:200]
        raise Unreachable(f"SSDP: {detail or 'could not ask'}", maybe_executed=False)
    return read_origins(text)


def read_origins(text: bytes) -> list[str]:
    """Addresses of services from the child's answer: whatever devices claim, only URLs."""
    try:
        claims = json.loads(text)
    except ValueError as error:
        raise Malformed(f"SSDP: {error}") from None
    if not isinstance(claims, dict):
        raise Malformed("SSDP: answers are no object")
    urls = set()
    for claim in claims.values():
        try:
            place = urlsplit(claim if isinstance(claim, str) else "")
            port = f":{place.port}" if place.port else ""
        except ValueError:
            continue
        if place.scheme in ("http", "https") and place.hostname and "@" not in place.netloc:
            host = f"[{place.hostname}]" if ":" in place.hostname else place.hostname
            urls.add(f"{place.scheme}://{host}{port}")
    return sorted(urls)


class _Datagram:
    """One answer as discover_ssdp wants it; a malformed one is replaced by a harmless one."""

    def __init__(self, data: bytes) -> None:
        self._data = data if _readable(data) else HARMLESS

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def _readable(data: bytes) -> bool:
    class Once:
        def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
            return io.BytesIO(data)

    try:
        answer = http.client.HTTPResponse(Once())  # type: ignore[arg-type]  # asks for makefile()
        answer.begin()
        return answer.getheader("USN") is not None
    except (http.client.HTTPException, ValueError, OSError):
        return False


def main() -> int:
    """The child: ask, write one JSON object (UUID: URL); on failure one line of words."""
    from redfish.discovery import discovery

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--response", type=int, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--address", default="")
    arguments = parser.parse_args()
    discovery.FakeSocket = _Datagram
    try:
        services = discovery.discover_ssdp(
            port=arguments.port,
            response_time=arguments.response,
            iface=arguments.interface or None,
            address=arguments.address or None,
        )
    except OSError as error:
        sys.stdout.write(str(error))
        return 1
    sys.stdout.write(json.dumps(services))
    return 0


if __name__ == "__main__":
    sys.exit(main())


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
        root = read_document(reply) if reply.status == 200 else {}
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


def parse_network(text: str) -> Network:
    """Return a network whose addresses are probed. Raises InputError for one that cannot be."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise InputError("networks", text[:80], str(error)[:200], "Write 10.0.0.0/24.") from None
    if network.num_addresses > ADDRESSES_MAX:
        problem = f"{network.num_addresses} addresses are too many to probe"
        raise InputError("networks", text, problem, "Name a /16 or smaller, such as one pod's.")
    return network


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


async def find_listening(
    network: Network, port: int, progress: Progress = _nothing, knock_s: float = KNOCK_S
) -> list[str]:
    """Addresses in `network` that accept a connection at `port`; nothing is sent to any."""
    addresses = list(map(str, network.hosts() if network.num_addresses > 2 else network))
    answers: list[bool] = [False] * len(addresses)
    count = 0

    async def work(numbered: Iterator[tuple[int, str]]) -> None:
        nonlocal count
        for number, address in numbered:
            answers[number] = await _answers(address, port, knock_s)
            count += 1
            progress(count, len(addresses))

    shared = iter(enumerate(addresses))
    async with asyncio.TaskGroup() as group:
        for _ in range(min(PROBES_MAX, len(addresses))):
            group.create_task(work(shared))
    return [a for a, answered in zip(addresses, answers, strict=True) if answered]


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


__all__ = ["Network", "Probe", "discover_services", "find_listening", "probe", "probe_all", "scan"]
