"""Real sockets for faults: one simulated BMC over HTTPS, and peers that break TCP and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from provisioner.adapters.redfish.transport import presented_fingerprint
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.serve import Addresses, Front, Server
from provisioner.integrations.sim.site.site import Site
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop

NODE = "su0-n00"
SPEED = 400.0  # a BMC's restart of minutes passes in less than a second


def run(scenario: Coroutine[Any, Any, Any], limit_s: float = 60) -> Any:
    """Run on the daemon's own kind of event loop; the limit only stops a hung test."""

    async def bounded() -> Any:
        async with asyncio.timeout(limit_s):
            return await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(bounded())


class Served:
    """The host BMC of a simulated node at a port of its own."""

    def __init__(self, site: Site, server: Server, front: Front, url: str) -> None:
        self.site, self.server, self.front, self.url = site, server, front, url
        self.service = front.redfish[f"{NODE}/host"]

    async def address(self) -> BmcAddress:
        bmc = self.service.bmc
        pin = await presented_fingerprint(self.url)
        return BmcAddress(self.url, bmc.username, Secret(bmc.password), pin)

    def connections(self) -> int:
        return len(self.server.endpoints[f"{NODE}/host"].web.connections)


@contextlib.asynccontextmanager
async def served(vendor: str = "supermicro") -> AsyncIterator[Served]:
    """Serve one BMC, with the site's fault rules in front of it."""
    clock = FastClock(SPEED)
    site = Site(1, 7, clock=clock, vendor=vendor)
    server = Server(clock, site.schedule, Addresses())
    server.wired = lambda: bool(site.faults.rules)
    front = Front(site, server.fetch_file, server.deliver_event)
    name = f"{NODE}/host"
    url = await server.add(name, partial(front.handle, name), front.redfish[name].bmc)
    try:
        yield Served(site, server, front, url)
    finally:
        await server.close()


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[str]:
    """A TCP server that does what `peer` does with each connection; its https URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await peer(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN: what is under way is lost (SO_LINGER of zero, tcp(7))."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way until the end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


def wire(url: str, answer: Peer) -> Peer:
    """A wire to the server at `url`: requests pass, `answer` has what comes back."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = url.removeprefix("https://").rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        passing = asyncio.create_task(through(reader, back))
        try:
            await answer(there, writer)
        finally:
            passing.cancel()
            back.transport.abort()

    return peer
