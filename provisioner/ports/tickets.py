"""Ticket systems that assign work to people: a service desk's API, a webhook, a mailbox.

A message has a key, which it keeps when it is sent again. A system that receives two messages with
one key has one ticket; a sender that does not know whether a message arrived checks first, where
the system can be queried.
"""

from __future__ import annotations

from typing import Protocol

from provisioner.model.base import Record
from provisioner.model.integrations.audit_export import TicketMessage


class TicketRef(Record):
    """A ticket's identity in the other system."""

    id: str
    url: str = ""


class Looked(Record):
    """The arrival of a message. `certain` False: this system cannot be queried."""

    certain: bool
    ref: TicketRef | None = None


class TicketSystem(Protocol):
    """One adapter. Both methods raise `PortError`, and nothing else."""

    @property
    def name(self) -> str:
        """Return the name for display: "webhook", "email"."""
        ...

    async def look(self, key: str) -> Looked: ...

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Send one message. `bundle`: the evidence archive, b"" if there is none."""
        ...
