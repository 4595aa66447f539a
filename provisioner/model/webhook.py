"""Webhooks: who is told of what happens, and what is still on its way to whom.

Rule: the secret of a webhook is in no record; it is sealed in the vault, under `secret_name`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record


class Webhook(Record):
    """One receiver. Times are seconds since the epoch."""

    name: str
    url: str
    kinds: tuple[str, ...] = ("*",)  # globs of kinds of the journal
    nodes: tuple[str, ...] = ("*",)  # globs of nodes; what concerns no node is ""
    tenant: str = ""  # only notices to this tenant, for a receiver of the tenant's own
    ca: str = ""  # PEM of the authorities that its certificate may be of; "": the system's
    made_at: float
    paused_why: str = ""  # "": it is sent to


class DeliveryState(StrEnum):
    """Where an event is on its way. One that arrived has no row any more."""

    PENDING = "pending"
    DEAD = "dead"  # tried as often as allowed; a person sends it again, or drops it


class Delivery(Record):
    """One row of the journal on its way to one webhook."""

    webhook: str
    seq: int
    node: str
    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    next_at: float = 0.0
    error: str = ""  # of the last try


class Standing(Record):
    """How a webhook is doing."""

    webhook: Webhook
    position: int  # of the journal: what is after it was not looked at yet
    pending: int
    dead: int
    delivered: int
    delivered_at: float


class Happened(Record):
    """One row of the journal, as it is told."""

    seq: int
    at: float
    kind: str
    node: str = ""
    detail: dict[str, object] = Field(default_factory=dict)
    sha256: str  # of the row: no other row has it, not even after a restore


class PostOutcome(Record):
    """How one try ended."""

    delivered: bool
    error: str = ""
    again_in_s: float = 0.0  # what the receiver asked for (Retry-After); 0: nothing
    gone: bool = False  # it wants no more (410)


def secret_name(webhook: str) -> str:
    """Under which name the vault has a webhook's secret."""
    return f"webhook/{webhook}"
