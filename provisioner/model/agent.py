"""Records of one boot of a node into the maintenance ramdisk and of the agent that runs there."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import Field, field_validator

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# Records of artifact files: those that people put into the store, and those of external servers.
#
# A digest counts for the validators, or for the length and time of change, that it was read with.


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


# ------------------------------------------------------------------------------
# The manifest of an air-gap bundle: the signed list of its files.


MANIFEST = "bundle.dsse.json"  # the first member of the archive
MANIFEST_PAYLOAD = "application/vnd.provisioner.bundle+json"
FOLDERS = ("matrix", "artifacts", "wheels", "references")
FILES_MAX = 4096
_NAME = re.compile(rf"(?:{'|'.join(FOLDERS)})/[A-Za-z0-9_][A-Za-z0-9._+~-]{{0,199}}")


class BundleFile(Record):
    path: str  # "artifacts/x.fwpkg"
    size: int = Field(ge=0)  # bytes
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @field_validator("path")
    @classmethod
    def _one_folder_and_a_name(cls, path: str) -> str:
        if not _NAME.fullmatch(path):
            raise ValueError("a file's path is a folder of a bundle and a plain name")
        return path


class ReferenceKind(StrEnum):
    RIM = "rim"  # a manifest of golden values
    OCSP = "ocsp"  # an answer about one certificate


class BundleReference(Record):
    """A reference manifest or an OCSP answer among the files, and until when it counts."""

    path: str = Field(max_length=256)
    kind: ReferenceKind
    subject: str = Field(max_length=200)  # product and version, or the certificate's serial in hex
    since: InstantOrNone = 0.0  # of an answer; 0: not stated
    until: InstantOrNone = 0.0  # end of the answer, or of the manifest's signer; 0: not known


class BundleManifest(Record):
    """The files of an archive, in their order in it."""

    version: int = Field(1, ge=1, le=1)
    site: str = Field(max_length=200)
    made_at: Instant  # seconds since the epoch
    releases: tuple[str, ...] = ()  # releases of the matrix whose files are all in the bundle
    missing: tuple[str, ...] = ()  # files that the matrix names and that no source had
    files: tuple[BundleFile, ...] = Field(max_length=FILES_MAX)
    references: tuple[BundleReference, ...] = Field((), max_length=FILES_MAX)

    @field_validator("files")
    @classmethod
    def _each_once(cls, files: tuple[BundleFile, ...]) -> tuple[BundleFile, ...]:
        if len({f.path.casefold() for f in files}) != len(files):
            raise ValueError("a file is listed twice")
        return files


class AgentRequest(Record):
    """A command that was about to be sent; stored until the next one, or until the node leaves.

    An agent lists its commands by names and identifiers, without parameters. An entry in the list
    that is not in `known` appeared after this record was written, so it is the command that was
    sent.
    """

    command: str  # SHA-256 of name and parameters
    name: str  # "clean.execute_clean_step"
    known: tuple[str, ...]  # identifiers that the agent listed before
    sent_at: float
    id: str = ""  # as the agent named it, once it has
    over: bool = False  # its end was observed; the requester may have died before it recorded that


class AgentSession(Record):
    """A session from `expect` to `dismiss`; the next boot is a new session. The token is stored
    elsewhere.
    """

    node: str
    uuid: str  # the agent's name for the node
    macs: tuple[str, ...]  # lowercase with colons
    expected_at: float
    until: float  # deadline of the first heartbeat
    dismissed: bool = False
    handed_at: float = 0.0  # when the token was issued; 0: not yet
    peer: str = ""  # address that received the token
    url: str = ""  # where the agent listens, known from its first heartbeat on
    certificate: str = ""  # PEM, as in its first heartbeat
    version: str = ""
    seen_at: float = 0.0  # last heartbeat; 0: none yet
    asked: AgentRequest | None = None
