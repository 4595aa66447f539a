"""The manifest of an air-gap bundle: the signed list of its files."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import Field, field_validator

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

MANIFEST = "bundle.dsse.json"  # the first member of the archive
MANIFEST_PAYLOAD = "application/vnd.provisioner.bundle+json"
FOLDERS = ("matrix", "artifacts", "wheels", "references")
FILES_MAX = 4096
_NAME = re.compile(rf"(?:{'|'.join(FOLDERS)})/[A-Za-z0-9_][A-Za-z0-9._+~-]{{0,199}}")


class BundleFile(Record):
    """One file of the archive."""

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
    """The form of a reference."""

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
