"""Messages to a ticket system: one message about one case's work, with the part and its place."""

from __future__ import annotations

from provisioner.model.base import Record

UNKNOWN = "unknown"


class WorkPlace(Record):
    """The way to a part. A value that no record has is "unknown"."""

    site: str
    pod: int
    scalable_unit: int
    rack: str
    unit: str  # position in its scalable unit; no list of ours has rack units
    node: str
    slot: str
    rail: str = UNKNOWN
    leaf_ports: tuple[str, ...] = ()


class WorkPart(Record):
    """The part to work on."""

    kind: str
    slot: str
    serial: str = UNKNOWN
    part_number: str = UNKNOWN
    vendor: str = UNKNOWN


class TicketMessage(Record):
    """One message to a ticket system. `key` identifies the ticket, `id` the message itself."""

    key: str
    id: str
    event: str  # "open" | "changed" | "closed"
    case: str
    title: str
    text: str
    work: str
    place: WorkPlace
    part: WorkPart | None = None
    confidence: float = 0.0
    evidence: tuple[str, ...] = ()
    rma: str = ""
    spare: str = ""
    led: str = ""
    bundle_sha256: str = ""
    bundle_name: str = ""
    ticket: str = ""  # the other system's id, once it is reported
