"""The store of alerts, and the reader of a BMC's event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from provisioner.model.alert import Alert, Override, Subscription
from provisioner.model.events.event import Event
from provisioner.model.host_filter import DatabaseMark
from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow
from provisioner.model.node import Node
from provisioner.model.recovery import Difference
from provisioner.model.tenant import ReleaseProof
from provisioner.ports.wire import BmcAddress

# ------------------------------------------------------------------------------
# The store of a restore that is being settled.


class RecoveryRepository(Protocol):
    """Stored differences between rows and switches, on disk when a method returns."""

    async def get_look_only(self) -> str:
        """Return why no device may be written to; "" if writing is allowed."""
        ...

    async def get_database_mark(self) -> DatabaseMark | None:
        """Return the database's identity and life; None before a daemon has opened it."""
        ...

    async def begin_look_only(self, why: str, now: float) -> None:
        """Forbid writes to devices until all differences are settled."""
        ...

    async def get_surveyed_at(self) -> float:
        """Return when all nodes were last compared; 0 before that."""
        ...

    async def list_differences(self) -> Sequence[Difference]:
        """Return all differences, those without a decision first."""
        ...

    async def put_survey(self, found: Sequence[Difference], now: float) -> None:
        """Replace the differences without a decision; settled ones stay."""
        ...

    async def settle(
        self, difference: Difference, node: Node | None = None, proof: ReleaseProof | None = None
    ) -> None:
        """Store the decision, the node's new row, and its proof, in one transaction.

        Raises `StaleWrite` if it was settled, or the row has changed, since it was read.
        """
        ...

    async def finish(self, by: str, now: float) -> None:
        """Allow the daemons to act again. Raises `StaleWrite` while a difference has no
        decision.
        """
        ...

    async def list_adopted_ports(self) -> Mapping[str, str]:
        """Return the ports without a node that a person left in a customer's VRF, with that VRF.

        Names are "leaf/interface". Such a decision outlives `finish`, because the watch would
        otherwise fence the port.
        """
        ...

    async def drop_adopted(self, name: str, now: float) -> None:
        """Drop the decision on one of `adopted_ports`, which is in another network by now."""
        ...


# ------------------------------------------------------------------------------
# How far receivers have taken the exported journal, and a receiver itself.


class AuditExportRepository(Protocol):
    """Stored positions. Every method is one short transaction, on disk when it returns."""

    async def set_receivers(self, receivers: Collection[str]) -> None:
        """Keep the positions of these receivers alone; a new one begins at the oldest row."""
        ...

    async def list(self) -> Sequence[ExportStatus]: ...

    async def list_rows(self, receiver: str, most: int) -> tuple[int, Sequence[JournalRow]]:
        """Return a receiver's position, and the next rows after it, the oldest first."""
        ...

    async def record_taken(
        self, receiver: str, position: int, last: int, outcome: ExportOutcome, now: float
    ) -> None:
        """Move the position to `last`, unless another daemon moved it from `position`."""
        ...

    async def record_failure(self, receiver: str, error: str, now: float) -> None: ...


class AuditSink(Protocol):
    """One receiver of rows; a failure is a return value."""

    @property
    def receiver(self) -> str: ...

    async def send(self, rows: Sequence[JournalRow], timeout_s: float) -> ExportOutcome:
        """Hand rows over; `taken` only if the receiver has proved that it read all of them."""
        ...

    async def close(self) -> None: ...


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
