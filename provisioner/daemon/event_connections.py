"""Connections on which BMCs post events: a parser of requests, and nothing that events do not need.

Events are nearly all that this listener gets, and a web framework costs several times what all of
our own work at one costs. So a connection whose first bytes ask for the path of events is served
here for as long as it lives; any other is handed to the HTTP server behind the same port.

The rule that a reader would otherwise break: nothing of a request is believed before its secret,
the id in its path, was checked. Until then a connection has `Limits.stranger_s`, a request
`BODY_S`, and memory for one head and one body; requests on one connection are answered one after
the other.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from typing import Any, Protocol

import httptools

from provisioner.runtime.bounded_listener import PEERS_MAX, KeptConnections, Rate

# ------------------------------------------------------------------------------
# Frames between the daemon and its process for events, over one pair of sockets.
#
# A frame is a head of fixed size, a name and a body. Frames of the other process are bounded
# here: that one reads the bytes of strangers.


_HEAD = struct.Struct(">BIHHI")  # kind, number, status, bytes of the name, bytes of the body
NAME_MAX = 64  # bytes of a subscription's id
FRAME_BODY_MAX = 2 * 1024 * 1024  # bytes: an event's, or the names of all nodes
OUTSTANDING_MAX = 32  # events that are on their way to the daemon, or being taken by it


class FrameKind(IntEnum):
    START = 1  # to the process: its settings, as JSON, and its key
    LISTENS = 2  # from it: the number is its port; the body says why not, with a status
    EVENT = 3  # from it: the subscription's id, and the document
    ANSWER = 4  # to it: the status for the event of that number
    DROPPED = 5  # from it: an event of this id was not taken; without a name: of any
    SENDERS = 6  # to the process for logs: who may send, as JSON, after the question of that number
    LOOK = 7  # from it: a sender is not known; look whether it came since
    COUNTS = 8  # from it: numbers of messages by their outcome, as JSON


@dataclass(frozen=True)
class Frame:
    """One message; `number` pairs an answer with its event."""

    kind: FrameKind
    number: int = 0
    status: int = 0
    name: bytes = b""
    body: bytes = b""

    def encode(self) -> bytes:
        head = _HEAD.pack(self.kind, self.number, self.status, len(self.name), len(self.body))
        return head + self.name + self.body


class FrameReader:
    """Puts frames together from pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now. Raises ValueError at bytes that are no frame."""
        self._buffer += piece
        while len(self._buffer) >= _HEAD.size:
            kind, number, status, named, sized = _HEAD.unpack_from(self._buffer)
            if named > NAME_MAX or sized > FRAME_BODY_MAX:
                raise ValueError("a frame beyond its bounds")
            end = _HEAD.size + named + sized
            if len(self._buffer) < end:
                return
            name = bytes(self._buffer[_HEAD.size : _HEAD.size + named])
            body = bytes(self._buffer[_HEAD.size + named : end])
            del self._buffer[:end]
            yield Frame(FrameKind(kind), number, status, name, body)


log = logging.getLogger(__name__)

EVENTS = "/v1/redfish/events"
BODY_MAX = 2 * 1024 * 1024  # bytes; a metric report of a whole baseboard has several 100 KB
BODY_S = 20.0
HEAD_MAX = 16 * 1024  # bytes of the path and all headers; real ones have some 300
BARRED_S = 30.0  # seconds for which an address is refused after repeated bad requests
WAITING_MAX = 4  # whole requests on one connection that wait for the answers before them

# The answer to an event that was taken. iLO 5 and 6 take no other status than 200, and repeat the
# event to anything else (DMTF/Redfish-Event-Listener#30); others wait for a body to a 200, and
# repeat it without a Content-Length and JSON (DMTF/Redfish-Event-Listener#25).
_TAKEN = "{}"
_FIRST = f"POST {EVENTS}/".encode()
_PATH = re.compile(re.escape(EVENTS).encode() + rb"/([A-Za-z0-9_-]{1,64})")


class Bars:
    """Addresses that are refused for a while, since too many of their requests were bad."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rate = Rate(now)  # of refused requests
        self._until: OrderedDict[str, float] = OrderedDict()

    def bars(self, peer: str) -> bool:
        """Return whether an address is refused now."""
        return self._until.get(peer, 0.0) > self._now()

    def count(self, peer: str, status: int) -> None:
        if 400 <= status < 429 and not self._rate.admits(peer):
            self._until[peer] = self._now() + BARRED_S
            while len(self._until) > PEERS_MAX:
                self._until.popitem(last=False)


class Admission(Protocol):
    """What all connections of a listener share."""

    async def deliver(self, name: str, body: bytes) -> int:
        """Return the status of an event, by the id in its path and its body."""
        ...

    def bars(self, peer: str) -> bool:
        """Return whether an address is refused for a while."""
        ...

    def count(self, peer: str, status: int) -> None:
        """Count an answer, which may bar the address."""
        ...

    def doubt(self, name: str) -> None:
        """An event of this id was not taken, so that its BMC is to be looked at."""
        ...


class EventConnection(asyncio.Protocol):
    """One connection; `others` makes the protocol for whatever asks for another path."""

    def __init__(
        self,
        keeper: Admission,
        kept: KeptConnections,
        others: Callable[[], Any],
        silent_s: float,
    ) -> None:
        """`silent_s`: it is closed after so long without an event, if it is among `kept`."""
        self._keeper = keeper
        self._kept = kept
        self._others = others
        self._silent_s = silent_s
        self._other: Any = None
        self._transport: Any = None
        self._peer = ""
        self._start = b""  # until it is known who serves it
        self._parser: Any = None
        self._waiting: deque[tuple[str, bytes, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._head_bytes = self._body_bytes = 0
        self._body: list[bytes] = []
        self._coded = self._wants_word = False

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        self._transport = transport
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of another protocol's."""
        if self._other is not None:
            self._other.data_received(data)
        elif self._parser is not None:
            self._feed(data)
        else:
            self._start += data
            if _FIRST.startswith(self._start):
                return  # as far as they go, and not long enough to know
            first = self._start
            self._start = b""
            if first.startswith(_FIRST):
                self._parser = httptools.HttpRequestParser(self)
                self._feed(first)
            else:
                self._other = self._others()
                self._other.connection_made(self._transport)
                self._other.data_received(first)

    def eof_received(self) -> bool | None:
        """The sender says no more."""
        return None if self._other is None else self._other.eof_received()

    def pause_writing(self) -> None:
        """Pause a callback, which may write much."""
        if self._other is not None:
            self._other.pause_writing()

    def resume_writing(self) -> None:
        """Resume a callback, which may write much."""
        if self._other is not None:
            self._other.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection; an event that is being taken is taken to its end."""
        self._stop_clock()
        self._waiting.clear()
        if self._other is not None:
            self._other.connection_lost(exc)

    def force_close(self) -> None:
        if self._other is not None:
            self._other.force_close()
        elif self._transport is not None:
            self._transport.close()

    # the parser's side

    def _feed(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__  # the refusal of a callback below
            self._refuse(cause.status if isinstance(cause, _Refused) else HTTPStatus.BAD_REQUEST)

    def on_message_begin(self) -> None:
        """The first byte of a request: the rest comes within `BODY_S`."""
        self._stop_clock()
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(BODY_S, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def on_url(self, url: bytes) -> None:
        """Keep the path, in bounds."""
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Bound the head; a coding of the body is not undone here."""
        self._count_head(len(name) + len(value))
        lower = name.lower()
        if lower == b"content-encoding" and value.strip().lower() != b"identity":
            self._coded = True
        elif lower == b"expect":
            self._wants_word = True
        elif lower == b"content-length" and value.isdigit() and int(value[:20]) > BODY_MAX:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_MAX:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Refuse a request that is no event before its body comes."""
        if self._keeper.bars(self._peer):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS)
        if _PATH.fullmatch(self._url) is None:
            raise _Refused(HTTPStatus.NOT_FOUND)
        if self._parser.get_method() != b"POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
        if self._coded:
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if self._wants_word:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._kept.begin(self)

    def on_body(self, piece: bytes) -> None:
        """Keep a piece, in bounds."""
        self._body_bytes += len(piece)
        if self._body_bytes > BODY_MAX:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """Have it taken, after those before it."""
        self._stop_clock()
        path = _PATH.fullmatch(self._url)
        assert path is not None, "the head was checked"
        if len(self._waiting) >= WAITING_MAX:
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS)
        stays = self._parser.should_keep_alive()
        self._waiting.append((path[1].decode("ascii"), b"".join(self._body), stays))
        self._clear()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_all())

    # answers

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                name, body, stays = self._waiting.popleft()
                try:
                    status = await self._keeper.deliver(name, body)
                except Exception:  # ours: the sender gets a 500, and the listener goes on
                    log.exception("an event could not be taken")
                    status = HTTPStatus.INTERNAL_SERVER_ERROR
                self._keeper.count(self._peer, status)
                good = status < HTTPStatus.MULTIPLE_CHOICES
                self._write(status, stays=stays and good and self._kept.keep(self))
        finally:
            self._task = None

    def _refuse(self, status: int) -> None:
        """Answer a request that is not taken, and close."""
        path = _PATH.fullmatch(self._url)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and path is not None:
            self._keeper.doubt(path[1].decode("ascii"))
        self._keeper.count(self._peer, status)
        self._write(status, stays=False)

    def _write(self, status: int, *, stays: bool) -> None:
        if self._transport.is_closing():
            return
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        taken = status < HTTPStatus.MULTIPLE_CHOICES
        lines += ["Content-Type: application/json"] if taken else []
        lines += [f"Content-Length: {len(_TAKEN) if taken else 0}"]
        lines += [] if stays else ["Connection: close"]
        lines += [f"Retry-After: {BARRED_S:.0f}"] if status == HTTPStatus.TOO_MANY_REQUESTS else []
        body = _TAKEN if taken else ""
        self._transport.write("\r\n".join([*lines, "", body]).encode("ascii"))
        if not stays:
            self._waiting.clear()
            self._stop_clock()
            self._transport.close()
        elif self._ending is None:
            loop = asyncio.get_running_loop()
            self._ending = loop.call_later(self._silent_s, self.force_close)

    def _stop_clock(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None


class _Refused(Exception):
    """A request that is answered with a status at once."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
