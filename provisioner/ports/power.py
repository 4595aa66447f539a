"""Power distribution units: outlets that are read and switched."""

from __future__ import annotations

from typing import Protocol

from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker


class Pdu(Protocol):
    """One PDU. Switching is absolute, so that a request may be repeated.

    A refusal of the PDU is a `Blocker`; raises `PortError` subclasses only.
    """

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the PDU reports now."""
        ...

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        """Request a state; only a later reading shows that it is reached."""
        ...
