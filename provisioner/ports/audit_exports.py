"""How far receivers have taken the exported journal, and a receiver itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow


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
