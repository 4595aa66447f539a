"""Hand each row of the journal to a site's own log systems, in order.

A row is handed over before the position moves past it, so that after a crash in between it is sent
again. A receiver that does not answer holds up no other one; its rows wait in the journal, and are
not pruned meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from provisioner.planning.watch.webhooks import wait_s
from provisioner.ports import Clock
from provisioner.ports.alerts import AuditExportRepository, AuditSink
from provisioner.settings import Settings

log = logging.getLogger(__name__)


class AuditExport:
    """The sender of the journal to all receivers of the settings."""

    def __init__(
        self,
        book: AuditExportRepository,
        sinks: Sequence[AuditSink],
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._book = book
        self._sinks = tuple(sinks)
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Serve each receiver by itself until cancelled."""
        await self._book.set_receivers([sink.receiver for sink in self._sinks])
        async with asyncio.TaskGroup() as serving:
            for sink in self._sinks:
                serving.create_task(self._serve(sink), name=f"audit export to {sink.receiver}")
            await asyncio.Event().wait()  # also where there is no receiver: a loop never ends

    async def _serve(self, sink: AuditSink) -> None:
        failures = 0
        while True:
            failures = await self.export(sink, failures)
            pause_s = self._settings.audit_export_s
            if failures:
                chance = random.random()  # noqa: S311 (spreads tries; guards nothing)
                most_s = max(pause_s, self._settings.audit_export_most_s)
                pause_s = wait_s(failures, pause_s, most_s, chance)
            await self._clock.sleep(pause_s)

    async def export(self, sink: AuditSink, failures: int = 0) -> int:
        """Hand over all rows that wait, until a try fails; return how many tries failed so far.

        After a failure fewer rows are tried at once: a receiver may refuse a request's length.
        """
        s = self._settings
        while True:
            most = max(1, s.audit_export_rows >> failures)
            position, rows = await self._book.list_rows(sink.receiver, most)
            if not rows:
                return failures
            outcome = await sink.send(rows, s.audit_export_timeout_s)
            now = self._clock.now()
            why = outcome.error
            if not outcome.taken:
                if not failures:
                    at = rows[0].seq
                    log.error("audit export: %s has not taken row %d: %s", sink.receiver, at, why)
                await self._book.record_failure(sink.receiver, why, now)
                return failures + 1
            if outcome.rejected:
                ends = (rows[0].seq, rows[-1].seq)
                log.error("audit export: %s refused rows of %d-%d: %s", sink.receiver, *ends, why)
            if failures:
                log.warning("audit export to %s goes on", sink.receiver)
            failures = 0
            await self._book.record_taken(sink.receiver, position, rows[-1].seq, outcome, now)
