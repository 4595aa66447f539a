"""Where a restore that is being settled is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from provisioner.model.node import Node
from provisioner.model.recovery import Difference
from provisioner.model.tenant import ReleaseProof


class RecoveryBook(Protocol):
    """Differences between rows and world, on disk when a method returns."""

    async def look_only(self) -> str:
        """Why nothing may be written to any device; "" if it may."""
        ...

    async def surveyed_at(self) -> float:
        """When every node was compared last; 0 before that."""
        ...

    async def differences(self) -> Sequence[Difference]:
        """All differences, those that wait for a word first."""
        ...

    async def put_survey(self, found: Sequence[Difference], now: float) -> None:
        """Replace the differences that wait for a word; settled ones stay."""
        ...

    async def settle(
        self, difference: Difference, node: Node | None = None, proof: ReleaseProof | None = None
    ) -> None:
        """Write the word, the node's new row, and its proof, in one transaction.

        Raises `StaleWrite` if it was settled, or the row changed, since it was read.
        """
        ...

    async def finish(self, by: str, now: float) -> None:
        """Let the daemons act again. Raises `StaleWrite` while anything waits for a word."""
        ...
