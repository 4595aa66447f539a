"""The store of a restore that is being settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from provisioner.model.node import Node
from provisioner.model.port_label import DatabaseMark
from provisioner.model.recovery import Difference
from provisioner.model.tenant import ReleaseProof


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
