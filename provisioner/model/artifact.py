"""Records of a file on an external server: its HTTP validators, and its digest when it was read."""

from __future__ import annotations

from provisioner.model.base import Record


class Validators(Record):
    """Values that change with a file, so that it need not be read again (RFC 9110, section 8.8).

    `length` is in bytes; None: the server does not send it. `settled`: when the file was requested,
    it was older than the resolution of its date, so that a later change must change the date.
    """

    etag: str = ""
    modified: str = ""
    length: int | None = None
    settled: bool = False


class FileReading(Record):
    """A file of an external server that was read completely: its digest and its validators then."""

    validators: Validators
    sha256: str
    at: float  # seconds since the epoch
