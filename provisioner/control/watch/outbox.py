"""Send events to webhooks: the journal is the outbox, and this module empties it.

An event is sent before it is marked as sent, so that after a crash in between it is sent again,
with the same id; and of one node only the oldest event is on its way, so that none overtakes
another. Of several daemons the leader alone goes through the journal, and each sends what its
shards of notices have (`planning.watch.shards.find_lane`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Mapping, Sequence

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.shards import Shards, end_work
from provisioner.model.alert import Signal
from provisioner.model.integrations.webhook import (
    Delivery,
    DeliveryState,
    JournalRow,
    PostOutcome,
    Webhook,
    WebhookStatus,
    secret_name,
)
from provisioner.planning.watch.shards import find_lane
from provisioner.planning.watch.webhooks import ALERT_ID, event_id, wait_s
from provisioner.ports import Clock, Credentials, Secret
from provisioner.ports.alerts import AuditSink
from provisioner.ports.webhooks import WebhookPosts
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings
from provisioner.store.repositories.journal_archives import SqlAuditExportRepository
from provisioner.store.repositories.webhooks import SqlWebhookRepository

# ------------------------------------------------------------------------------
# Hand each row of the journal to a site's own log systems, in order.
#
# A row is handed over before the position moves past it, so that after a crash in between it is
# sent again. A receiver that does not answer holds up no other one; its rows wait in the journal,
# and are not pruned meanwhile.


log = logging.getLogger(__name__)


class AuditExport:
    """The sender of the journal to all receivers of the settings."""

    def __init__(
        self,
        book: SqlAuditExportRepository,
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


LOOK_S = 1.0  # how late an event may be sent while nothing else is
ASKED_MAX_S = 86400.0  # a receiver cannot put us off for longer at once
SOURCE = "webhooks"  # of the alerts that we raise


class Outbox:
    """The outbox. `keeper` raises alerts of nodes; None: only the log and the journal show dead
    letters.
    """

    duty = "notices"

    def __init__(
        self,
        book: SqlWebhookRepository,
        posts: WebhookPosts,
        secrets: Credentials,
        clock: Clock,
        settings: Settings,
        keeper: AlertKeeper | None = None,
        shards: Shards | None = None,
    ) -> None:
        """`shards`: whose notices are sent here; None: all."""
        self._shards = shards
        if shards is not None:
            shards.attend(self)
        self._book = book
        self._posts = posts
        self._secrets = secrets
        self._clock = clock
        self._settings = settings
        self._keeper = keeper
        self._newest: Mapping[str, Webhook] = {}  # as `run` read them last
        # posts under way, by webhook and by what their event is about
        self._posting: dict[tuple[str, str], asyncio.Task[PostOutcome]] = {}

    async def run(self) -> None:
        """Serve each webhook by itself until cancelled, so that a slow one holds up no other."""
        sending: dict[str, asyncio.Task[int]] = {}
        try:
            while True:
                standings = await self._book.list()
                self._newest = {s.webhook.name: s.webhook for s in standings}
                for standing in standings:
                    name = standing.webhook.name
                    task = sending.get(name)
                    if task is not None and task.done():
                        task.result()  # a failed store ends the daemon
                        del sending[name]
                    if name not in sending and not standing.webhook.paused_why:
                        sending[name] = asyncio.create_task(self.serve(standing), name=name)
                await self._clock.sleep(LOOK_S)
        finally:
            await end_tasks(*sending.values())

    async def serve(self, standing: WebhookStatus) -> int:
        """Send all due events; return the number that arrived.

        It ends early where the webhook was changed or paused: `run` begins again with the new one.
        """
        webhook = standing.webhook
        arrived = 0
        secrets = await self._secrets_of(webhook)
        while self._newest.get(webhook.name, webhook) == webhook:
            if self._shards is None or self._shards.leads:
                await self._book.spread(webhook.name, self._settings.webhook_waiting_max)
            now = self._clock.now()
            deliveries = await self._list_due(webhook, now)
            if not deliveries:
                return arrived
            if not secrets:
                await self._book.pause(webhook.name, "its secret is lost: remove and add it", now)
                return arrived
            ended = await self._post(webhook, deliveries, secrets)
            arrived += sum(1 for outcome in ended if outcome.delivered)
            if any(outcome.gone for outcome in ended):
                log.error(
                    "webhook %s was removed by its receiver (HTTP 410): it is paused", webhook.name
                )
                await self._book.pause(webhook.name, "it answered 410 Gone", now)
                return arrived
            if not any(outcome.delivered for outcome in ended):
                return arrived  # it is asked again when its time has come
        return arrived

    async def leave(self, shards: Collection[int]) -> float:
        """End what is on its way for shards of notices that are given to peers (`shards.Duty`).

        What is cut off may have arrived: the peer sends it again, with the same id.
        """
        posting = self._posting.items()
        await end_work([task for (_, about), task in posting if find_lane(about) in shards])
        return self._clock.now()

    async def _list_due(
        self, webhook: Webhook, now: float
    ) -> Sequence[tuple[Delivery, JournalRow]]:
        most = self._settings.webhook_parallel
        if self._shards is None:
            return await self._book.list_due(webhook.name, now, most)
        most = max(1, most // self._shards.count)
        return await self._book.list_due(webhook.name, now, most, self._shards.lanes)

    async def _post(
        self,
        webhook: Webhook,
        deliveries: Sequence[tuple[Delivery, JournalRow]],
        secrets: Sequence[Secret],
    ) -> Sequence[PostOutcome]:
        """Send these at the same time, but for those whose shard was given away meanwhile."""
        lanes = None if self._shards is None else self._shards.lanes
        posts = {
            (webhook.name, d.node): asyncio.create_task(self._send(webhook, d, row, secrets))
            for d, row in deliveries
            if lanes is None or find_lane(d.node) in lanes
        }
        self._posting |= posts
        try:
            await asyncio.gather(*posts.values(), return_exceptions=True)
        finally:
            for key, task in posts.items():
                task.cancel()
                del self._posting[key]
        return [task.result() for task in posts.values() if not task.cancelled()]

    async def _secrets_of(self, webhook: Webhook) -> tuple[Secret, ...]:
        """The one that is coming and the one that is in force: both sign while it is exchanged."""
        name = secret_name(webhook.name)
        logins = (await self._secrets.pending(name), await self._secrets.current(name))
        return tuple(login[1] for login in logins if login is not None)

    async def _send(
        self, webhook: Webhook, delivery: Delivery, row: JournalRow, secrets: Sequence[Secret]
    ) -> PostOutcome:
        limit = self._settings.webhook_timeout_s
        outcome = await self._posts.post(webhook, row, secrets, limit)
        now = self._clock.now()
        if outcome.delivered:
            clean = await self._book.record_delivery(delivery, now)
            if clean and delivery.error:  # it may have been dead, and sent again by a person
                await self._alert(webhook, row, now, active=False)
        elif not outcome.gone:
            await self._failed(webhook, delivery, row, outcome, now)
        return outcome

    async def _failed(
        self,
        webhook: Webhook,
        delivery: Delivery,
        row: JournalRow,
        outcome: PostOutcome,
        now: float,
    ) -> None:
        s = self._settings
        tries = delivery.tries + 1
        chance = random.random()  # noqa: S311 (spreads tries; guards nothing)
        later = wait_s(tries, s.webhook_first_s, s.webhook_most_s, chance)
        later = max(later, min(outcome.again_in_s, ASKED_MAX_S))
        dead = tries >= s.webhook_tries
        changes = {
            "state": DeliveryState.DEAD if dead else DeliveryState.PENDING,
            "tries": tries,
            "next_at": now + later,
            "error": outcome.error,
        }
        await self._book.record_failure(delivery.model_copy(update=changes), now)
        if dead:
            arguments = (event_id(row), webhook.name, tries, outcome.error)
            log.error("event %s is a dead letter of webhook %s after %d tries: %s", *arguments)
            await self._alert(webhook, row, now, active=True, words=outcome.error)

    async def _alert(
        self, webhook: Webhook, row: JournalRow, now: float, *, active: bool, words: str = ""
    ) -> None:
        """Raise an alert on a node with undelivered events; it has no other effect."""
        if self._keeper is None or not row.node:
            return
        message = f"{webhook.name} did not receive event {event_id(row)}: {words}"
        signal = Signal(
            node=row.node,
            id=ALERT_ID,
            target=webhook.name,
            message=message if active else "it was delivered",
            source=SOURCE,
            at=now,
            active=active,
        )
        await self._keeper.report(row.node, [signal])
