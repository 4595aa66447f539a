"""One GET with Basic over a connection of its own: the watch's single read of a pinned BMC.

The watch asks each BMC for one resource twice an hour or less. Through a session that is four
requests, since the session has ended meanwhile, and most of their cost is the interpreter's work
around them. Here it is one request, and little more than its TLS handshake (decision 0084).

The password leaves only after the certificate that the BMC presented is the pinned one. Nothing is
repeated, followed or unpacked here: an answer that needs it is left to the ordinary way.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from urllib.parse import urlsplit

import httptools

from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    FAILURES,
    Attempt,
    bare_context,
    port_error,
)
from provisioner.ports import (
    BmcAddress,
    Call,
    CertificateChanged,
    Malformed,
    PortError,
    Reply,
    TooLarge,
    Unreachable,
)

# ------------------------------------------------------------------------------
# Reads the answer to a glance from its bytes, in bounds, with httptools' parser.
#
# llhttp bounds neither the head nor the body, and it reports no end of an answer whose length only
# the end of the connection shows. Both are done here. A coding of the body is not undone: none was
# asked for, and the ordinary way knows how to treat a BMC that sends one in spite of that.


HEAD_MAX_BYTES = 64 * 1024  # names and values; real ones have one KiB


class GlanceAnswer:
    """One answer. `feed` takes its bytes as they come; `reply` is set once it is whole."""

    def __init__(self, size_max_bytes: int) -> None:
        self.reply: Reply | None = None
        self._size_max_bytes = size_max_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._begun = False

    def feed(self, received: bytes) -> None:
        """Take in bytes. Raises `TooLarge`, or `Malformed` for what is no HTTP."""
        if self.reply is not None:
            return  # what follows the answer was not asked for
        try:
            self._parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.reply is not None:
                return
            cause = error.__context__  # the error of a callback below
            if isinstance(cause, TooLarge | Malformed):
                raise cause from None
            raise Malformed(f"no HTTP answer: {error}") from None

    def end(self) -> None:
        """The connection ended: an answer without a stated length ends with it."""
        bounded = self._headers.keys() & {"content-length", "transfer-encoding"}
        if self.reply is None and self._begun and not bounded:
            self._finish()

    # callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first of several headers with one name (docs/sources/bmc-faults.md#e5)."""
        self._head_size += len(name) + len(value)
        if self._head_size > HEAD_MAX_BYTES:
            raise TooLarge(f"headers over {HEAD_MAX_BYTES} bytes")
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Refuse a body that announces too much, or comes in a coding."""
        self._begun = self._parser.get_status_code() >= 200
        announced = self._headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced) > self._size_max_bytes:
            raise TooLarge(f"announces {announced[:20]} bytes of {self._size_max_bytes}")
        coding = self._headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            raise Malformed(f"content coding {coding[:20]!r} was not asked for")

    def on_body(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._size_max_bytes:
            raise TooLarge(f"over {self._size_max_bytes} bytes")
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The answer is whole; a provisional one (1xx) is followed by another."""
        if self._begun:
            if self.reply is None:
                self._finish()
        else:
            self._headers.clear()

    def _finish(self) -> None:
        status = self._parser.get_status_code()
        self.reply = Reply(status, dict(self._headers), b"".join(self._body))


def read_answer(received: bytes, size_max_bytes: int) -> Reply | None:
    """Return the answer that a connection brought until it ended; None if it is not whole."""
    answer = GlanceAnswer(size_max_bytes)
    answer.feed(received)
    answer.end()
    return answer.reply


_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")  # visible ASCII without a backslash: sent as it is
_PIN = re.compile(r"[0-9a-fA-F]{64}")


def is_possible(bmc: BmcAddress, call: Call) -> bool:
    """Return whether this read can be a glance: pinned, with a login that Basic can carry."""
    return (
        call.alone
        and call.method == "GET"
        and not call.headers
        and bmc.secret is not None
        and ":" not in bmc.username
        and bmc.url.startswith("https://")
        and _PIN.fullmatch(bmc.pin.replace(":", "")) is not None
        and _PATH.fullmatch(call.path) is not None
    )


async def read_once(bmc: BmcAddress, call: Call, attempt: Attempt) -> Reply:
    """Send the GET and return its answer, of any status. Raises `PortError` only.

    Malformed also means an answer that only the ordinary way can read.
    """
    where = f"GET {bmc.url}{call.path}"[:200]
    try:
        place = urlsplit(bmc.url)
        if place.hostname is None:
            raise Malformed("no host in it")
        loop = asyncio.get_running_loop()
        exchange = _Exchange(bmc, call, place.netloc.rpartition("@")[2], attempt)
        until = loop.time() + call.timeout_s
        async with asyncio.timeout(min(CONNECT_MAX_S, call.timeout_s)):
            transport, _ = await loop.create_connection(
                lambda: exchange,
                place.hostname,
                place.port or 443,
                ssl=bare_context(),
                server_hostname=place.hostname,
            )
        try:
            async with asyncio.timeout_at(until):
                return await exchange.answered
        finally:
            transport.abort()  # the answer is whole, or of no use
    except (PortError, *FAILURES) as error:
        raise port_error(where, error, attempt) from None


class _Exchange(asyncio.Protocol):
    """The request on its connection; `answered` has the reply, or why there is none."""

    def __init__(self, bmc: BmcAddress, call: Call, host: str, attempt: Attempt) -> None:
        self.answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._bmc = bmc
        self._path = call.path
        self._host = host
        self._attempt = attempt
        self._answer = GlanceAnswer(call.size_max_bytes)
        self.answered.add_done_callback(lambda done: done.cancelled() or done.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done: compare the certificate, and only then send the password."""
        assert hasattr(transport, "write"), "a connection of TCP"
        try:
            peer = transport.get_extra_info("ssl_object")
            certificate = peer.getpeercert(binary_form=True) if peer is not None else None
            presented = hashlib.sha256(certificate or b"").hexdigest()
            pin = self._bmc.pin.replace(":", "").lower()
            if not certificate or not hmac.compare_digest(presented, pin):
                raise CertificateChanged(f"{self._bmc.url}: the certificate is not the pinned one")
            self._attempt.leave()
        except PortError as error:
            self._fail(error)
            return
        transport.write(self._request())

    def _request(self) -> bytes:
        """The bytes to send. Every header is ours: `is_possible` refused all others."""
        assert self._bmc.secret is not None
        pair = f"{self._bmc.username}:{self._bmc.secret.reveal()}".encode()
        return (
            f"GET {self._path} HTTP/1.1\r\nHost: {self._host}\r\n"
            "User-Agent: provisioner\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
            "OData-Version: 4.0\r\nConnection: close\r\n"
            f"Authorization: Basic {base64.b64encode(pair).decode()}\r\n\r\n"
        ).encode("ascii")

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        try:
            self._answer.feed(data)
        except PortError as error:
            self._fail(error)
        self._settle()

    def eof_received(self) -> None:
        """The BMC has sent all: an answer without a stated length ends here."""
        self._answer.end()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, perhaps without a farewell of TLS before."""
        if exc is None:
            self._answer.end()
            self._settle()
        detail = f"the connection ended before the answer: {exc or 'closed'}"
        self._fail(Unreachable(detail, maybe_executed=self._attempt.sent))

    def _settle(self) -> None:
        if self._answer.reply is not None and not self.answered.done():
            self.answered.set_result(self._answer.reply)

    def _fail(self, error: PortError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)
