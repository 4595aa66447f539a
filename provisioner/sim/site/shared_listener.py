"""One listening socket for the endpoints of a whole site, each at an address of its own in 127/8.

A socket for each endpoint takes a descriptor for each: 1,614 hosts have 18,166. The address that a
connection was made to says here which endpoint is meant. One difference remains: an endpoint that
is away resets connections after it took them, instead of refusing them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
        tasks = [self._accepting, *self._beginning]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
