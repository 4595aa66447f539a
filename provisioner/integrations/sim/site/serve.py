"""Serves simulated devices over HTTPS: hundreds of endpoints, one process, one event loop.

A BMC that restarts is gone: its socket is closed and its connections are cut until it listens
again. Simulated time is the clock's; only this module relates it to the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from aiohttp.http import RawRequestMessage

from provisioner.integrations.sim.hardware.clock import (
    Schedule,
    SimClock,
    load_certificate,
    server_context,
)
from provisioner.integrations.sim.hardware.parts import Bmc
from provisioner.integrations.sim.redfish.bmc import make_service, no_server
from provisioner.integrations.sim.redfish.redfish_events import Deliver
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import GONE, Answer, Json, Listen
from provisioner.integrations.sim.redfish.redfish_updates import Fetch
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.storage import vms
from provisioner.integrations.sim.switches import ufm
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.runtime.event_loop import end_tasks

# ------------------------------------------------------------------------------
# One listening socket for the endpoints of a whole site, each at an address of its own in 127/8.
#
# A socket for each endpoint takes a descriptor for each: 1,614 hosts have 18,166. The address that
# a connection was made to says here which endpoint is meant. One difference remains: an endpoint
# that is away resets connections after it took them, instead of refusing them.


BACKLOG = 4096
HANDSHAKE_MAX_S = 60.0
PAUSE_S = 0.05  # after an accept that failed, for want of descriptors as a rule
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: an end without the end of the stream

MakeProtocol = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True)
class Door:
    """What one endpoint has of the socket, until it is closed."""

    close: Callable[[], None]


class SharedListener:
    """The socket, on loopback only. Raises OSError if the port is taken."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # all addresses of one interface: without this line it would listen to the world
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            self._socket.bind(("0.0.0.0", port))  # noqa: S104 (of the loopback interface)
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)  # noqa: FBT003 (its only argument)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._behind: dict[str, tuple[MakeProtocol, ssl.SSLContext]] = {}
        self._accepting = asyncio.create_task(self._accept(), name="accept for a simulated site")
        self._beginning: set[asyncio.Task[None]] = set()

    def open(self, address: str, make_protocol: MakeProtocol, tls: ssl.SSLContext) -> Door:
        """Serve connections to this address until the door is closed."""
        self._behind[address] = make_protocol, tls
        return Door(partial(self._forget, address))

    async def close(self) -> None:
        """Listen no more."""
        await end_tasks(self._accepting, *self._beginning)
        self._socket.close()

    def _forget(self, address: str) -> None:
        self._behind.pop(address, None)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            task = asyncio.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket) -> None:
        behind = None
        with contextlib.suppress(OSError):  # it is gone already
            behind = self._behind.get(connection.getsockname()[0])
        if behind is None:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.close()
            return
        make_protocol, tls = behind
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make_protocol, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_MAX_S
            )
        except OSError:  # of a handshake, too
            connection.close()


# ------------------------------------------------------------------------------
# The one entry to everything that a simulated site serves: BMCs and switches by name.
#
# Network servers and transports in memory both call `Front.handle`; faults are applied here, so
# that they act alike on both.


class Front:
    """All services of a site. BMCs and switches download images with `fetch`."""

    def __init__(
        self, site: Site, fetch: Fetch = no_server, deliver: Deliver | None = None
    ) -> None:
        self.site = site
        self.redfish: dict[str, RedfishService] = {}
        for node, machine in site.machines.items():
            for bmc in machine.bmcs:
                more = {} if deliver is None else {"deliver": deliver}
                self.redfish[f"{node}/{bmc}"] = make_service(
                    machine, bmc, site.clock, fetch, **more
                )
        site.redfish = dict(self.redfish)
        site.on_fetch(fetch)

    def list_names(self) -> list[str]:
        """Every name with its own address: "su0-n00/DPU_1", "leaf-su0-r3"."""
        more = [*([ufm.NAME] if self.site.ufm else []), *([vms.NAME] if self.site.vms else [])]
        return [*self.redfish, *self.site.nvue, *more]

    def is_reachable(self, name: str) -> bool:
        """Whether this address accepts connections now."""
        site = self.site
        now = site.advance()
        if name == ufm.NAME:
            return site.ufm is not None
        if name == vms.NAME:
            return site.vms is not None
        if name in site.switches:
            return site.switches[name].is_up(now)
        service = self.redfish.get(name)
        return service is not None and service.bmc.get_phase(now) != "gone"

    def handle(
        self,
        name: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        peer: str = "",
    ) -> Answer:
        """One request to one address; `GONE`: no answer. Header names are lowercase."""
        if not self.is_reachable(name):
            return GONE

        def serve() -> Answer:
            if name == ufm.NAME and self.site.ufm is not None:
                return self.site.ufm.handle(method, path, query, headers, body)
            if name == vms.NAME and self.site.vms is not None:
                return self.site.vms.serve(method, path, query, headers, body)
            service: RedfishService | NvueService | None = self.redfish.get(name)
            if isinstance(service, RedfishService):
                return service.handle(method, path, query, headers, body, peer)
            return self.site.nvue[name].handle(method, path, query, headers, body)

        return self.site.faults.apply_rules(name, method, path, serve, headers)


Handle = Callable[[str, str, Mapping[str, str], Mapping[str, str], bytes], Answer]

BODY_MAX = 512 * 1024 * 1024  # bytes; a BMC's own limit answers 413 before
FETCH_MAX = 64 * 1024 * 1024  # bytes of an image that a device pulls
FETCH_TIMEOUT_S = 30.0
TICK_S = 0.02  # delay until a device vanishes, in wall seconds
SERVE_BACKLOG = 128
FILES_MAX = 65536  # 2,048 hosts: 22,528 listeners, and two connections to each
STREAM_MAX = 256  # events that wait for a slow listener; more are dropped
NO_QUERY: dict[str, str] = {}


@dataclass
class Endpoint:
    """One device's address. `server` is None while the device is gone."""

    name: str
    host: str
    port: int
    handle: Handle
    web: web.Server
    tls: ssl.SSLContext
    server: asyncio.Server | Door | None = None
    bmc: Bmc | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"https://{self.host}:{self.port}"


@dataclass
class Addresses:
    """Gives each endpoint an address: its own in 127/8 at one port, or a port of its own."""

    listen: str = "127.0.0.1"
    port: int = 0
    _given: int = field(default=0, init=False)

    def next_address(self) -> tuple[str, int]:
        """(host, port); port 0 lets the system choose one."""
        number = self._given
        self._given = self._given + 1
        first = ip_address(self.listen)
        if self.port == 0:
            return self.listen, 0
        if first.is_loopback and first.version == 4:
            return str(first + number), self.port
        return self.listen, self.port + number


class Server:
    """All endpoints of one site. `shared`: its one socket, whose port the addresses have."""

    def __init__(
        self,
        clock: SimClock,
        schedule: Schedule,
        addresses: Addresses,
        shared: SharedListener | None = None,
    ) -> None:
        self.clock = clock
        self.schedule = schedule
        self.addresses = addresses
        self._shared = shared
        self.speed: float = getattr(clock, "speed", 1.0)
        self.endpoints: dict[str, Endpoint] = {}
        self.wired: Callable[[], bool] = lambda: False  # whether rules are in force
        self._asked_on: dict[tuple[str, str], int] = {}  # requests by connection, while wired
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: ClientSession | None = None
        self._ticking: asyncio.Task[None] | None = None
        _raise_file_limit()

    async def add(self, name: str, handle: Handle, bmc: Bmc | None = None) -> str:
        """Listen for one device; return its URL. Raises `OSError` if the address is taken."""
        host, port = self.addresses.next_address()
        tls = server_context(name, host)
        listener = web.Server(partial(self._asked, name, handle), request_factory=_request)
        endpoint = Endpoint(name, host, port, handle, listener, tls, bmc=bmc)
        await self._listen(endpoint)
        self.endpoints[name] = endpoint
        if bmc is not None:
            bmc.on_reset.append(lambda _: self._vanish(endpoint))
            bmc.on_certificate.append(lambda *pair: load_certificate(endpoint.tls, *pair))
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
        return endpoint.url

    async def close(self) -> None:
        """Stop all endpoints."""
        await end_tasks(self._ticking, *self._tasks)
        for endpoint in self.endpoints.values():
            self._break(endpoint)
        if self._shared is not None:
            await self._shared.close()
        for listener in self.on_close:
            await listener()
        if self._session:
            await self._session.close()

    # --- requests

    async def _asked(
        self, name: str, handle: Handle, request: web.BaseRequest
    ) -> web.StreamResponse:
        path, mark, text = request.raw_path.partition("?")
        query = dict(parse_qsl(text, keep_blank_values=True)) if mark else NO_QUERY
        try:
            body = await request.read() if request.can_read_body else b""
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        headers = self._with_connection(name, request) if self.wired() else request.headers
        answer = handle(request.method, path, query, headers, body)
        if answer.delay_s > 0:
            await asyncio.sleep(answer.delay_s / self.speed)
        if answer.status == 0:
            return _cut_off(request)
        if answer.stream is not None:
            return await _streamed(request, answer, answer.stream)
        if answer.cut >= 0:
            await _truncated(request, answer)
            return _cut_off(request)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    def _with_connection(self, name: str, request: web.BaseRequest) -> Mapping[str, str]:
        """The headers, with the connection's pseudo-headers for fault rules (`Rule.when`)."""
        connection = (name, str(request.get_extra_info("peername")))
        self._asked_on[connection] = number = self._asked_on.get(connection, 0) + 1
        headers = {k.lower(): v for k, v in request.headers.items()}
        opened = len(self.endpoints[name].web.connections)
        return {**headers, ":nth": str(number), ":open": f"{opened:03}"}

    # --- coming and going

    async def _listen(self, endpoint: Endpoint) -> None:
        if self._shared is not None:
            endpoint.server = self._shared.open(endpoint.host, endpoint.web, endpoint.tls)
            return
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            endpoint.web,
            endpoint.host,
            endpoint.port,
            ssl=endpoint.tls,
            backlog=SERVE_BACKLOG,
            reuse_address=True,
        )
        endpoint.server = server
        if endpoint.port == 0:
            endpoint.port = server.sockets[0].getsockname()[1]

    def _break(self, endpoint: Endpoint) -> None:
        if endpoint.server is not None:
            endpoint.server.close()
            endpoint.server = None
        for connection in endpoint.web.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def _vanish(self, endpoint: Endpoint) -> None:
        assert endpoint.bmc is not None
        # with a delay: the answer to the restart request is still on its way
        self._spawn(self._away(endpoint, endpoint.bmc.boots))

    async def _away(self, endpoint: Endpoint, boots: int) -> None:
        bmc = endpoint.bmc
        assert bmc is not None
        self._break(endpoint)
        wait = bmc.gone_until - self.clock.now()
        await asyncio.sleep(max(wait, 0.0) / self.speed)
        if "new_certificate" in bmc.troubles:
            endpoint.tls = server_context(endpoint.name, endpoint.host)
        if bmc.boots == boots and endpoint.server is None:
            await self._listen(endpoint)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.schedule.advance(self.clock.now())

    # --- requests of devices

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _client(self) -> ClientSession:
        if self._session is None:
            timeout = ClientTimeout(total=FETCH_TIMEOUT_S)
            # a BMC verifies certificates only if VerifyRemoteServerCertificate is set
            self._session = ClientSession(timeout=timeout, connector=TCPConnector(ssl=False))
        return self._session

    def fetch_file(self, url: str, back: Callable[[bytes | None], None]) -> None:
        """Download a file for a device, and call back with it or with None."""
        self._spawn(self._fetch(url, back))

    async def _fetch(self, url: str, back: Callable[[bytes | None], None]) -> None:
        data: bytes | None = None
        with contextlib.suppress(ClientError, TimeoutError, ValueError, OSError):
            async with self._client().get(url) as got:
                if got.status == 200:
                    data = await got.content.read(FETCH_MAX)
                    while more := await got.content.read(FETCH_MAX - len(data)):
                        data += more
        back(data)

    def deliver_event(self, url: str, event: Json) -> None:
        """Send an event; the outcome is ignored."""
        self._spawn(self._deliver(url, event))

    async def _deliver(self, url: str, event: Json) -> None:
        with contextlib.suppress(ClientError, TimeoutError, ValueError, OSError):
            async with self._client().post(url, json=event):
                pass


def _request(
    message: RawRequestMessage, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_MAX)


def _cut_off(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _streamed(request: web.BaseRequest, answer: Answer, stream: Listen) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    await response.prepare(request)
    pieces: asyncio.Queue[bytes] = asyncio.Queue(STREAM_MAX)
    end = stream(lambda piece: None if pieces.full() else pieces.put_nowait(piece))
    try:
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(await pieces.get())
    finally:
        end()
    return response


async def _truncated(request: web.BaseRequest, answer: Answer) -> None:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await response.write(answer.body[: answer.cut])


def _raise_file_limit() -> None:
    """Some hundred listeners and their connections exceed the usual soft limit of 1,024.

    Thousands exceed the hard limit of many systems too, which only a privileged process may raise.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(hard, FILES_MAX), hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return
