"""An archive of a case's evidence, opened and compared with its signed manifest. Pure.

It is untrusted input: sizes, names and kinds of members are checked before any content is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping

from provisioner.planning.certification import attestation
from provisioner.planning.certification.attestation import Envelope, NotAnAttestation
from provisioner.planning.repair.evidence_bundle import (
    BYTES_MAX,
    ENVELOPE,
    FILES_MAX,
    MANIFEST,
    PAYLOAD,
)


class NotABundle(ValueError):
    """The file is no archive of this kind, or is not safe to read."""


def unpack_bundle(content: bytes) -> Mapping[str, bytes]:
    """Return the members by name, not verified yet. Raises NotABundle."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        plain = inflate.decompress(content, BYTES_MAX + FILES_MAX * 1024)
        if not inflate.eof or inflate.unused_data:
            raise NotABundle("it is larger than an archive may be, or cut off, or has a tail")
        members: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                if not member.isreg() or _unsafe(member.name) or member.name in members:
                    raise NotABundle(f"a member is no plain file of its own: {member.name[:80]!r}")
                if len(members) >= FILES_MAX + 2:
                    raise NotABundle("it has too many members")
                file = archive.extractfile(member)
                assert file is not None  # it is a plain file
                members[member.name] = file.read()
    except (zlib.error, tarfile.TarError, EOFError, OverflowError) as error:
        raise NotABundle(f"this is no tar.gz archive: {type(error).__name__}") from None
    return members


def list_bundle_objections(members: Mapping[str, bytes], signed: bytes) -> tuple[str, ...]:
    """Return the differences of the archive from the signed manifest; () if there are none."""
    wrong = [] if members.get(MANIFEST) == signed else [f"{MANIFEST} is not the signed one"]
    try:
        files = json.loads(signed)["files"]
        digests = {str(path): str(file["sha256"]) for path, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return (*wrong, "the signed manifest cannot be read")
    for path, digest in sorted(digests.items()):
        if path not in members:
            wrong.append(f"{path} is missing")
        elif hashlib.sha256(members[path]).hexdigest() != digest:
            wrong.append(f"{path} was changed")
    expected = digests.keys() | {MANIFEST, ENVELOPE}
    wrong += [f"{path[:80]!r} was added" for path in sorted(members.keys() - expected)]
    return tuple(wrong)


def _unsafe(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/") or not name.isprintable()


def envelope_of(members: Mapping[str, bytes]) -> Envelope:
    """Return the signed manifest, not verified yet. Raises NotABundle."""
    try:
        envelope = attestation.parse_envelope(members[ENVELOPE].decode())
    except KeyError:
        raise NotABundle(f"it has no {ENVELOPE}") from None
    except (NotAnAttestation, UnicodeDecodeError) as error:
        raise NotABundle(f"{ENVELOPE}: {error}") from None
    if envelope.payload_type != PAYLOAD:
        raise NotABundle(f"{ENVELOPE}: it is of another kind")
    return envelope
