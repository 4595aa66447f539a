"""The listener of everything that strangers can reach: API, agents, events, artifacts, metrics.

A connection costs a descriptor from the moment it is accepted, so it is counted then, before TLS:
in total, per peer, and in shares for this machine, known callers and strangers (`admission.py`). A
connection over a limit is closed at once. The listener closes a peer that does not finish its
handshake in time, and a stranger that does not send its first request in time; the HTTP server
closes one that stays silent afterwards (by its own limit of idle connections, which counts from the
beginning). All listeners together take at
most half of the descriptors of the process. The rest is for devices, switches and the store, so
that a flood of connections can never prevent a fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import socket
import ssl
import struct
import termios
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from provisioner.runtime.admission import (
    LOOPBACK,
    Admission,
    Place,
    Standing,
    name_address,
    name_peer,
)
from provisioner.runtime.event_loop import end_tasks

if TYPE_CHECKING:
    from aiohttp import web  # a process that takes events alone does without


# ------------------------------------------------------------------------------
# Connections of senders that stay open between their requests: the newest ones, up to a number.
#
# A sender that comes back on its old connection saves both sides a TLS handshake, which costs more
# than all else of a small request. A connection costs memory, so that their number is bounded, and
# the one that was silent for the longest makes room. Its sender connects anew at its next request.
#
# The rule that a reader would otherwise break: only a request whose secret was checked may be kept;
# strangers have `Limits.stranger_s` and nothing more.


class Closing(Protocol):
    def force_close(self) -> None: ...


class KeptConnections:
    """The open connections of proved senders, the last heard of at the end."""

    def __init__(self, most: int = 0, prove: Callable[[Any], None] = lambda _: None) -> None:
        """`most` of them stay open; `prove` shows the listener that one is no stranger's."""
        self._most = most
        self._prove = prove
        self._kept: OrderedDict[Closing, None] = OrderedDict()

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[0].force_close()

    def begin(self, connection: Closing) -> None:
        """Leave a connection alone while it has a request: only one that is silent makes room."""
        self._kept.pop(connection, None)

    def keep(self, connection: Closing) -> bool:
        """Return whether a connection stays open; another one may be closed for it."""
        if not self._most:
            return False
        self._prove(connection)
        self._kept[connection] = None
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)[0].force_close()  # one that has ended is left so
        return True


# ------------------------------------------------------------------------------
# Rates of requests, one bucket for each address that asks.


# An agent asks some five times when it boots, then every few seconds at most (it repeats a failed
# heartbeat after 5 to 10 s): twice that is let through.
BURST = 30.0
PER_SECOND = 0.4
PEERS_MAX = 65536  # addresses whose rate is known; 100 bytes each


class Rate:
    """A token bucket for each peer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # peer -> left, at

    def admits(self, peer: str) -> bool:
        """Return whether this peer may ask once more now."""
        now = self._now()
        allowance, at = self._left.pop(peer, (BURST, now))
        allowance = min(BURST, allowance + (now - at) * PER_SECOND)
        admitted = allowance >= 1.0
        self._left[peer] = (allowance - 1.0 if admitted else allowance, now)
        while len(self._left) > PEERS_MAX:
            self._left.popitem(last=False)
        return admitted


log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0  # TLS, of any peer
LISTENERS = 5  # API, agents, events, artifacts and metrics
SHARE = 0.5  # of the process's descriptors, for all listeners together
REPORT_S = 60.0  # refused connections are logged at most this often
# Of an answer, what waited for its peer must be taken within this, or so many bytes of it: a device
# that pulls an image may pause while it writes.
STALLED_S = 300.0
TAKEN_MIN_BYTES = 256 * 1024
PAUSE_S = 1.0  # after the system had no descriptor for a connection
LOCAL = "this machine"  # the peer of every connection to a socket in the file system
PATH_MAX_BYTES = 100  # a socket's address has 108 (unix(7)); longer paths go through a descriptor
BACKLOG = 1024  # connections waiting to be accepted: a fleet's BMCs post at the same moment


@dataclass(frozen=True)
class Limits:
    connections_max: int
    per_peer_max: int
    idle_s: float  # without a whole request
    handshake_s: float = HANDSHAKE_S
    stranger_s: float | None = None  # where `idle_s` is for the proved: until `prove`
    first_s: float | None = None  # for a stranger, from its connection to its first request

    def within_descriptors(self) -> Limits:
        """Return these limits, lowered to this listener's part of the descriptors there are."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft == resource.RLIM_INFINITY:
            return self
        part = max(8, int(soft * SHARE / LISTENERS))
        total = min(self.connections_max, part)
        per_peer = min(self.per_peer_max, total)
        return replace(self, connections_max=total, per_peer_max=per_peer)


_OPEN: dict[Any, tuple[BoundedListener, Place]] = {}  # of this process, by their HTTP protocol


def hear(protocol: Any) -> None:
    """Say that a connection sent a whole request: no other one gets its place any more."""
    if protocol in _OPEN:
        listener, place = _OPEN[protocol]
        listener.hear(protocol, place)


def prove(protocol: Any) -> None:
    """Say that the secret of a connection's request was checked: its address is a known one."""
    if protocol in _OPEN:
        listener, _ = _OPEN[protocol]
        listener.prove(protocol)


def should_end(protocol: Any) -> bool:
    """Return whether a connection ends with its answer: a stranger's, while many are open."""
    if protocol not in _OPEN:
        return False
    listener, place = _OPEN[protocol]
    return listener.is_crowded and place.standing is Standing.STRANGER


async def hear_requests(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """For `web.middleware`: hear each request; who asked for something that is there is known."""
    hear(request.protocol)
    answer = await handler(request)
    if answer.status < 400:
        prove(request.protocol)
    return answer


class Bound:
    """Sockets that hold an address; `BoundedListener.accept` takes them over. Closed at the end."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = sockets

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bound in self.sockets:
            bound.close()


async def bind(host: str, port: int) -> Bound:
    """Hold an address before what is served there is made, which may name it. Raises OSError."""
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            sockets.append(_bind(family, kind, protocol, address))
    except OSError:
        Bound(sockets).__exit__()
        raise
    return Bound(sockets)


class BoundedListener:
    """Accepts connections for an HTTP server within limits. `port` is the bound port."""

    def __init__(
        self, name: str, server: Callable[[], Any], limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
        self._name = name
        self._server = server
        self._tls = tls
        self.limits = limits.within_descriptors()
        self._admission = Admission(
            self.limits.connections_max,
            self.limits.per_peer_max,
            time.monotonic,
            shared=self.limits.first_s is not None or self.limits.stranger_s is not None,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._file: Path | None = None  # of a socket in the file system
        self._refused = 0
        self._reported_at = -REPORT_S
        self._strangers: dict[Any, asyncio.TimerHandle] = {}  # HTTP protocols, until proved
        self._lines: dict[Place, socket.socket] = {}

    def prove(self, protocol: Any) -> None:
        """Let the connection of an HTTP protocol live past `stranger_s`: its secret was checked."""
        self._keep(protocol)
        if protocol in _OPEN:
            self._admission.prove(_OPEN[protocol][1])

    def hear(self, protocol: Any, place: Place) -> None:
        """Note that a connection sent a whole request."""
        self._admission.hear(place)
        if self.limits.stranger_s is None:
            self._keep(protocol)

    def _keep(self, protocol: Any) -> None:
        ending = self._strangers.pop(protocol, None)
        if ending is not None:
            ending.cancel()

    @property
    def is_crowded(self) -> bool:
        """Return whether more than half of all places are taken."""
        return self._admission.is_crowded

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """The number of open connections, including those in their handshake."""
        return len(self._admission)

    async def start(self, host: str, port: int) -> None:
        """Bind and accept. Raises OSError."""
        self.accept(await bind(host, port))

    def accept(self, bound: Bound) -> None:
        """Accept at sockets that are bound already, until `stop` closes them."""
        self._sockets.extend(bound.sockets)
        self._start_task(self._end_stalled())
        for each in bound.sockets:
            self._start_task(self._accept(each))

    async def start_at(self, file: Path) -> None:
        """Bind a socket in the file system that only its owner can connect to. Raises OSError."""
        self._file = file
        self._sockets.append(_bind_file(file))
        self._start_task(self._accept(self._sockets[0]))

    async def stop(self) -> None:
        """Stop accepting; the HTTP server ends the open connections."""
        await end_tasks(*self._tasks)
        for stranger in list(self._strangers):
            _OPEN[stranger][1].end()
        self._close_sockets()

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(bound)
            except OSError as error:  # no descriptor left, or the peer has already closed
                log.warning("%s: a connection cannot be accepted: %s", self._name, error)
                await asyncio.sleep(PAUSE_S)
                continue
            peer = name_peer(str(address[0])) if address else LOCAL
            place = self._admission.enter(peer, local=_is_local(connection, address))
            if place is None:
                connection.close()
                self._refuse(peer, loop.time())
                continue
            self._start_task(self._serve(connection, place))

    async def _serve(self, connection: socket.socket, place: Place) -> None:
        """Pass one connection to the HTTP server, through TLS."""
        loop = asyncio.get_running_loop()
        inner = self._server()
        task = asyncio.current_task()
        assert task is not None, "it was started as one"

        def leave() -> None:
            self._keep(inner)
            _OPEN.pop(inner, None)
            self._lines.pop(place, None)
            self._admission.leave(place)

        counted = _CountedProtocol(inner, leave)

        def end() -> None:
            if counted.transport is None:
                task.cancel()  # in its handshake
            else:
                # asyncio of Python 3.11 forgets the TLS of one that was closed twice: it ends alone
                with contextlib.suppress(AttributeError):
                    counted.transport.abort()

        place.end = end
        _OPEN[inner] = (self, place)
        self._lines[place] = connection
        limit_s = self._stranger_limit_s(place)
        if limit_s is not None:
            self._strangers[inner] = loop.call_later(limit_s, end)
        try:
            await loop.connect_accepted_socket(
                lambda: counted,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self.limits.handshake_s,
            )
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # a stranger's failure, of which only the peer needs to know
        finally:
            if counted.transport is None:  # no callback will report the end of this connection
                counted.release()
                with contextlib.suppress(OSError):
                    connection.close()

    async def _end_stalled(self) -> None:
        """End the connections whose peers do not take what they asked for."""
        seen: dict[Place, tuple[int, int]] = {}
        while True:
            await asyncio.sleep(STALLED_S)
            looks = {place: _look(line) for place, line in self._lines.items()}
            for place, (taken, _) in looks.items():
                before, waited = seen.get(place, (taken, 0))
                if waited and taken < before + min(waited, TAKEN_MIN_BYTES):
                    log.warning("%s: %s does not take an answer: ended", self._name, place.peer)
                    place.end()
            seen = looks

    def _start_task(self, work: Any) -> None:
        task = asyncio.create_task(work, name=f"{self._name} listener")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stranger_limit_s(self, place: Place) -> float | None:
        limits = self.limits
        if limits.stranger_s is not None:
            return limits.handshake_s + limits.stranger_s
        return limits.first_s if place.standing is Standing.STRANGER else None

    def _refuse(self, peer: str, now: float) -> None:
        self._refused += 1
        if now - self._reported_at >= REPORT_S:
            log.warning(
                "%s: %d connections refused since the last report, the newest of %s: %d are open",
                *(self._name, self._refused, peer, self.connections),
            )
            self._refused = 0
            self._reported_at = now

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            bound.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def get_handlers(runner: web.AppRunner) -> Callable[[], Any]:
    """Return the factory of connection protocols of a runner that was set up."""
    server = runner.server
    assert server is not None, "the runner is set up"
    return server


@contextlib.asynccontextmanager
async def serve_runner(
    name: str,
    runner: web.AppRunner,
    place: tuple[str, int],
    limits: Limits,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[BoundedListener]:
    """Serve a runner that was set up with `idle_s` as its `keepalive_timeout`. Raises OSError."""
    listener = BoundedListener(name, get_handlers(runner), limits, tls)
    await listener.start(*place)
    try:
        yield listener
    finally:
        await listener.stop()


@contextlib.asynccontextmanager
async def serve_bound(
    name: str, runner: web.AppRunner, bound: Bound, limits: Limits, tls: ssl.SSLContext | None
) -> AsyncIterator[None]:
    """Set a runner up, serve it at a place that is bound already, and clean it up."""
    await runner.setup()
    listener = BoundedListener(name, get_handlers(runner), limits, tls)
    listener.accept(bound)
    try:
        yield
    finally:
        await listener.stop()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def serve_at(
    name: str, runner: web.AppRunner, file: Path, limits: Limits
) -> AsyncIterator[BoundedListener]:
    """Serve a runner at a socket in the file system, mode 0600. Raises OSError.

    The caller holds the directory, so that a file that is there belongs to no process any more.
    """
    listener = BoundedListener(name, get_handlers(runner), limits, None)
    await listener.start_at(file)
    try:
        yield listener
    finally:
        await listener.stop()


@contextlib.contextmanager
def name_socket(file: Path) -> Iterator[str]:
    """Yield an address of the file that is short enough for a socket, whatever its path is."""
    if len(os.fsencode(file)) <= PATH_MAX_BYTES:
        yield str(file)
        return
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{file.name}"
    finally:
        os.close(directory)


def _is_local(connection: socket.socket, address: Any) -> bool:
    """Return whether a connection was opened on this machine, at its loopback or own address."""
    if not address:
        return True
    peer = name_address(str(address[0]))
    return peer in LOOPBACK or peer == name_address(str(connection.getsockname()[0]))


def _look(line: socket.socket) -> tuple[int, int]:
    """Return the bytes that a peer has taken so far, and those that wait for it.

    source: linux/tcp.h, struct tcp_info (tcpi_bytes_acked); tcp(7), SIOCOUTQ.
    """
    try:
        told = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        waiting = fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(4))
        return int(struct.unpack_from("=Q", told, 120)[0]), int(struct.unpack("=i", waiting)[0])
    except (OSError, ValueError, struct.error):  # closed meanwhile
        return 0, 0


def _bind_file(file: Path) -> socket.socket:
    """Return a listening socket at the file, which no other user may connect to."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(0.0)  # does not block
        file.unlink(missing_ok=True)
        with name_socket(file) as address:
            made.bind(address)
            Path(address).chmod(0o600)  # before it listens: until then no client can connect
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _bind(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
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


class _CountedProtocol(asyncio.Protocol):
    """The HTTP server's protocol of one connection, with a callback for its end."""

    def __init__(self, inner: Any, leave: Callable[[], None]) -> None:
        self._inner = inner
        self._leave = leave
        self.transport: Any = None
        self.data_received = inner.data_received  # type: ignore[method-assign]  # one call less
        self.eof_received = inner.eof_received  # type: ignore[method-assign]  # one call less
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]  # one call less
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]  # one call less

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._inner.connection_lost(exc)
        finally:
            self.release()

    def release(self) -> None:
        """Call the callback, once."""
        leave = self._leave
        self._leave = lambda: None
        leave()
