"""What an outside server says of a file that it offers, and what we saw of it ourselves."""

from __future__ import annotations

from provisioner.model.base import Record


class Validators(Record):
    """What tells one state of a file from another without reading it (RFC 9110, section 8.8).

    `length` is in bytes; None: the server does not say. `settled`: the file was older than the
    grain of its date when it was asked for, so that a later change must show.
    """

    etag: str = ""
    modified: str = ""
    length: int | None = None
    settled: bool = False


class Sight(Record):
    """A file of an outside server that was read whole: its digest, and what it was known by."""

    validators: Validators
    sha256: str
    at: float  # seconds since the epoch
