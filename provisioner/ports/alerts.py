"""The store of alerts, and the reader of a BMC's event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from provisioner.model.alert import Alert, Override, Subscription
from provisioner.model.events.event import Event
from provisioner.ports.wire import BmcAddress


class AlertRepository(Protocol):
    """Alerts, overrides and subscriptions, on disk when a method returns."""

    async def list(self, node: str = "") -> Sequence[Alert]:
        """Return all alerts of a node; without a node, the active alerts of all nodes."""
        ...

    async def put(
        self,
        changed: Sequence[Alert],
        events: Sequence[Event],
        now: float,
    ) -> None:
        """Write alerts and events in one transaction."""
        ...

    async def list_overrides(self, node: str = "") -> Sequence[Override]: ...
    async def put_override(self, override: Override, event: Event, now: float) -> None:
        """Store an override and its event in one transaction."""
        ...

    async def drop_override(self, override: Override) -> None: ...
    async def list_subscriptions(self) -> Sequence[Subscription]: ...
    async def put_subscription(self, subscription: Subscription) -> None: ...
    async def drop_subscription(self, subscription_id: str) -> None: ...

    async def list_received(self, node: str, bmc: str) -> Sequence[str]:
        """Return the identities of the newest events accepted from this BMC, the newest last."""
        ...

    async def put_received(self, node: str, bmc: str, identities: Sequence[str]) -> None:
        """Replace the identities of the newest events of this BMC."""
        ...


class EventStreams(Protocol):
    """Server-sent events of BMCs. Raises `PortError` subclasses only, also while reading."""

    def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, Any]]]:
        """Return a stream of (event id, JSON document) from after `last_id`, until it breaks."""
        ...

    async def close(self) -> None: ...
