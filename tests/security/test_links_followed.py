"""Whatever link a device gives: nobody but the device itself is asked, and hears a credential."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from authority_rig import open_own_authority
from hostile_links import LINKS, REDIRECTS, Place, led, listening, response

from provisioner.adapters.agent.client import HttpsWire
from provisioner.adapters.redfish.eventing.event_stream import RedfishStreams
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.cli.client import connection as contexts
from provisioner.cli.client.connection import NoAnswer, connect
from provisioner.integrations.inventories.netbox import NetBox
from provisioner.integrations.tickets.webhook import Webhook
from provisioner.integrations.ufm.isolation import UfmTransport
from provisioner.ports import (
    AgentAddress,
    BmcAddress,
    Call,
    PortError,
    Secret,
    SwitchAddress,
)
from provisioner.ports.isolation import UfmAddress
from provisioner.runtime.wall_clock import WallClock

PASSWORD = Secret("s3cret-of-the-device")
SITE = "https://bmc.example:8443"


class Tls:
    """An authority that our clients trust, and a server's side of it, the same for both places."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "agent-ca.pem"
        self.server: ssl.SSLContext = open_own_authority(folder).server_context(("127.0.0.1",))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("authority"))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await scenario

    asyncio.run(bounded())


def bmc_that_names(link: str) -> Any:
    """A Redfish service whose every link is `link`."""

    def answer(request: str) -> bytes:
        method, path, *_ = request.split(" ")
        quoted = link.encode("utf-8", "replace").decode("latin-1").replace("\x00", "")
        if method == "POST" and "Sessions" in path:
            return response(201, b"{}", "X-Auth-Token: t0ken", f"Location: {quoted}")
        root = {"Links": {"Sessions": {"@odata.id": link}}, "SessionService": {"@odata.id": link}}
        return response(200, json.dumps(root).encode())

    return answer


def own_requests_only(device: Place, other: Place) -> None:
    assert other.heard == []
    assert device.hosts <= {device.netloc}
    assert all(request.count(" HTTP/1.1\r\n") <= 1 for request in device.heard)


def test_a_redfish_service_sends_us_nowhere_by_its_links(tls: Tls):
    """Root, session and its `Location` name the link; then it is asked for, in every way."""

    async def scenario() -> None:
        async with listening(tls=tls.server) as other:
            for link in LINKS:
                place = led(link, other.netloc)
                async with listening(bmc_that_names(place), tls.server) as device:
                    await _ask_everything(tls, device, led(link, other.netloc, device.netloc))
                    own_requests_only(device, other)

    run(scenario())


async def _ask_everything(tls: Tls, device: Place, link: str) -> None:
    transport = RedfishTransport(ca_file=tls.ca)
    streams = RedfishStreams(transport, tls.ca)
    bmc = BmcAddress(f"https://{device.netloc}", "root", PASSWORD)
    try:
        for method in ("GET", "POST", "DELETE"):
            try:
                await transport.request(bmc, Call(method, link, {}, timeout_s=10))
            except PortError:
                continue
        try:
            async with streams.open(bmc, link, ""):
                pass
        except PortError:
            pass
    finally:
        await streams.close()
        await transport.close()
    assert device.heard  # it was asked, so the link could have been followed


@pytest.mark.parametrize("status", REDIRECTS)
def test_nobody_follows_a_redirect_to_another_place(tls: Tls, status: int):
    """Each client of a foreign service, with its credential; the answer names `other`."""

    async def scenario() -> None:
        async with listening(tls=tls.server) as other:
            moved = response(status, b"{}", f"Location: https://{other.netloc}/")
            async with listening(lambda _: moved, tls.server) as device:
                for asked in _clients(tls, f"https://{device.netloc}"):
                    before = len(device.heard)
                    with contextlib.suppress(PortError):
                        await asked
                    assert len(device.heard) > before
            assert other.heard == []

    run(scenario())


def _clients(tls: Tls, url: str) -> list[Coroutine[Any, Any, Any]]:
    return [
        _redfish(tls, url), _nvue(tls, url), _ufm(tls, url), _agent(tls, url),
        _ticket(tls, url), _api(tls, url), asyncio.to_thread(_netbox, tls, url),
    ]  # fmt: skip


async def _redfish(tls: Tls, url: str) -> None:
    transport = RedfishTransport(ca_file=tls.ca)
    try:
        await transport.request(BmcAddress(url), Call("GET", "/redfish/v1/"))
        await transport.request(BmcAddress(url, "root", PASSWORD), Call("GET", "/redfish/v1/x"))
    finally:
        await transport.close()


async def _nvue(tls: Tls, url: str) -> None:
    transport = SwitchHttps(ca_file=tls.ca)
    try:
        await transport.request(SwitchAddress(url, "cumulus", PASSWORD), Call("GET", "/nvue_v1/"))
    finally:
        await transport.close()


async def _ufm(tls: Tls, url: str) -> None:
    transport = UfmTransport(UfmAddress(url, "admin", PASSWORD), tls.ca)
    try:
        await transport.request(Call("GET", "/resources/pkeys"))
    finally:
        await transport.close()


async def _agent(tls: Tls, url: str) -> None:
    port = int(url.rpartition(":")[2])
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    wire = HttpsWire()
    try:
        agent = AgentAddress("n0", url, pem, PASSWORD, "11.5.0", 0.0)
        await wire.request(agent, "GET", "/v1/commands/", None, 10)
    finally:
        await wire.close()


async def _ticket(tls: Tls, url: str) -> None:
    webhook = Webhook(url, PASSWORD, WallClock(), tls.ca)
    try:
        await webhook.look("key")
    finally:
        await webhook.close()


async def _api(tls: Tls, url: str) -> None:
    await asyncio.to_thread(_ask_daemon, tls, url, "/nodes")


def _ask_daemon(tls: Tls, url: str, path: str) -> None:
    with tempfile.NamedTemporaryFile("w") as token:
        token.write(PASSWORD.reveal())
        token.flush()
        connect(contexts.Place(server=url, token_file=token.name, ca=str(tls.ca))).send_request(
            "GET", path
        )


def _netbox(tls: Tls, url: str) -> None:
    NetBox(url, PASSWORD, str(tls.ca)).read((), ())


def test_pages_of_a_netbox_are_its_own(tls: Tls):
    """pynetbox follows the `next` that an answer names, with our token."""

    async def scenario() -> None:
        async with listening(tls=tls.server) as other:
            for link in LINKS[:16]:
                page = {
                    "count": 2,
                    "next": led(link, other.netloc),
                    "results": [],
                    "previous": None,
                }
                body = json.dumps(page).encode()
                async with listening(
                    lambda _, body=body: response(200, body), tls.server
                ) as device:
                    with contextlib.suppress(PortError):
                        await asyncio.to_thread(_netbox, tls, f"https://{device.netloc}")
                    assert device.heard
                    own_requests_only(device, other)

    run(scenario())


def test_a_switch_is_asked_at_its_own_address_whatever_the_path(tls: Tls):
    async def scenario() -> None:
        transport, ufm = SwitchHttps(ca_file=tls.ca), None
        async with listening(tls=tls.server) as other, listening(tls=tls.server) as device:
            url = f"https://{device.netloc}"
            ufm = UfmTransport(UfmAddress(url, "admin", PASSWORD), tls.ca)
            for link in LINKS:
                path = led(link, other.netloc, device.netloc)
                for asked in (
                    transport.request(SwitchAddress(url, "cumulus", PASSWORD), Call("GET", path)),
                    ufm.request(Call("GET", path)),
                ):
                    try:
                        await asked
                    except PortError:
                        continue
            own_requests_only(device, other)
        await transport.close()
        await ufm.close()

    run(scenario())


def test_our_command_line_sends_its_token_to_the_daemon_alone(tls: Tls):
    async def scenario() -> None:
        async with listening(tls=tls.server) as other, listening(tls=tls.server) as device:
            for link in LINKS:
                path = led(link, other.netloc, device.netloc)
                with contextlib.suppress(NoAnswer):
                    await asyncio.to_thread(_ask_daemon, tls, f"https://{device.netloc}", path)
            own_requests_only(device, other)

    run(scenario())
