"""The poster of one event to a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
from provisioner.ports.wire import Secret


class WebhookPosts(Protocol):
    """Posts one event; a failure is a return value."""

    async def post(
        self, webhook: Webhook, row: JournalRow, secrets: Sequence[Secret], timeout_s: float
    ) -> PostOutcome: ...

    async def close(self) -> None: ...
