"""Refusals over a rate, gathered: one row of the journal a minute for each caller and verb.

So nothing is lost and the journal cannot be flooded. Failed logins without an identity are one row
a minute for all addresses together. A caller that is limited in each of several minutes becomes a
notice of the daemon in health, metrics and webhooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from provisioner.model.events.request_events import CallerLimited
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.runtime import process_scope

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
        """Record that a caller met a limit in this period."""
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
        process_scope.get_scope().notices[SUBJECT] = tuple(
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
        """Write the remaining rows."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
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
