"""A receiver of the exported journal, and the reader of a BMC's event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from provisioner.model.integrations.audit_export import ExportOutcome
from provisioner.model.integrations.webhook import JournalRow
from provisioner.ports.wire import BmcAddress

# ------------------------------------------------------------------------------
# How far receivers have taken the exported journal, and a receiver itself.


class AuditSink(Protocol):
    """One receiver of rows; a failure is a return value."""

    @property
    def receiver(self) -> str: ...

    async def send(self, rows: Sequence[JournalRow], timeout_s: float) -> ExportOutcome:
        """Hand rows over; `taken` only if the receiver has proved that it read all of them."""
        ...

    async def close(self) -> None: ...


class EventStreams(Protocol):
    """Server-sent events of BMCs. Raises `PortError` subclasses only, also while reading."""

    def open(
        self, bmc: BmcAddress, path: str, last_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, Any]]]:
        """Return a stream of (event id, JSON document) from after `last_id`, until it breaks."""
        ...

    async def close(self) -> None: ...
