"""Records of artifact files: those that people put into the store, and those of external servers.

A digest counts for the validators, or for the length and time of change, that it was read with.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant

IMAGE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}$"  # of a file; none of them leaves a directory
NOTE_MAX = 300  # characters


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


class StoredImage(Record):
    """A file of the artifact store that a person uploaded or described."""

    name: str = Field(pattern=IMAGE_NAME, description="Name of the file.")
    sha256: str = Field(description="SHA-256 of its bytes, as they were read.")
    size_bytes: int = Field(ge=0, description="Length in bytes.")
    modified_ns: int = Field(
        description="Time of the file's last change when it was read, in ns since the epoch."
    )
    note: str = Field("", max_length=NOTE_MAX, description="Description, in a sentence.")
    by: str = Field("", description="Person or program that changed it last.")
    at: Instant = Field(description="Time of the last change.")
    generation: int = Field(1, ge=0, description="Number of the change, from 1; 0: not recorded.")
