"""Where webhooks and what is on its way to them are kept, and how one event is posted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.webhook import Delivery, Happened, PostOutcome, Standing, Webhook
from provisioner.ports.wire import Secret


class WebhookBook(Protocol):
    """Every method is one short transaction, on disk when it returns."""

    async def webhooks(self) -> Sequence[Standing]: ...
    async def spread(self, name: str, room: int) -> int:
        """Look at the next rows of the journal; how many are there now to be delivered.

        At most `room` deliveries wait for one webhook: the journal itself is the rest of the queue.
        """
        ...

    async def due(self, name: str, now: float, most: int) -> Sequence[tuple[Delivery, Happened]]:
        """What may be sent now: of each node its oldest pending event only."""
        ...

    async def delivered(self, delivery: Delivery, now: float) -> bool:
        """It arrived. True if nothing of its node is dead for this webhook."""
        ...

    async def failed(self, delivery: Delivery, now: float) -> None:
        """A try failed: `delivery` as it is now. A dead one is told of in the journal."""
        ...

    async def pause(self, name: str, why: str, now: float) -> None:
        """Nothing is sent to it from now on; "": it is again."""
        ...


class WebhookPosts(Protocol):
    """Sends one event; a failure is a value."""

    async def post(
        self, webhook: Webhook, row: Happened, secrets: Sequence[Secret], timeout_s: float
    ) -> PostOutcome: ...

    async def close(self) -> None: ...
