"""The rates and shares of each caller: how often it may ask, and how much at the same time.

A caller is the identity that its token proves, or its address where it has none. Two tokens of one
person are one caller. A request over a rate is answered 429 before anything is written, and
counted; a row of the journal per minute has the count (`gathered_rows.py`). Each daemon counts for
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from weakref import WeakValueDictionary

from aiohttp import web

from provisioner.access.rates import Rate
from provisioner.api.gathered_rows import GatheredRows
from provisioner.api.problem import Refused, build_refusal
from provisioner.model.access import Caller
from provisioner.runtime import process_scope
from provisioner.runtime.bounded_listener import LOCAL, name_peer
from provisioner.settings import Settings

MINUTE_S = 60.0
HOUR_S = 3600.0
ROWS_OF_CHANGE = 2  # rows of the journal: the request and its result
TOKENS_MAX = 4096  # digests of recently valid tokens
HEAVY_AT_ONCE = 2  # answers of one caller that are computed at the same time
AGENT_MAX = 200  # characters of a User-Agent in the journal
BUSY_S = 5.0  # seconds until a caller over its share may ask again


class Callers:
    """The counters of all callers; one per process."""

    def __init__(
        self, settings: Settings, gathered: GatheredRows, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._gathered = gathered
        self._now = now
        self._requests = Rate(settings.api_requests_per_min, MINUTE_S)
        self._strangers = Rate(settings.api_requests_per_min, MINUTE_S)
        self._changes = Rate(settings.api_changes_per_min, MINUTE_S)
        self._rows = Rate(settings.api_audit_rows_per_h, HOUR_S)
        self._failures = Rate(settings.api_failed_logins_per_min, MINUTE_S)
        self._good: OrderedDict[str, None] = OrderedDict()
        self._held: Counter[tuple[str, str]] = Counter()  # (kind, caller)
        self._heavy: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def charge_request(self, caller: Caller) -> None:
        """Count a request of an identified caller. Raises Refused over its rate."""
        self._charge(self._requests, "requests", name_caller(caller))

    def charge_stranger(self, request: web.Request) -> None:
        """Count a request that needs no token, or came without one."""
        self._charge(self._strangers, "requests", f"address {_peer(request)}")

    def charge_change(self, caller: Caller, verb: str) -> None:
        """Count a change, and the rows that it writes. Over the rate it is refused and gathered."""
        name = name_caller(caller)
        now = self._now()
        wait_s = self._rows.wait_s(name, now, ROWS_OF_CHANGE)
        if wait_s:
            self._gathered.add(name, verb)
            raise self._over("audit rows", name, self._rows, wait_s)
        wait_s = self._changes.take_permissions(name, now)
        if wait_s:
            self._gathered.add(name, verb)
            raise self._over("changes", name, self._changes, wait_s)
        self._rows.take_permissions(name, now, ROWS_OF_CHANGE)

    def check_login(self, request: web.Request, authorization: str) -> None:
        """Refuse a login from an address with too many failed ones, before the token is read.

        A recently valid token is let through: callers behind one proxy share an address.
        """
        peer = _peer(request)
        wait_s = self._failures.wait_s(peer, self._now())
        if wait_s and _digest(authorization) not in self._good:
            self._gathered.add_login(peer)
            raise self._over("failed logins", f"address {peer}", self._failures, wait_s)

    def record_login(self, request: web.Request, authorization: str, *, good: bool) -> None:
        """Record the result of a login."""
        if not good:
            self._failures.take_permissions(_peer(request), self._now())
            self._good.pop(_digest(authorization), None)
            return
        self._good[_digest(authorization)] = None
        self._good.move_to_end(_digest(authorization))
        if len(self._good) > TOKENS_MAX:
            self._good.popitem(last=False)

    @contextlib.contextmanager
    def hold_request(self, caller: Caller) -> Iterator[None]:
        """Hold one of the requests that a caller may have under way."""
        with self._hold("requests", caller, self._settings.api_requests_at_once):
            yield

    def hold_change(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        """Hold one of the changes that a caller may have under way."""
        return self._hold("changes", caller, self._settings.api_changes_at_once)

    @contextlib.contextmanager
    def hold_stream(self, caller: Caller) -> Iterator[None]:
        """Hold one of the event streams: of the caller's, and of all together."""
        with self._hold("event streams", caller, self._settings.api_streams_per_caller):
            total = ("all", "event streams")
            if self._held[total] >= self._settings.api_streams_max:
                self._count("streams in total", name_caller(caller))
                refused = build_refusal(
                    503, "busy", "Too many event streams are open", "Ask again in a minute."
                )
                refused.headers["Retry-After"] = "60"
                raise refused
            self._held[total] += 1
            process_scope.get_scope().counts["api_streams"] = self._held[total]
            try:
                yield
            finally:
                self._held[total] -= 1
                process_scope.get_scope().counts["api_streams"] = self._held[total]

    @contextlib.asynccontextmanager
    async def hold_heavy(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for a turn among the caller's own expensive answers."""
        name = name_caller(caller)
        turn = self._heavy.get(name)
        if turn is None:
            turn = self._heavy[name] = asyncio.Semaphore(HEAVY_AT_ONCE)
        async with turn:
            yield

    async def close(self) -> None:
        """Write the gathered refusals."""
        await self._gathered.close()

    @contextlib.contextmanager
    def _hold(self, kind: str, caller: Caller, most: int) -> Iterator[None]:
        name = name_caller(caller)
        key = (kind, name)
        if self._held[key] >= most:
            self._count(f"{kind} at once", name)
            unblock = f"Wait until one of yours has ended; {most} may be under way at once."
            refused = build_refusal(429, "rate", f"You have too many {kind} under way", unblock)
            refused.headers["Retry-After"] = f"{BUSY_S:.0f}"
            raise refused
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def _charge(self, rate: Rate, kind: str, name: str) -> None:
        wait_s = rate.take_permissions(name, self._now())
        if wait_s:
            raise self._over(kind, name, rate, wait_s)

    def _over(self, kind: str, name: str, rate: Rate, wait_s: float) -> Refused:
        self._count(kind, name)
        seconds = math.ceil(wait_s)
        period = "an hour" if rate.period_s == HOUR_S else "a minute"
        unblock = (
            f"Wait {seconds} s (Retry-After), then ask again; ask less often. {rate.count} {kind} "
            f"{period} are allowed: the setting {SETTINGS[kind]} of the daemon."
        )
        refused = build_refusal(429, "rate", f"Too many {kind} from {name}", unblock)
        refused.headers["Retry-After"] = str(seconds)
        return refused

    def _count(self, kind: str, name: str) -> None:
        process_scope.get_scope().limited[kind] += 1
        self._gathered.mark_limited(name, kind)


SETTINGS: Mapping[str, str] = {
    "requests": "api_requests_per_min",
    "changes": "api_changes_per_min",
    "audit rows": "api_audit_rows_per_h",
    "failed logins": "api_failed_logins_per_min",
}


def name_caller(caller: Caller) -> str:
    """Return the name under which an identity is counted; a tenant's never equals the staff's."""
    return f"{caller.tenant}/{caller.subject}" if caller.tenant else caller.subject


def name_client(request: web.Request) -> str:
    """Return the address of a client; at the socket in the file system: this machine."""
    return request.remote or LOCAL


def read_agent(headers: Mapping[str, str]) -> str:
    """Return the program that a client claims to be: printable, and short; no proof of anything."""
    text = headers.get("User-Agent", "")
    return "".join(c for c in text if c.isprintable())[:AGENT_MAX]


def _peer(request: web.Request) -> str:
    return name_peer(request.remote or "")


def _digest(authorization: str) -> str:
    return hashlib.sha256(authorization.encode(errors="surrogatepass")).hexdigest()
