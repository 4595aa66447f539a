"""Where alerts are kept, and how a BMC's stream of events is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from provisioner.model.alert import Alert, Override, Subscription
from provisioner.ports.wire import BmcAddress


class AlertBook(Protocol):
    """Alerts, overrides and subscriptions, on disk when a method returns."""

    async def alerts(self, node: str = "") -> Sequence[Alert]:
        """All alerts of a node; without a node, those of all nodes that stand."""
        ...

    async def put_alerts(
        self,
        changed: Sequence[Alert],
        journal: Sequence[tuple[str, str, Mapping[str, Any]]],
        now: float,
    ) -> None:
        """Write alerts and journal rows (kind, node, detail) in one transaction."""
        ...

    async def overrides(self, node: str = "") -> Sequence[Override]: ...
    async def put_override(self, override: Override) -> None: ...
    async def drop_override(self, override: Override) -> None: ...
    async def subscriptions(self) -> Sequence[Subscription]: ...
    async def put_subscription(self, subscription: Subscription) -> None: ...
    async def drop_subscription(self, subscription_id: str) -> None: ...

    async def received_events(self, node: str, bmc: str) -> Sequence[str]:
        """Identities of the newest events that were taken in from this BMC, the newest last."""
        ...

    async def put_received_events(self, node: str, bmc: str, identities: Sequence[str]) -> None:
        """Replace them."""
        ...


class EventStreams(Protocol):
    """Server-sent events of BMCs. Raises `PortError` subclasses only, also while reading."""

    def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, Any]]]:
        """A stream of (event id, JSON document) from after `last_id`, until it breaks."""
        ...

    async def close(self) -> None: ...
