"""The export of the journal: how far a receiver has taken it, and the result of one try."""

from __future__ import annotations

from provisioner.model.base import Record


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
