"""Reads the event stream of a BMC: one GET that does not end, over a connection of its own.

Rule: a stream carries the login that the transport has; it never logs in by itself, and it is no
reason to keep a session: when the login ends, the stream is opened again with the next.
"""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    FAILURES,
    REDIRECTS_MAX,
    Attempt,
    Trust,
    own_url,
    port_error,
    redirected_path,
)
from provisioner.adapters.redfish.eventing.events import parse_document
from provisioner.adapters.redfish.session import ROOT, Login
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import BmcAddress, Call, LoginRefused, PortError, TooLarge, Unreachable
from provisioner.runtime.event_loop import shrink_tls_buffers

# ------------------------------------------------------------------------------
# Takes a server-sent event stream apart, within bounds (WHATWG HTML 9.2.6; DSP0266 13.5.2).
#
# Pure: bytes in, events out. A stream that goes beyond its bounds raises TooLarge and is over.


LINE_MAX = 1024 * 1024  # bytes; bmcweb puts a whole metric report into one line
DATA_MAX = 2 * 1024 * 1024
ID_MAX = 128


class Frame(NamedTuple):
    """One event: its id ("" if it has none), and its data as JSON (None if it is none)."""

    id: str
    data: Any


class SseReader:
    """Parses frames from bytes as they arrive; a new connection resumes after `last_id`."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s: float | None = None
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._skip_lf = False

    def feed(self, piece: bytes) -> list[Frame]:
        """The events that are complete with this piece. Raises TooLarge."""
        if self._skip_lf and piece.startswith(b"\n"):
            piece = piece[1:]
        self._skip_lf = piece.endswith(b"\r")
        self._rest += piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = self._rest.split(b"\n")
        self._rest = bytearray(last)
        if len(last) > LINE_MAX:
            raise TooLarge(f"a line of an event stream is over {LINE_MAX} bytes")
        return [frame for line in lines if (frame := self._line(bytes(line))) is not None]

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._size += len(value) + 1
            if self._size > DATA_MAX or len(value) > LINE_MAX:
                raise TooLarge(f"an event of a stream is over {DATA_MAX} bytes")
            self._data.append(value)
        elif name == b"id":
            ident = value.decode("ascii", "replace")
            if len(ident) <= ID_MAX and ident.isprintable() and ident.isascii():
                self.last_id = ident
        elif name == b"retry" and value.isdigit() and len(value) <= 7:
            self.retry_s = int(value) / 1000
        return None

    def _dispatch(self) -> Frame | None:
        if not self._data:
            return None
        whole = b"\n".join(self._data)
        self._data = []
        self._size = 0
        return Frame(self.last_id, parse_document(whole))


ANSWER_MAX_S = 60.0  # bmcweb answers within one, and holds an upload's answer for 40 s
# Nothing comes for days from a well BMC: bmcweb sends no comments. TCP itself finds out that a
# connection is dead (option, seconds or probes): after 2 minutes without an answer it is over.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class RedfishStreams:
    """`ports.EventStreams` beside a transport. To be used in one event loop, and closed there."""

    def __init__(self, transport: RedfishTransport, ca_file: Path | None = None) -> None:
        self._transport = transport
        self._trust = Trust(ca_file)
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """See the port. A refused login is renewed once, by the transport's own way."""
        where = f"GET {bmc.url}{path}"[:200]
        response = await self._connected(where, bmc, path, last_id)
        if response.status == 401:
            response.close()
            # an ended session is found out, and exchanged, by any request
            await self._transport.request(bmc, Call("GET", f"{ROOT}SessionService"))
            response = await self._connected(where, bmc, path, last_id)
        try:
            if response.status in (401, 403):
                raise LoginRefused(f"{where}: HTTP status {response.status}")
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if response.status != 200 or kind != "text/event-stream":
                detail = f"{where}: no event stream (HTTP status {response.status})"
                raise Unreachable(detail, maybe_executed=False)
            _keep_alive(response)
            yield _events(where, response, last_id)
        finally:
            response.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _connected(
        self, where: str, bmc: BmcAddress, path: str, last_id: str
    ) -> aiohttp.ClientResponse:
        login = await self._transport.authorization(bmc)
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        headers |= {"Last-Event-ID": last_id} if last_id else {}
        headers |= _credentials(login)
        try:
            tls = self._trust.option(bmc.url, bmc.pin, insecure=bmc.insecure)
            async with asyncio.timeout(ANSWER_MAX_S):  # until it begins; it never ends
                for _ in range(REDIRECTS_MAX):
                    response = await self._opened().get(
                        own_url(bmc.url, path),
                        headers=headers,
                        ssl=tls,
                        allow_redirects=False,
                        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_MAX_S),
                    )
                    location = response.headers.get("Location", "")
                    moved = redirected_path(bmc.url, path, response.status, location)
                    if moved is None:
                        return response
                    response.close()
                    path = moved
            raise Unreachable(f"{where}: redirects do not end", maybe_executed=False)
        except (PortError, *FAILURES) as error:
            raise port_error(where, error, Attempt(safe=True)) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            shrink_tls_buffers()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"User-Agent": "provisioner"},
            )
        return self._session


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let TCP ask whether the other end is still there, and wait for events without a limit."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):  # not everywhere
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _events(
    where: str, response: aiohttp.ClientResponse, last_id: str
) -> AsyncIterator[tuple[str, Any]]:
    """Documents as they come; the end of the stream is `Unreachable`, as every end of it is."""
    reader = SseReader()
    reader.last_id = last_id
    try:
        async for piece in response.content.iter_any():
            for frame in reader.feed(piece):
                yield frame.id, frame.data  # None is no document either: it is looked for
    except (PortError, *FAILURES) as error:
        raise port_error(where, error, Attempt(safe=True)) from None
    except RuntimeError:  # what aiohttp raises for a connection that was lost between two reads
        pass
    raise Unreachable(f"{where}: the stream ended", maybe_executed=False)


def _credentials(login: Login | None) -> dict[str, str]:
    if login is None:
        return {}
    if login.token is not None:
        return {"X-Auth-Token": login.token.reveal()}
    pair = f"{login.username}:{login.secret.reveal()}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode()}"}
