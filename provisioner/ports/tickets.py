"""What we need of a system that gives work to people: a desk's API, a webhook, a mailbox.

Rule: a message has a key that it keeps when it is sent again. A system that is told twice under one
key has one ticket; whoever does not know whether a message arrived looks first, where one can.
"""

from __future__ import annotations

from typing import Protocol

from provisioner.model.base import Record
from provisioner.model.ticket import TicketMessage


class TicketRef(Record):
    """A ticket as the other system names it."""

    id: str
    url: str = ""


class Looked(Record):
    """Whether a message has arrived. `certain` False: this system cannot be asked."""

    certain: bool
    ref: TicketRef | None = None


class TicketSystem(Protocol):
    """One adapter. Both methods raise `PortError`, and nothing else."""

    @property
    def name(self) -> str:
        """As it is shown: "webhook", "email"."""
        ...

    async def look(self, key: str) -> Looked:
        """Whether the message with this key has arrived."""
        ...

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """One message. `bundle`: the evidence archive, b"" if there is none."""
        ...
