"""HTTP to a device that may lie: one request that leaves at most once, bounded in time and bytes.

It is beneath the adapters that speak HTTP, and has no part of any one's protocol. It decides four
things: whom to trust (`Trust`), whom to ask (`own_url`), how much to read (`BoundedSession`), and
which of the promised errors a failure is (`port_error`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from provisioner.model.input_error import InputError
from provisioner.model.machine.settings import split_pins
from provisioner.ports import (
    AccountLocked,
    CertificateChanged,
    CertificateUntrusted,
    LoginRefused,
    LookOnly,
    Malformed,
    PortError,
    TooLarge,
    Unreachable,
)
from provisioner.runtime import permit
from provisioner.runtime.wall_clock import read_boot_clock

LOG = logging.getLogger(__name__)

CONNECT_MAX_S = 10.0  # TCP and TLS: management networks answer in milliseconds, or not at all
KEEPALIVE_S = (
    # bmcweb stops serving at 200 connections, HPE resets old ones (docs/sources/bmc-faults.md#t11)
    20.0
)
CLOSED_MAX = 4  # connections that are closed in one turn of the loop, a millisecond each
# Connections that are opened at once. What came while the loop was busy is worked on in one turn, a
# handshake in two milliseconds; a device that is slower gives its place back.
OPENED_MAX = 16
OPENING_S = 0.125
REDIRECTS_MAX = 4  # of one GET: a slash at the end, perhaps another name of the resource
DETAIL_MAX = 300  # characters of a foreign message that we repeat
# every error of the HTTP stack for a peer's behaviour; all else is our own bug
FAILURES = (
    aiohttp.ClientError,
    aiohttp.http.HttpProcessingError,
    OSError,
    TimeoutError,
    ValueError,
)

# aiohttp's ClientConnectorError names the TLS option: an object's address in memory, or "default"
_TLS_OBJECT = re.compile(r"\s+ssl:(<[^>]*>|\S+)")

TlsOption = ssl.SSLContext | aiohttp.Fingerprint | bool


@lru_cache(maxsize=1)
def bare_context() -> ssl.SSLContext:
    """Return the TLS context for peers that a pin identifies: it trusts no CA, and verifies none.

    A context with the system's CA directory has OpenSSL open that directory at every handshake,
    inside of the event loop, although the pin decides: 0.4 ms each. Who uses this one compares the
    certificate before the first byte is sent.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(("http/1.1",))
    return context


def open_trust(setting: str, ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts the CAs of a file, or the system's if none is named.

    Raises InputError, which names the setting or option that the path comes from.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        problem = f"it has no certificates of authorities ({error})"
        raise InputError(setting, ca_file, problem, "Name a PEM file.") from None


class _Connector(aiohttp.TCPConnector):
    """aiohttp's own, but with `bare_context` for pinned and unverified peers; opens and closes few
    at once.

    `_get_ssl_context`, `_wrap_create_connection` and `_cleanup` are no public interface. If another
    version of aiohttp has other names for them, its own are used again: a context that is slower
    and as safe, since it compares the pin itself, and as many handshakes in one turn of the loop as
    answers came, or hundreds of connections closed each `KEEPALIVE_S`: these held the loop for 0.4
    and 0.5 seconds while a fleet was read first.
    """

    def __init__(self, **ways: Any) -> None:
        super().__init__(**ways)
        self._places = asyncio.Semaphore(OPENED_MAX)
        self._keys: dict[tuple[str | None, int | None], Any] = {}  # each host's last one

    def _get_ssl_context(self, req: aiohttp.ClientRequest) -> ssl.SSLContext | None:
        self._keys[req.url.raw_host, req.url.port] = req.connection_key
        if req.is_ssl() and (req.ssl is False or isinstance(req.ssl, aiohttp.Fingerprint)):
            return bare_context()
        return super()._get_ssl_context(req)

    async def _wrap_create_connection(self, *args: Any, **ways: Any) -> Any:
        await self._places.acquire()
        taken = [self._places]

        def give_back() -> None:
            if taken:
                taken.pop().release()

        late = self._loop.call_later(OPENING_S, give_back)
        try:
            return await super()._wrap_create_connection(*args, **ways)
        finally:
            late.cancel()
            give_back()

    def _cleanup(self) -> None:
        before_s = monotonic() - KEEPALIVE_S
        keys = [key for key, resting in self._conns.items() if resting and resting[0][1] < before_s]
        self._close_some(deque(keys), before_s)

    def _close_some(self, keys: deque[Any], before_s: float) -> None:
        """Close what has rested since `before_s` of the next few of these; come back for others."""
        for _ in range(min(CLOSED_MAX, len(keys))):
            key = keys.popleft()
            resting = self._conns.get(key, deque())  # some are in use again
            while resting and resting[0][1] < before_s:
                resting.popleft()[0].close()
            if not resting:
                self._conns.pop(key, None)
        self._cleanup_handle = None
        if keys:
            self._cleanup_handle = self._loop.call_later(0.001, self._close_some, keys, before_s)
        elif self._conns:
            self._cleanup_handle = self._loop.call_later(KEEPALIVE_S, self._cleanup)

    def close_resting(self, host: str | None, port: int | None, keep: int) -> None:
        """Close connections to a host that nobody uses now, but `keep` (nor is `_conns` public)."""
        resting = getattr(self, "_conns", {}).get(self._keys.get((host, port)), ())
        while len(resting) > keep:
            resting.popleft()[0].close()  # the one that rests longest


class AnyFingerprint(aiohttp.Fingerprint):
    """Accepts any of several certificates: before and after a device exchanged its own."""

    def __init__(self, pins: Sequence[str]) -> None:
        prints = [bytes.fromhex(pin) for pin in pins]
        if not prints:
            raise ValueError("no fingerprint")
        super().__init__(prints[0])
        self._others = [aiohttp.Fingerprint(one) for one in prints[1:]]

    def check(self, transport: asyncio.Transport) -> None:
        """Raise `ServerFingerprintMismatch` for a certificate that is none of them."""
        try:
            super().check(transport)
        except aiohttp.ServerFingerprintMismatch:
            if not any(_fits(other, transport) for other in self._others):
                raise


def _fits(fingerprint: aiohttp.Fingerprint, transport: asyncio.Transport) -> bool:
    try:
        fingerprint.check(transport)
    except aiohttp.ServerFingerprintMismatch:
        return False
    return True


class Trust:
    """The trusted certificates: one TLS context for all devices, and a pin per device.

    A context per device would cost 0.8 MB and 89 ms each (docs/sources/engine.md#tls). The options
    are cached, because the connection pool compares them by identity.
    """

    def __init__(self, ca_file: Path | None = None) -> None:
        self._authorities: ssl.SSLContext | None = None
        self._pins: dict[str, aiohttp.Fingerprint] = {}
        self._ca_file = ca_file

    def option(self, url: str, pin: str, *, insecure: bool) -> TlsOption:
        """Return aiohttp's option. A pin takes precedence; `insecure` is a person's request."""
        if pin:
            if not url.startswith("https://"):
                raise CertificateChanged(f"{url}: pinned, but plain http has no certificate")
            return self._pinned(url, pin)
        if insecure:
            return False
        if self._authorities is None:
            self._authorities = ssl.create_default_context(
                cafile=str(self._ca_file) if self._ca_file else None
            )
        return self._authorities

    def _pinned(self, url: str, pin: str) -> aiohttp.Fingerprint:
        if pin not in self._pins:
            try:
                self._pins[pin] = AnyFingerprint(split_pins(pin))
            except ValueError:
                raise CertificateChanged(f"{url}: its pin is no SHA-256 in hex") from None
        return self._pins[pin]


def own_url(base: str, path: str, *, encoded: bool = False) -> URL:
    """Return `path` at `base` itself: a name from a device never leads elsewhere. Raises Malformed.

    `encoded`: the path has all its escapes. Otherwise "%2F" is preserved, and other characters are
    escaped as needed.
    """
    origin = URL(base).origin()
    if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable():
        url = URL(f"{origin}{path}", encoded=encoded)
        if url.origin() == origin and url.user is None:
            return url
    raise Malformed(f"{base}: {path[:80]!r} is no path")


def redirected_path(base: str, path: str, status: int, location: str) -> str | None:
    """Return the target of a GET's redirect as a path of the same origin; None: not followed.

    The caller bounds how often (`REDIRECTS_MAX`).
    """
    if status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        origin = URL(base).origin()
        target = URL(f"{origin}{path}").join(URL(location.strip()))
        if target.origin() != origin or target.user is not None:
            return None
        return own_url(base, target.raw_path_qs, encoded=True).raw_path_qs
    except (Malformed, ValueError):
        return None


@dataclass
class Attempt:
    """The departure of one request. A request that changes something leaves once."""

    safe: bool
    sent: bool = field(default=False, init=False)

    def leave(self) -> None:
        """Called just before the first byte. aiohttp itself repeats DELETE and PUT: not here."""
        if self.sent and not self.safe:
            raise aiohttp.ClientConnectionError("the connection broke; not sent a second time")
        permit.ask(writes=not self.safe)
        self.sent = True


def departures() -> aiohttp.TraceConfig:
    """Return the trace that marks each request's `Attempt` (`trace_request_ctx`) as it leaves."""

    async def leaving(_session: aiohttp.ClientSession, kept: SimpleNamespace, _: object) -> None:
        attempt = kept.trace_request_ctx
        if isinstance(attempt, Attempt):
            attempt.leave()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(leaving)
    return trace


def _guarded(
    refuse: Callable[[str], str] | None, unacked_s: float
) -> Callable[[Any], socket.socket]:
    """Return what makes a connection's socket, unless `refuse` has a reason against its address.

    It has the address that is connected to, after a name is resolved, and for a literal as well: a
    name that is resolved to another address the next time (DNS rebinding) gains nothing by it.
    """

    def make(target: Any) -> socket.socket:
        family, kind, protocol, _, address = target
        if refuse is not None and (why := refuse(str(address[0]))):
            raise PermissionError(errno.EACCES, f"refused: {why}")
        made = socket.socket(family=family, type=kind, proto=protocol)
        if unacked_s and hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unacked_s * 1000))
        return made

    return make


def open_session(
    *,
    per_host: int,
    keep_alive: bool,
    refuse: Callable[[str], str] | None = None,
    unacked_s: float = 0.0,
) -> aiohttp.ClientSession:
    """A session without cookies, proxies or decompression. To be made inside the event loop.

    `refuse` is asked for each address that a connection is opened to: for URLs that people give.
    `unacked_s`: after which the kernel gives up what nobody acknowledges, also for a process that
    is stopped or dead; 0: after its own quarter of an hour.
    """
    ways: dict[str, Any] = {"limit": 0, "limit_per_host": per_host}
    ways |= {"keepalive_timeout": KEEPALIVE_S} if keep_alive else {"force_close": True}
    if refuse is not None or unacked_s:
        ways["socket_factory"] = _guarded(refuse, unacked_s)
    connector = _Connector(**ways)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # aiohttp inflates without a bound; BoundedAnswer does it with one
        trace_configs=[departures()],
        headers={"User-Agent": "provisioner"},
    )


def close_resting(session: aiohttp.ClientSession, url: str, *, keep: int) -> None:
    """Close what a session holds open to a host and nobody uses now, but `keep` of them."""
    where = URL(url)
    if isinstance(session.connector, _Connector):
        session.connector.close_resting(where.raw_host, where.port, keep)


def unwatched(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """The same connections without `departures`, which cost a read a tenth of its CPU time."""
    return aiohttp.ClientSession(
        connector=session.connector,
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers=session.headers,
    )


@lru_cache(maxsize=64)  # calls have few different limits
def time_limit(total_s: float) -> aiohttp.ClientTimeout:
    """The whole exchange within `total_s`, the connection within CONNECT_MAX_S of it."""
    return aiohttp.ClientTimeout(total=total_s, sock_connect=min(CONNECT_MAX_S, total_s))


class BoundedAnswer:
    """An answer that is read piece by piece, and thrown away once it is over its limit."""

    def __init__(self, response: aiohttp.ClientResponse, size_max_bytes: int) -> None:
        self._response = response
        self._size_max_bytes = size_max_bytes
        self.status = response.status
        self.headers = response.headers

    def get_encoding(self) -> str:
        """JSON is UTF-8 (RFC 8259 section 8.1), whatever the header claims."""
        return "utf-8"

    async def read(self) -> bytes:
        """The body; raises TooLarge, or Malformed for a coding that was not asked for."""
        limit = self._size_max_bytes
        try:
            if (self._response.content_length or 0) > limit:
                raise TooLarge(f"announces {self._response.content_length} bytes of {limit}")
            inflate = self._decoder()
            if inflate is None and self._response.content_length is not None:
                return await self._response.read()  # aiohttp reads no more than was announced
            body = bytearray()
            async for piece in self._response.content.iter_any():
                if inflate is not None:
                    piece = inflate.decompress(piece, limit + 1 - len(body))
                body += piece
                if len(body) > limit:
                    raise TooLarge(f"over {limit} bytes")
            if inflate is not None and not inflate.eof and body:
                raise Malformed("compressed body ends early")
        except zlib.error as error:
            raise Malformed(f"compressed body is damaged: {error}") from None
        except BaseException:
            self._response.close()
            raise
        return bytes(body)

    def _decoder(self) -> Any:
        coding = self.headers.get("Content-Encoding", "").strip().lower()
        if coding in ("", "identity"):
            return None
        if coding in ("gzip", "x-gzip", "deflate"):
            return zlib.decompressobj(wbits=47)  # 32 + 15: gzip or zlib, as the header says
        raise Malformed(f"content coding {coding[:20]!r} was not asked for")


class BoundedSession:
    """An aiohttp session, as far as a client needs one, with limits and trust for one exchange.

    redfish.aio takes any object with such a `request`.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        tls: TlsOption,
        attempt: Attempt,
        size_max_bytes: int,
        coding: str = "identity",
    ) -> None:
        self._session = session
        self._tls = tls
        self._attempt = attempt
        self._size_max_bytes = size_max_bytes
        self._coding = coding

    def request(self, method: str, url: Any, **options: Any) -> _Exchange:
        """One exchange; redirects are not followed, compression is not asked for.

        Compression makes an ETag weak, which the PATCH is then refused for
        (docs/sources/bmc-faults.md#e3).
        """
        headers = options["headers"] = options.get("headers") or {}
        headers.setdefault("Accept-Encoding", self._coding)
        options["allow_redirects"] = False
        exchange = self._session.request(
            method, url, ssl=self._tls, trace_request_ctx=self._attempt, **options
        )
        return _Exchange(exchange, self._size_max_bytes)


class _Exchange:
    """What `async with` takes: aiohttp's own exchange, its answer bounded."""

    __slots__ = ("_asked", "_size_max_bytes")

    def __init__(self, asked: Any, size_max_bytes: int) -> None:
        self._asked = asked
        self._size_max_bytes = size_max_bytes

    async def __aenter__(self) -> BoundedAnswer:
        return BoundedAnswer(await self._asked.__aenter__(), self._size_max_bytes)

    async def __aexit__(self, *error: object) -> None:
        await self._asked.__aexit__(*error)


def first_of_each(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers with lowercase names; of several with one name the first counts
    (docs/sources/bmc-faults.md#e5).
    """
    first: dict[str, str] = {}
    for name, value in headers:
        first.setdefault(name.lower(), value)
    return first


def port_error(where: str, error: BaseException, attempt: Attempt) -> PortError:
    """The promised error that `error` is.

    Once something that changes the device has left, whatever goes wrong is `Unreachable` with
    `maybe_executed`: that fact must not be lost behind a more precise one.
    """
    detail = f"{where}: {error_words(error)}"
    match error:
        case CertificateChanged() | LoginRefused() | LookOnly() | Unreachable():
            return error
        case aiohttp.ServerFingerprintMismatch():
            return CertificateChanged(f"{where}: the certificate is not the pinned one")
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return CertificateUntrusted(detail)
        case aiohttp.ClientConnectorError():
            return Unreachable(detail, maybe_executed=False)
    if attempt.sent and not attempt.safe:
        return Unreachable(detail, maybe_executed=True)
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Unreachable(detail, maybe_executed=False)
        case TooLarge() | Malformed():
            return type(error)(detail)
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError() | aiohttp.InvalidURL():
            return Malformed(detail)
        case aiohttp.http.HttpProcessingError():
            return Malformed(detail)
        case TimeoutError() | OSError() | aiohttp.ClientError():
            return Unreachable(detail, maybe_executed=attempt.sent)
    return Malformed(detail)


def note_heard(url: str, problem: PortError | None) -> None:
    """Remember that a device answered, in whatever way, or that it was silent."""
    if not isinstance(problem, AccountLocked | LookOnly):  # those were not sent
        silent = isinstance(problem, Unreachable)
        permit.note_heard(url, read_boot_clock(), answered=not silent)


async def accepts_connection(where: str, limit_s: float) -> bool:
    """Return whether HOST:PORT accepts a TCP connection, which is closed at once."""
    host, _, port = where.rpartition(":")
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True


def error_words(error: BaseException) -> str:
    """Return the error's class and message on one short line; it may quote a hostile peer."""
    line = " ".join(_TLS_OBJECT.sub("", str(error)).split())
    text = line if isinstance(error, PortError) else f"{type(error).__name__} {line}"
    return "".join(c for c in text if c.isprintable())[:DETAIL_MAX].rstrip()
