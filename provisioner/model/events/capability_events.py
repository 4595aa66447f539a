"""Events of capabilities: decisions on them, and acts that were not sent for want of one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from provisioner.model.adoption.capability import Capability, Grant
from provisioner.model.events.event import Event, EventKind


class CapabilityDecided(Event):
    """A person granted or withdrew a capability over adopted nodes."""

    KIND: ClassVar = EventKind.CAPABILITY
    grant: Grant = Field(description="The decision.")


class ActWithheld(Event):
    """An act on an adopted node would have been sent, and its capability is not granted."""

    KIND: ClassVar = EventKind.WOULD
    act: str = Field(description="The act, as it would have been sent.")
    needs: Capability = Field(description="The capability that it needs.")
    why: str = Field(description="The capability that is lacking.")
