"""Requests to a switch's REST API: `SwitchTransport` over one aiohttp session.

There are no sessions: each request carries Basic credentials, so only over https, and a switch
that refused them is left alone until the wait is over or the credentials are others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    Trust,
    first_of_each,
    note_heard,
    open_session,
    own_url,
    port_error,
    time_limit,
    unwatched,
)
from provisioner.ports import (
    AccountLocked,
    Call,
    LoginRefused,
    PortError,
    Reply,
    Secret,
    SwitchAddress,
)
from provisioner.runtime.event_loop import FairTurns, PacedSlots, shrink_tls_buffers

SAFE = frozenset({"GET", "HEAD"})
REQUESTS_MAX = 64  # in the whole process: a site has hundreds of switches, not thousands
READS_MAX = 2  # per switch: a web server and the daemon behind it serve few at once
# a request that changes something arrives within this after it left, or never: a successor waits
UNACKED_S = 15.0
TURNS_MAX = 2  # answers that are worked on in one turn of the loop: a table of a leaf takes 20 ms
REFUSED_WAIT_S = 300.0  # before credentials that a switch refused are shown to it again


@dataclass
class _Line:
    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_MAX))
    write: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused: tuple[str, Secret | None] | None = None
    refused_s: float = 0.0


class SwitchHttps:
    """`SwitchTransport` for real switches. To be used in one event loop, and closed there.

    `ca_file` replaces the system's CAs. `clock` gives seconds that only grow.
    """

    def __init__(
        self,
        requests_max: int = REQUESTS_MAX,
        ca_file: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._trust = Trust(ca_file)
        self._slots = PacedSlots(requests_max)
        self._turns = FairTurns(TURNS_MAX)
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._kept: aiohttp.ClientSession | None = None
        self._reads: aiohttp.ClientSession | None = None  # the connections of `_kept`
        self._fresh: aiohttp.ClientSession | None = None

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        """One request; what changes something is sent once, over a connection of its own.

        Raises PortError only: LoginRefused for 401, AccountLocked while refused credentials rest.
        """
        line = self._lines.setdefault(switch.url, _Line())
        async with line.reads if call.method in SAFE else line.write, self._slots:
            await self._turns.take()
            self._admit(line, switch)  # nothing comes between this and the request
            reply = await self._send(switch, call)
        if call.method in SAFE:
            await self._turns.take()
        if reply.status == 401:
            line.refused = (switch.username, switch.secret)
            line.refused_s = self._clock()
            raise LoginRefused(f"{switch.url}: credentials refused")
        return reply

    async def close(self) -> None:
        for session in (self._reads, self._kept, self._fresh):
            if session is not None:
                await session.close()
        self._reads = self._kept = self._fresh = None

    def _admit(self, line: _Line, switch: SwitchAddress) -> None:
        if line.refused == (switch.username, switch.secret):
            wait_s = line.refused_s + REFUSED_WAIT_S - self._clock()
            if wait_s > 0:
                raise AccountLocked(f"{switch.url}: these credentials were refused", wait_s)

    async def _send(self, switch: SwitchAddress, call: Call) -> Reply:
        safe = call.method in SAFE
        attempt = Attempt(safe)
        where = f"{call.method} {switch.url}{call.path}"[:200]
        try:
            url = _target(switch, call.path)
            options: dict[str, Any] = {
                "headers": _headers(switch, call),
                "timeout": time_limit(call.timeout_s),
            }
            if call.body is not None:
                sent = call.body
                options["data"] = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
            tls = self._trust.option(switch.url, switch.pin, insecure=False)
            session = self._session(safe=safe)
            if safe:
                attempt.leave()  # a read needs no record of whether it was sent
            bounded = BoundedSession(session, tls, attempt, call.size_max_bytes)
            async with bounded.request(call.method, url, **options) as answer:
                body = await answer.read()
        except (PortError, *FAILURES) as error:
            problem = port_error(where, error, attempt)
            note_heard(switch.url, problem)
            raise problem from None
        note_heard(switch.url, None)
        return Reply(answer.status, first_of_each(answer.headers.items()), body)

    def _session(self, *, safe: bool) -> aiohttp.ClientSession:
        if self._reads is None or self._fresh is None:
            shrink_tls_buffers()
            self._kept = open_session(per_host=READS_MAX, keep_alive=True)
            self._reads = unwatched(self._kept)
            self._fresh = open_session(per_host=1, keep_alive=False, unacked_s=UNACKED_S)
        return self._reads if safe else self._fresh


def _headers(switch: SwitchAddress, call: Call) -> dict[str, str]:
    headers = {"Accept": "application/json", **call.headers}
    if call.body is not None:
        headers.setdefault("Content-Type", "application/json")
    if switch.secret is not None:
        headers["Authorization"] = aiohttp.encode_basic_auth(
            switch.username, switch.secret.reveal()
        )
    return headers


def _target(switch: SwitchAddress, path: str) -> URL:
    """The address to ask: https if there is a password, and never another host than the switch."""
    base = URL(switch.url)
    if switch.secret is not None and base.scheme != "https":
        raise LoginRefused(f"{switch.url}: credentials are never sent over plain http")
    return own_url(switch.url, path)  # keeps an encoded slash as it is
