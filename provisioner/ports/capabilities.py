"""The store of the capabilities that people granted over adopted nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.adoption.capability import Grant


class GrantRepository(Protocol):
    """All decisions, one for each scope, name and capability."""

    @property
    def newest(self) -> Sequence[Grant]:
        """Return the decisions that were last read or written here, without reading again."""
        ...

    async def list(self) -> Sequence[Grant]: ...

    async def put(self, grants: Sequence[Grant], now: float) -> None:
        """Store decisions with their events in one transaction."""
        ...
