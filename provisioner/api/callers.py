"""The rates and shares of each caller: how often it may ask, and how much at the same time.

A caller is the identity that its token proves, or its address where it has none. Two tokens of one
person are one caller. A request over a rate is answered 429 before anything is written, and
counted; a row of the journal per minute has the count (`callers.py`). Each daemon counts for
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from weakref import WeakValueDictionary

from aiohttp import web

from provisioner.access.rates import Rate
from provisioner.api.problem import Refused, build_refusal
from provisioner.model.access import Caller
from provisioner.model.events.request_events import CallerLimited
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.runtime import permit
from provisioner.runtime.admission import name_peer
from provisioner.runtime.bounded_listener import LOCAL
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Refusals over a rate, gathered: one row of the journal a minute for each caller and verb.
#
# So nothing is lost and the journal cannot be flooded. Failed logins without an identity are one
# row a minute for all addresses together. A caller that is limited in each of several minutes
# becomes a notice of the daemon in health, metrics and webhooks.


log = logging.getLogger(__name__)
PERIOD_S = 60.0
ROWS_MAX = 64  # rows a minute; further refusals are counted in one row
ADDRESSES_MAX = 16  # addresses that a row of failed logins names
NAMES_MAX = 1024  # callers that are watched for long limits
LONG_PERIODS = 5  # minutes in a row with a limit after which a notice is given
SUBJECT = "callers"  # seconds of the notice
CALLER_CHARACTERS = 120  # characters of a name that a row or notice shows

Write = Callable[[CallerLimited], Awaitable[None]]


class GatheredRows:
    """The gathered refusals of one process. `write` appends a row to the journal."""

    def __init__(self, write: Write, period_s: float = PERIOD_S) -> None:
        self._write = write
        self._period_s = period_s
        self._refused: Counter[tuple[str, str]] = Counter()
        self._logins: Counter[str] = Counter()
        self._limited: dict[str, str] = {}  # caller -> the limits it met in this period
        self._in_a_row: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, caller: str, verb: str) -> None:
        """Count a change that was refused because of a rate."""
        key = (caller[:CALLER_CHARACTERS], verb)
        if key not in self._refused and len(self._refused) >= ROWS_MAX:
            key = ("(others)", "(any)")
        self._refused[key] += 1
        self._begin()

    def add_login(self, peer: str) -> None:
        """Count a login that was refused because too many failed before it."""
        if peer not in self._logins and len(self._logins) >= ADDRESSES_MAX:
            peer = "(others)"
        self._logins[peer] += 1
        self._begin()

    def mark_limited(self, caller: str, kind: str) -> None:
        if caller in self._limited or len(self._limited) < NAMES_MAX:
            self._limited[caller[:CALLER_CHARACTERS]] = kind
        self._begin()

    async def write_rows(self) -> None:
        """Write the rows of the period that ends now; find callers that are limited for long."""
        refused = self._refused
        self._refused = Counter()
        logins = self._logins
        self._logins = Counter()
        limited = self._limited
        self._limited = {}
        self._in_a_row = {name: self._in_a_row.get(name, 0) + 1 for name in limited}
        permit.get_scope().notices[SUBJECT] = tuple(
            f"{name} has been limited for {count} minutes: {limited[name]}"
            for name, count in sorted(self._in_a_row.items())
            if count >= LONG_PERIODS
        )[:ADDRESSES_MAX]
        for (caller, verb), count in sorted(refused.items()):
            await self._write(CallerLimited(caller=caller, verb=verb, refused=count))
        if logins:
            await self._write(
                CallerLimited(verb="login", refused=logins.total(), by_address=dict(logins))
            )

    async def close(self) -> None:
        await end_tasks(self._task)
        with contextlib.suppress(StoreFailed):
            await self.write_rows()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="gathered refusals")

    async def _run(self) -> None:
        """Write each period's rows until a period was quiet."""
        while True:
            await asyncio.sleep(self._period_s)
            quiet = not (self._refused or self._logins or self._limited)
            try:
                await self.write_rows()
            except (StoreFailed, StaleWrite):
                log.warning("refusals over a rate could not be written; they are in metrics only")
            if quiet:
                return


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
        with self._hold("requests", caller, self._settings.api_requests_at_once):
            yield

    def hold_change(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
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
            permit.get_scope().counts["api_streams"] = self._held[total]
            try:
                yield
            finally:
                self._held[total] -= 1
                permit.get_scope().counts["api_streams"] = self._held[total]

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
        permit.get_scope().limited[kind] += 1
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
