"""One message of a machine's system log: as it came, and as it is stored."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

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
