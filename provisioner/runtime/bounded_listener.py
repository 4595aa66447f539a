"""The listener of everything that strangers can reach: the API, the agents' and the events'.

A connection costs a descriptor from the moment at which it is accepted, so that it is counted
then, before TLS: in total and per peer. What is over a cap is closed at once. A peer that does not
finish its handshake in time is cut off, and so is one that says nothing afterwards (by the HTTP
server's own limit of idle connections, which counts from the beginning). All listeners together
take at most half of the descriptors of the process: the rest is for devices, switches and the
store, which a flood of strangers must never keep from a fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0  # TLS, of any peer
LISTENERS = 3  # the API's, the agents' and the events'
SHARE = 0.5  # of the process's descriptors, for all listeners together
REPORT_S = 60.0  # refused connections are logged at most this often
PAUSE_S = 1.0  # after the system had no descriptor for a connection
BACKLOG = 1024  # connections that wait to be accepted: a fleet's BMCs post at the same moment


@dataclass(frozen=True)
class Limits:
    """How much strangers may take of one listener."""

    connections_max: int
    per_peer_max: int
    idle_s: float  # without a whole request
    handshake_s: float = HANDSHAKE_S

    def within_descriptors(self) -> Limits:
        """Return these limits, lowered to this listener's part of the descriptors there are."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft == resource.RLIM_INFINITY:
            return self
        part = max(8, int(soft * SHARE / LISTENERS))
        total = min(self.connections_max, part)
        return Limits(total, min(self.per_peer_max, total), self.idle_s, self.handshake_s)


class BoundedListener:
    """Accepts connections for an HTTP server within limits. `port` is the one that is bound."""

    def __init__(
        self, name: str, server: Callable[[], Any], limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
        self._name, self._server, self._tls = name, server, tls
        self.limits = limits.within_descriptors()
        self._peers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._refused, self._reported_at = 0, -REPORT_S

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """Connections that are open, with those that are in their handshake."""
        return self._peers.total()

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_bound(family, kind, protocol, address))
        except OSError:
            self._close_sockets()
            raise
        for bound in self._sockets:
            self._begin(self._accept(bound))

    async def stop(self) -> None:
        """Accept no more; connections that are open are the HTTP server's to end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_sockets()

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(bound)
            except OSError as error:  # no descriptor, or a peer that was gone before
                log.warning("%s: a connection cannot be accepted: %s", self._name, error)
                await asyncio.sleep(PAUSE_S)
                continue
            peer = peer_of(str(address[0]))
            if self.connections >= self.limits.connections_max or (
                self._peers[peer] >= self.limits.per_peer_max
            ):
                connection.close()
                self._refuse(peer, loop.time())
                continue
            self._peers[peer] += 1
            self._begin(self._serve(connection, peer))

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        """Hand one connection to the HTTP server, through TLS."""
        loop = asyncio.get_running_loop()
        counted = _Counted(self._server(), lambda: self._leave(peer))
        try:
            await loop.connect_accepted_socket(
                lambda: counted,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self.limits.handshake_s,
            )
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # of a stranger: whom it concerns is on the other side
        finally:
            if not counted.made:  # nobody else will say that it is over
                counted.leave()
                with contextlib.suppress(OSError):
                    connection.close()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work, name=f"{self._name} listener")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave(self, peer: str) -> None:
        self._peers[peer] -= 1
        if self._peers[peer] <= 0:
            del self._peers[peer]

    def _refuse(self, peer: str, now: float) -> None:
        self._refused += 1
        if now - self._reported_at >= REPORT_S:
            log.warning(
                "%s: %d connections refused since the last report, the newest of %s: %d are open",
                *(self._name, self._refused, peer, self.connections),
            )
            self._refused, self._reported_at = 0, now

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            bound.close()


def handlers_of(runner: web.AppRunner) -> Callable[[], Any]:
    """Return what makes the protocol of each connection, of a runner that was set up."""
    server = runner.server
    assert server is not None, "the runner is set up"
    return server


@contextlib.asynccontextmanager
async def listening(
    name: str,
    runner: web.AppRunner,
    place: tuple[str, int],
    limits: Limits,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[BoundedListener]:
    """Serve a runner that was set up with `idle_s` as its `keepalive_timeout`. Raises OSError."""
    listener = BoundedListener(name, handlers_of(runner), limits, tls)
    await listener.start(*place)
    try:
        yield listener
    finally:
        await listener.stop()


def peer_of(address: str) -> str:
    """Return the name under which a peer is counted: an IPv6 host has a whole /64 for itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.settimeout(0.0)  # does not block
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


class _Counted(asyncio.Protocol):
    """The HTTP server's protocol of one connection, and a word when it is over."""

    def __init__(self, inner: Any, leave: Callable[[], None]) -> None:
        self._inner, self._leave = inner, leave
        self.made = False
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._inner.connection_lost(exc)
        finally:
            self.leave()

    def leave(self) -> None:
        """Give the place back, once."""
        leave, self._leave = self._leave, lambda: None
        leave()
