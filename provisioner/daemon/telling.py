"""Tells the log what happens to the site: each change of state, refusal and alert, as it is stored.

The journal is followed, not the code that writes it: a line is there only for what is stored, and
of several daemons the one that leads tells it, so that each event is told once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from provisioner.planning.watch.journal_lines import LogLine, describe_row, format_fields
from provisioner.ports import Clock, StoreFailed
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.repositories.journal_archives import SqlJournalRepository

log = logging.getLogger("provisioner.site")

LOOK_S = 2.0  # between two looks at the journal
LOOK_SHARED_S = 15.0  # of a database that several daemons ask over a network
PAGE = 500  # rows of one look
LINES_PER_LOOK = 60  # lines that warn come first; a person reads no more


@asynccontextmanager
async def tell_events(
    journal: SqlJournalRepository, clock: Clock, look_s: float, leads: Callable[[], bool]
) -> AsyncIterator[None]:
    """Tell the log what is stored from now on, while inside."""
    after, _ = await journal.get_head()
    teller = Teller(journal, after, leads)
    task = asyncio.create_task(teller.run(clock, look_s), name="log of events")
    try:
        yield
    finally:
        await end_tasks(task)


class Teller:
    """Follows the journal from `after` on. `leads` says whether this daemon is the one to tell."""

    def __init__(
        self, journal: SqlJournalRepository, after: int, leads: Callable[[], bool]
    ) -> None:
        self._journal = journal
        self._after = after
        self._leads = leads

    async def run(self, clock: Clock, look_s: float) -> None:
        """Tell until cancelled, or until the store fails, which ends the daemon."""
        with suppress(StoreFailed):
            while True:
                await self.look()
                await clock.sleep(look_s)

    async def look(self) -> None:
        """Tell what was stored since the last look, at most `LINES_PER_LOOK` lines of it."""
        rows = await self._journal.list(self._after, PAGE)
        if not rows:
            return
        self._after = int(rows[-1]["seq"])
        if not self._leads():
            return
        lines = [line for row in rows for line in describe_row(row)]
        told = choose_lines(lines, LINES_PER_LOOK)
        for line in told:
            log.log(logging.WARNING if line.warns else logging.INFO, "%s", line.text)
        if len(told) < len(lines):
            omitted = {"lines": len(lines) - len(told), "all": "provisioner audit list"}
            log.warning("%s", format_fields({"event": "omitted", **omitted}))


def choose_lines(lines: list[LogLine], most: int) -> list[LogLine]:
    """Return at most `most` lines in their order: those that warn are kept before all others."""
    if len(lines) <= most:
        return lines
    order = sorted(range(len(lines)), key=lambda n: (not lines[n].warns, n))
    return [lines[n] for n in sorted(order[:most])]
