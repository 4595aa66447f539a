"""The export of the journal: how far a receiver has taken it, and the result of one try."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# One message of a machine's system log: as it came, and as it is stored; a line of its console.


# RFC 5424, tables 1 and 2
FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron"),
    *("authpriv", "ftp", "ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")


class SyslogMessage(Record):
    """A message in the words of its sender, which may lie: printable text, within bounds."""

    facility: str = Field(description="Part of the system: kern, daemon, local7 and so on.")
    severity: str = Field(description="emerg, alert, crit, err, warning, notice, info or debug.")
    sent_at: InstantOrNone = Field(
        0.0, description="Time that the sender wrote; null where it has no year or no zone."
    )
    program: str = Field("", description="Program that wrote it, as the sender states it.")
    text: str = Field("", description="The message: printable text, without secrets.")


class SyslogLine(SyslogMessage):
    """A message as it is stored. `seq` grows by one with each message of a node."""

    seq: int = Field(description="Number of the line, which grows with each line of the node.")
    at: Instant = Field(description="When it was received, by the daemon's clock.")


class ConsoleLine(Record):
    """One line as it is kept: printable text, without secrets. `seq` grows with each line."""

    seq: int
    at: Instant  # when it was received, seconds since the epoch
    text: str


# ------------------------------------------------------------------------------
# Messages to a ticket system: one message about one case's work, with the part and its place.


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


class ExportStatus(Record):
    """One receiver. Times are Unix seconds; 0: never."""

    receiver: str  # "syslog", "otlp"
    position: int  # the last row that it has taken
    waiting: int  # rows of the journal after that
    rejected: int = 0  # rows that it refused for good
    taken_at: float = 0.0
    failing_since: float = 0.0  # 0: the last try went well
    error: str = ""  # of the last try that failed, or of the last refused rows


class ExportOutcome(Record):
    """The result of one try to hand rows over."""

    taken: bool  # the receiver has all rows, but for those that it refused
    rejected: int = 0  # rows that it refused, and must not be sent again
    error: str = ""
