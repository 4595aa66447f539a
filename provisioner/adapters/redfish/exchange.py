"""One HTTP exchange with a BMC through redfish.aio, and the meaning of its failure.

A request that changes something never uses an old connection: that one may be dead already (HPE
resets them, docs/sources/bmc-faults.md#t2), and then it stays unknown whether the request was
carried out. The transport decides how old is old; for all but a PATCH and the end of a session, it
is any at all.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import aiohttp

from provisioner.adapters.bounded_http import (
    FAILURES,
    REDIRECTS_MAX,
    Attempt,
    BoundedSession,
    Trust,
    close_resting,
    first_of_each,
    note_heard,
    open_session,
    port_error,
    redirected_path,
    time_limit,
    unwatched,
)
from provisioner.adapters.redfish.glance import read_once
from provisioner.adapters.redfish.session import Login, is_session_call
from provisioner.ports import (
    BmcAddress,
    Call,
    LoginRefused,
    LookOnly,
    Malformed,
    PortError,
    Reply,
    Secret,
    Unreachable,
    Upload,
)
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime import permit
from provisioner.runtime.event_loop import FairTurns, shrink_tls_buffers
from provisioner.runtime.late_module import LateModule

# ------------------------------------------------------------------------------
# A multipart push as one streamed body with Content-Length: iDRAC refuses chunks
# (docs/sources/bmc-faults.md#t10).
#
# The image is read piece by piece while it is sent; a 1.5 GB BFB costs no more memory than a BIOS.


@contextmanager
def stream_multipart(upload: Upload, session: Secret | None) -> Iterator[aiohttp.MultipartWriter]:
    """Yield the body of one push, in the order of its parts, and close its file afterwards.

    Raises Unreachable (not executed) if the image cannot be opened: nothing was sent.
    """
    try:
        image = upload.file.open("rb")
    except OSError as error:
        raise Unreachable(f"{upload.file}: {error.strerror}", maybe_executed=False) from None
    with image:
        body = aiohttp.MultipartWriter("form-data")
        if upload.session_part and session is not None:
            key = body.append(session.reveal())
            key.set_content_disposition("form-data", name=upload.session_part)
        for name, content_type, content in upload.parts:
            part = body.append(content, {"Content-Type": content_type})
            part.set_content_disposition("form-data", name=name)
        part = body.append(image, {"Content-Type": "application/octet-stream"})
        part.set_content_disposition("form-data", name=upload.file_part, filename=upload.file_name)
        assert body.size is not None, "a body of known size is not sent in chunks"
        yield body


if TYPE_CHECKING:
    from redfish import aio as redfish_aio
else:  # its package imports requests, urllib3 and all else of its other client
    redfish_aio = LateModule("redfish.aio")

SAFE = frozenset({"GET", "HEAD"})
METHODS = SAFE | {"POST", "PATCH", "PUT", "DELETE"}
READS_MAX = 2  # per BMC: they serve one request at a time, a second one hides the way there


class HttpExchange:
    """The connections to all BMCs. To be used in one event loop, and closed there."""

    def __init__(self, trust: Trust, telemetry: Telemetry = SILENCE) -> None:
        self._trust = trust
        self._telemetry = telemetry
        self.turns = FairTurns()
        self._importing = asyncio.Lock()
        self._kept: aiohttp.ClientSession | None = None
        self._reads: aiohttp.ClientSession | None = None  # the connections of `_kept`
        self._fresh: aiohttp.ClientSession | None = None
        # the last of each BMC
        self._clients: dict[str, tuple[Login, redfish_aio.AsyncRedfishClient]] = {}

    async def send(
        self,
        bmc: BmcAddress,
        call: Call,
        login: Login | None,
        coding: str = "identity",
        *,
        keep_alive: bool,
    ) -> Reply:
        """Send `call` as `login` (None: without a login). Raises PortError only.

        A GET follows redirects within the BMC itself: services name resources without the slash
        that they want at the end. One to another place comes back as the answer.
        """
        reply = await self._send_once(bmc, call, login, coding, keep_alive=keep_alive)
        for _ in range(REDIRECTS_MAX):
            location = reply.headers.get("location", "")
            path = redirected_path(bmc.url, call.path, reply.status, location)
            if path is None or call.method not in SAFE:
                break
            call = replace(call, path=path)
            reply = await self._send_once(bmc, call, login, coding, keep_alive=keep_alive)
        return reply

    async def _send_once(
        self, bmc: BmcAddress, call: Call, login: Login | None, coding: str, *, keep_alive: bool
    ) -> Reply:
        assert call.method in METHODS, call.method
        if permit.is_observing() and call.method not in SAFE and not is_session_call(call):
            permit.count_withheld()
            raise LookOnly(f"{bmc.url}: this daemon only observes: {call.method} {call.path}"[:300])
        await self.turns.take()
        began = time.perf_counter()
        try:
            reply = await self._sent(bmc, call, login, coding, keep_alive=keep_alive)
        except PortError as error:
            self._note(bmc, call, began, error)
            raise
        self._note(bmc, call, began, reply)
        if call.method in SAFE:
            await self.turns.take()
        return reply

    def _note(self, bmc: BmcAddress, call: Call, began: float, outcome: Reply | PortError) -> None:
        self._telemetry.request(bmc.url, call, time.perf_counter() - began, outcome)
        note_heard(bmc.url, outcome if isinstance(outcome, PortError) else None)

    async def glance(self, bmc: BmcAddress, call: Call) -> Reply:
        """Send a GET by itself, with Basic to a pinned BMC. Raises PortError only."""
        await self.turns.take()
        began = time.perf_counter()
        attempt = Attempt(safe=True)
        try:
            reply = await read_once(bmc, call, attempt)
        except PortError as error:
            self._note(bmc, call, began, error)
            raise
        self._note(bmc, call, began, reply)
        return reply

    async def _sent(
        self, bmc: BmcAddress, call: Call, login: Login | None, coding: str, *, keep_alive: bool
    ) -> Reply:
        attempt = Attempt(safe=call.method in SAFE)
        where = f"{call.method} {bmc.url}{call.path}"[:200]
        try:
            tls = self._trust.option(bmc.url, bmc.pin, insecure=bmc.insecure)
            session = self._session(keep_alive=keep_alive)
            if session is self._fresh and self._kept is not None:  # two in all: BMCs serve few
                close_resting(self._kept, bmc.url, keep=1)
            if login is not None and login.token is not None and attempt.safe:
                assert self._reads is not None
                session = self._reads
                attempt.leave()  # a read with a token needs no record of whether it was sent
            if "redfish.aio" not in sys.modules or self._importing.locked():
                async with self._importing:  # it takes as long as a hundred requests
                    if "redfish.aio" not in sys.modules:
                        await asyncio.to_thread(import_module, "redfish.aio")
            _NOW.set(BoundedSession(session, tls, attempt, call.size_max_bytes, coding))
            answer = await _ask(await self._client(bmc, login), call, login)
        except redfish_aio.RedfishInvalidTargetError as error:
            raise Malformed(f"{where}: {error}") from None
        except redfish_aio.RedfishError as error:
            raise port_error(where, error.__cause__ or error, attempt) from None
        except (PortError, *FAILURES) as error:
            raise port_error(where, error, attempt) from None
        return Reply(answer.status, first_of_each(answer.getheaders()), answer.read)

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        for session in (self._reads, self._kept, self._fresh):
            if session is not None:
                await session.close()
        self._kept = self._reads = self._fresh = None
        self._clients.clear()

    def _session(self, *, keep_alive: bool) -> aiohttp.ClientSession:
        if self._kept is None or self._fresh is None:
            shrink_tls_buffers()
            self._kept = open_session(per_host=READS_MAX, keep_alive=True)
            self._reads = unwatched(self._kept)
            self._fresh = open_session(per_host=1, keep_alive=False)
        return self._kept if keep_alive else self._fresh

    async def _client(self, bmc: BmcAddress, login: Login | None) -> redfish_aio.AsyncRedfishClient:
        """The client that carries the login; it never logs in by itself.

        Made once per login: its checks of the URL cost as much as a tenth of an exchange.
        """
        if login is None:
            return redfish_aio.AsyncRedfishClient(bmc.url, session=_SESSION)
        cached = self._clients.get(bmc.url)
        if cached is not None and cached[0] is login:
            return cached[1]
        if login.token is not None:
            token = login.token.reveal()
            client = redfish_aio.AsyncRedfishClient(bmc.url, session=_SESSION, session_key=token)
        else:
            password = login.secret.reveal()
            client = redfish_aio.AsyncRedfishClient(bmc.url, login.username, password, _SESSION)
            await client.login(auth="basic")  # sends nothing
        self._clients[bmc.url] = login, client
        return client


class _Session:
    """The session of every client: each exchange brings its own limits and trust."""

    def request(self, method: str, url: Any, **options: Any) -> Any:
        """As `aiohttp.ClientSession.request`."""
        return _NOW.get().request(method, url, **options)


_NOW: ContextVar[BoundedSession] = ContextVar("exchange")  # of this task
_SESSION = _Session()


async def _ask(client: redfish_aio.AsyncRedfishClient, call: Call, login: Login | None) -> Any:
    verb = getattr(client, call.method.lower())
    options: dict[str, Any] = {"headers": dict(call.headers), "timeout": time_limit(call.timeout_s)}
    if call.method in SAFE:
        return await verb(call.path, **options)
    if isinstance(call.body, Upload):
        session = login.token if login is not None else None
        if call.body.session_part:
            if session is None:
                raise LoginRefused("this upload needs a session, and the BMC opened none")
            options["headers"]["Cookie"] = f"{call.body.session_part}={session.reveal()}"
        with stream_multipart(call.body, session) as body:
            return await verb(call.path, body=body, **options)
    return await verb(call.path, body=call.body, **options)
