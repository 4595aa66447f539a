"""The store of webhooks and their pending deliveries, and the poster of one event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.integrations.webhook import (
    Delivery,
    JournalRow,
    PostOutcome,
    Webhook,
    WebhookStatus,
)
from provisioner.ports.wire import Secret


class WebhookRepository(Protocol):
    """Stored webhooks and deliveries. Every method is one short transaction, on disk when it
    returns.
    """

    async def list(self) -> Sequence[WebhookStatus]: ...
    async def spread(self, name: str, room: int) -> int:
        """Make deliveries of the next rows of the journal; return how many are now pending.

        At most `room` deliveries wait for one webhook; the journal itself is the remainder of the
        queue.
        """
        ...

    async def list_due(
        self, name: str, now: float, most: int
    ) -> Sequence[tuple[Delivery, JournalRow]]:
        """The deliveries that may be sent now: for each node, its oldest pending event only."""
        ...

    async def record_delivery(self, delivery: Delivery, now: float) -> bool:
        """Record a delivery; return True if no event of its node is dead for this webhook."""
        ...

    async def record_failure(self, delivery: Delivery, now: float) -> None:
        """Record a failed attempt: `delivery` as it is now. A dead one is recorded in the
        journal.
        """
        ...

    async def pause(self, name: str, why: str, now: float) -> None:
        """Stop sending to a webhook, for the reason `why`; "" resumes it."""
        ...


class WebhookPosts(Protocol):
    """Posts one event; a failure is a return value."""

    async def post(
        self, webhook: Webhook, row: JournalRow, secrets: Sequence[Secret], timeout_s: float
    ) -> PostOutcome: ...

    async def close(self) -> None: ...
