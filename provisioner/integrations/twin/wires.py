"""The twin's transports: Redfish and switch APIs answered by a simulated site in this process.

They replace the request itself: clients, quirks and parsing run unchanged. Chance comes from the
caller's seeded generator, so that a seed replays a run exactly.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import ssl
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from provisioner.adapters.redfish.session import password_change
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import Site
from provisioner.model.machine.settings import split_pins
from provisioner.ports import (
    BmcAddress,
    Call,
    CertificateChanged,
    LoginRefused,
    Reply,
    SwitchAddress,
    Unreachable,
    Upload,
)
from provisioner.runtime import permit

SAFE = ("GET", "HEAD")


async def run_to_end(work: Coroutine[Any, Any, Any]) -> Any:
    """Run work that has left the daemon to its end, even if the daemon stops waiting for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda t: t.cancelled() or t.exception())  # its caller may be gone
    return await asyncio.shield(task)


class Wire:
    """Delays requests, and loses requests or answers by chance, from the run's seed."""

    def __init__(self, rng: random.Random, lost: float) -> None:
        self.rng = rng
        self.lost = lost
        self.requests = 0

    async def delay_request(self) -> str:
        """Take some time; return "request" or "answer" if that part is lost, else ""."""
        self.requests += 1
        await asyncio.sleep(self.rng.uniform(0.01, 0.2))
        roll = self.rng.random()
        if roll < self.lost / 2:
            return "request"
        return "answer" if roll < self.lost else ""


NO_CERTIFICATE = "00" * 32  # of a device whose certificate was never exchanged


class MemoryBmcs:
    """`BmcTransport` for the simulator's services, as a logged-in client."""

    def __init__(self, services: dict[str, RedfishService], wire: Wire) -> None:
        self._services = services
        self._wire = wire

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        reply: Reply = await run_to_end(self._request(bmc, call))
        return reply

    async def _request(self, bmc: BmcAddress, call: Call) -> Reply:
        permit.ask(writes=call.method not in SAFE)
        service = self._services[bmc.url]
        presented = present_certificate(service)
        if presented and bmc.pin and presented not in split_pins(bmc.pin):
            raise CertificateChanged(f"{bmc.url}: the certificate is not the pinned one")
        fate = await self._wire.delay_request()
        if fate == "request":
            raise Unreachable("connection refused", maybe_executed=False)
        parts = urlsplit(call.path)
        headers = {k.lower(): v for k, v in call.headers.items()}
        if bmc.secret is not None:
            pair = f"{bmc.username}:{bmc.secret.reveal()}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        body = b""
        if isinstance(call.body, Upload):
            headers["content-type"], body = encode_multipart(call.body)
        elif call.body is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(call.body).encode()
        headers["content-length"] = str(len(body))
        answer = service.handle(
            call.method, parts.path, dict(parse_qsl(parts.query)), headers, body, "test"
        )
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if answer.status == 0:
            raise Unreachable("connection reset", maybe_executed=False)
        if fate == "answer":
            raise Unreachable("the answer was lost", maybe_executed=True)
        if answer.status == 401 and bmc.secret is not None:
            raise LoginRefused("401")
        return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.body)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        service = self._services.get(bmc.url)
        if service is None:  # a switch's: `MemorySwitches` carries its requests
            return NO_CERTIFICATE
        now = service.clock.now()
        service.machine.schedule.advance(now)
        if service.bmc.get_phase(now) == "gone":
            raise Unreachable("connection refused", maybe_executed=False)
        return present_certificate(service) or NO_CERTIFICATE

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Read a resource that needs a login, as a Basic login is proved."""
        return password_change(await self.request(bmc, Call("GET", "/redfish/v1/Systems")))

    async def forget(self, bmc: BmcAddress) -> None:
        return None

    async def close(self) -> None:
        return None


def present_certificate(service: RedfishService) -> str:
    """Return the fingerprint of a BMC's certificate; "" for one that was never exchanged."""
    bmc = getattr(service, "bmc", None)  # a power distribution unit has none
    if bmc is None or not bmc.certificate:
        return ""
    der = ssl.PEM_cert_to_DER_cert(bmc.certificate.decode())
    return hashlib.sha256(der).hexdigest()


class MemorySwitches:
    """`SwitchTransport` for the simulated switches."""

    def __init__(self, site: Site, wire: Wire) -> None:
        self._site = site
        self._wire = wire

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        reply: Reply = await run_to_end(self._request(switch, call))
        return reply

    async def _request(self, switch: SwitchAddress, call: Call) -> Reply:
        permit.ask(writes=call.method not in SAFE)
        name = self._find_name(switch.url)
        fate = await self._wire.delay_request()
        if fate == "request" or not self._site.switches[name].is_up(self._site.advance()):
            raise Unreachable("connection refused", maybe_executed=False)
        parts = urlsplit(call.path)
        assert switch.secret is not None
        pair = base64.b64encode(f"{switch.username}:{switch.secret.reveal()}".encode()).decode()
        body = b"" if call.body is None else json.dumps(call.body).encode()
        answer = self._site.nvue[name].handle(
            call.method,
            parts.path,
            dict(parse_qsl(parts.query)),
            {"authorization": f"Basic {pair}", "content-type": "application/json"},
            body,
        )
        if answer.status == 0:
            raise Unreachable("connection reset", maybe_executed=False)
        if fate == "answer":
            raise Unreachable("the answer was lost", maybe_executed=True)
        return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.body)

    def _find_name(self, url: str) -> str:
        """Return the switch at an address of the site's list, or by its own host name."""
        named = [name for name, place in self._site.urls.items() if place == url]
        return named[0] if named else (urlsplit(url).hostname or "").partition(".")[0]

    async def close(self) -> None:
        return None


def encode_multipart(upload: Upload) -> tuple[str, bytes]:
    """Return content type and body of a push, as a real client sends them."""
    mark = "simulated-boundary"
    pieces = []
    for name, kind, body in upload.parts:
        head = f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n'
        pieces.append(head.encode() + f"Content-Type: {kind}\r\n\r\n".encode() + body + b"\r\n")
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="{upload.file_part}"; '
        f'filename="{upload.file_name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    pieces.append(head.encode() + upload.file.read_bytes() + b"\r\n")
    return f"multipart/form-data; boundary={mark}", b"".join(pieces) + f"--{mark}--\r\n".encode()
