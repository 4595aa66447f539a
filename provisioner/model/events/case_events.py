"""Events of repair cases: diagnoses, remedies, requests to people, and the end of the case."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from provisioner.model.case import Ending, Origin, PartChange, RemedyKind, RemedyOutcome, Service
from provisioner.model.events.event import Event, EventKind
from provisioner.model.times.instant import Instant


class CaseEvent(Event):
    """Every event of a case names it."""

    case: str


class CaseOpened(CaseEvent):
    """A repair case was opened."""

    KIND: ClassVar = EventKind.CASE_OPENED
    origin: Origin
    reason: str
    service: Service
    by: str
    score: float = Field(description="The node's repeat-offender score.")


class CaseJoined(CaseEvent):
    """A later report joined an open case; `before` is the service that it had until then."""

    KIND: ClassVar = EventKind.CASE_JOINED
    origin: Origin
    reason: str
    by: str
    service: Service
    before: Service


class CaseDiagnosed(CaseEvent):
    """Evidence was collected and the most likely suspect named."""

    KIND: ClassVar = EventKind.CASE_DIAGNOSED
    suspect: str
    confidence: float
    rule: str
    evidence: int
    gaps: int
    effect: RemedyOutcome | str = Field(description="Of the remedy before, or empty.")


class CaseRemedyBegun(CaseEvent):
    """A remedy was begun."""

    KIND: ClassVar = EventKind.CASE_REMEDY
    remedy: str


class CaseRemedyEnded(CaseEvent):
    """A remedy was carried out, or failed with a problem."""

    KIND: ClassVar = EventKind.CASE_DONE
    remedy: RemedyKind
    problem: str


class CaseNeedsHardware(CaseEvent):
    """People were asked to work on the node."""

    KIND: ClassVar = EventKind.CASE_HARDWARE
    work: str


class CaseBundled(CaseEvent):
    """The evidence of a case was packed for a vendor."""

    KIND: ClassVar = EventKind.CASE_BUNDLE
    sha256: str
    bytes: int


class CaseIndicatorSwitched(CaseEvent):
    """The node's indicator LED was switched for the people who work on it."""

    KIND: ClassVar = EventKind.CASE_LED
    on: bool


class CaseTicketSent(CaseEvent):
    """A ticket was opened, updated or closed."""

    KIND: ClassVar = EventKind.CASE_TICKET
    ticket: str
    told: str


class CaseTicketRetried(CaseEvent):
    """A person asked for a ticket to be sent again."""

    KIND: ClassVar = EventKind.CASE_TELL
    by: str


class CaseDeferred(CaseEvent):
    """The drain of a tenant's node was deferred."""

    KIND: ClassVar = EventKind.CASE_DEFERRED
    until: Instant
    by: str


class CaseAccepted(CaseEvent):
    """A tenant agreed to the drain of its node."""

    KIND: ClassVar = EventKind.CASE_ACCEPTED
    by: str


class CaseReturned(CaseEvent):
    """People finished their work on the node."""

    KIND: ClassVar = EventKind.CASE_RETURNED
    by: str
    work: str


class CaseReturnNumbered(CaseEvent):
    """The vendor's return number (RMA) was recorded."""

    KIND: ClassVar = EventKind.CASE_RMA
    rma: str
    by: str


class CaseSpareReserved(CaseEvent):
    """A spare part was reserved."""

    KIND: ClassVar = EventKind.CASE_SPARE
    spare: str
    by: str


class CaseRetirementPlanned(CaseEvent):
    """A node's retirement was announced."""

    KIND: ClassVar = EventKind.CASE_RETIRING
    at: Instant
    by: str
    why: str
    disks: str


class CaseRetirementBegun(CaseEvent):
    """A node's retirement began."""

    KIND: ClassVar = EventKind.CASE_RETIRE
    disks: str


class CaseClosed(CaseEvent):
    """A case was closed."""

    KIND: ClassVar = EventKind.CASE_CLOSED
    ending: Ending
    why: str
    by: str = ""


class PartsCompared(CaseEvent):
    """The parts that came back from repair were compared with those from before."""

    KIND: ClassVar = EventKind.PARTS
    changes: tuple[PartChange, ...]
    unexpected: tuple[str, ...] = Field(description="Changed without having been asked for.")
    missing: tuple[str, ...] = Field(description="Asked for, and not changed.")
    wrong: tuple[str, ...] = Field(description="Of another model or part number than before.")
    unknown: tuple[str, ...] = Field(description="Without a serial before or after.")
    system_changed: bool = Field(description="The host itself is another one.")


class HostReplaced(CaseEvent):
    """Another machine took the place of a node's."""

    KIND: ClassVar = EventKind.REPLACED
    by: str
