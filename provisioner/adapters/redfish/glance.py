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

from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    FAILURES,
    Attempt,
    bare_context,
    port_error,
)
from provisioner.adapters.redfish.glance_answer import GlanceAnswer
from provisioner.ports import (
    BmcAddress,
    Call,
    CertificateChanged,
    Malformed,
    PortError,
    Reply,
    Unreachable,
)

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
