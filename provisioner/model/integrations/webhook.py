"""Webhooks: the receivers of journal events, and the deliveries that are still pending.

No record contains the secret of a webhook; it is sealed in the vault under `secret_name`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record


class Webhook(Record):
    """One receiver. Times are Unix seconds."""

    name: str
    url: str
    kinds: tuple[str, ...] = ("*",)  # globs of kinds of the journal
    nodes: tuple[str, ...] = ("*",)  # globs of nodes; an event that concerns no node has ""
    tenant: str = ""  # only notices to this tenant, for a receiver that the tenant runs
    ca: str = ""  # PEM of the authorities that may sign its certificate; "": the system's
    made_at: float
    paused_why: str = ""  # "": events are sent to it


class DeliveryState(StrEnum):
    """The state of a delivery. A delivered event has no row any more."""

    PENDING = "pending"
    DEAD = "dead"  # all attempts failed; a person sends it again, or drops it


class Delivery(Record):
    """One row of the journal on its way to one webhook."""

    webhook: str
    seq: int
    node: str
    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    next_at: float = 0.0
    error: str = ""  # of the last attempt


class WebhookStatus(Record):
    """The delivery status of a webhook."""

    webhook: Webhook
    position: int  # sequence number in the journal up to which events were considered
    pending: int
    dead: int
    delivered: int
    delivered_at: float


class JournalRow(Record):
    """One row of the journal, as sent to a receiver."""

    seq: int
    at: float
    kind: str
    node: str = ""
    detail: dict[str, object] = Field(default_factory=dict)
    sha256: str  # of the row: unique, even after a restore


class PostOutcome(Record):
    """The result of one attempt."""

    delivered: bool
    error: str = ""
    again_in_s: float = 0.0  # the receiver's Retry-After; 0: none
    gone: bool = False  # it wants no more events (410)


def secret_name(webhook: str) -> str:
    """Return the name under which the vault has a webhook's secret."""
    return f"webhook/{webhook}"
