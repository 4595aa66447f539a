"""A data directory with one webhook, what sends, and a receiver: for tests of the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from given_events import event_of
from receiver import Receiver, receiving

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.outbox import Outbox
from provisioner.daemon.data import Data, open_data
from provisioner.integrations.webhooks.posted_events import secret_of
from provisioner.integrations.webhooks.webhook_posts import open_posts
from provisioner.model.integrations.webhook import Webhook, WebhookStatus, secret_name
from provisioner.ports import Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

SECRET = secret_of(b"k" * 32)
SETTINGS = Settings(
    site="here",
    webhook_tries=3,
    webhook_first_s=0.01,
    webhook_most_s=0.02,
    webhook_parallel=8,
    webhook_networks=("127.0.0.0/8",),  # where the receiver is
    webhook_plain=True,
)


class Site:
    """A data directory with one webhook, and what sends."""

    def __init__(self, data: Data, outbox: Outbox, receiver: Receiver) -> None:
        self.data, self.outbox, self.receiver = data, outbox, receiver
        self.book = data.store.webhooks

    async def happens(self, *rows: tuple[str, str, dict[str, Any]]) -> None:
        for kind, node, detail in rows:
            await self.data.store.journal.append(event_of(kind, node, detail), 1000.0)

    async def standing(self) -> WebhookStatus:
        return (await self.book.list())[0]

    async def empty(self) -> None:
        """Send until nothing waits any more."""
        async with asyncio.timeout(20):
            while True:
                await self.outbox.serve(await self.standing())
                if (await self.standing()).pending == 0:
                    return
                await asyncio.sleep(0.01)


def run(
    tmp_path: Path, scenario: Callable[[Site], Any], alerts: bool = False, **webhook: Any
) -> Any:
    async def main() -> Any:
        clock = WallClock()
        async with (
            receiving() as receiver,
            open_data(tmp_path / "data", 0.0) as data,
            open_posts(clock, SETTINGS) as posts,
        ):
            given = {"name": "billing", "url": receiver.url, "made_at": 1.0, **webhook}
            book = data.store.webhooks
            if not await book.list():
                await data.vault.put(secret_name("billing"), "billing", Secret(SECRET))
                await book.add(Webhook(**given), None, "ada")

            async def nobody(_operation: str) -> None:
                raise AssertionError("an alert of ours has no effect")

            keeper = AlertKeeper(data.store.alerts, data.store, clock, nobody)
            outbox = Outbox(book, posts, data.vault, clock, SETTINGS, keeper if alerts else None)
            return await scenario(Site(data, outbox, receiver))

    return asyncio.run(main())
