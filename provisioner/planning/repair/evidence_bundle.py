"""The archive of a case's evidence for a vendor: deterministic, complete, verifiable. Pure.

It is a gzipped tar with `manifest.json` (every file with its SHA-256) and `manifest.dsse.json` (the
same manifest, signed: DSSE 1.0.2, Ed25519). The same case results in the same bytes. An archive is
read as untrusted input: sizes, names and kinds of members are checked before any content is used.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import rfc8785

from provisioner.model.base import Record
from provisioner.model.case import Case
from provisioner.planning.certification import attestation
from provisioner.planning.certification.attestation import Envelope, NotAnAttestation
from provisioner.planning.watch.syslog_reader import scrub_text

PAYLOAD = "application/vnd.gpu-provisioner.case-bundle.v1+json"
MANIFEST = "manifest.json"
ENVELOPE = "manifest.dsse.json"
FILES_MAX = 512
# two crash dumps of 32 MB for each of 12 BMCs would be 768 MB: files over the limit are listed
BYTES_MAX = 256 * 1024 * 1024


class NotABundle(ValueError):
    """The file is no archive of this kind, or is not safe to read."""


class BundleFile(Record):
    """One member. `stored`: SHA-256 of its evidence row; "": made for the archive."""

    path: str
    content: bytes
    stored: str = ""
    removed: int = 0  # number of secrets that were removed
    opaque: bool = False  # a binary dump, which cannot be searched for secrets


def digest(content: bytes) -> str:
    """Return the SHA-256 of an archive in hex."""
    return hashlib.sha256(content).hexdigest()


def text_file(path: str, text: str, secrets: Iterable[str], stored: str = "") -> BundleFile:
    """Return a member of text, without secrets."""
    clean, removed = scrub_text(text, secrets)
    return BundleFile(path=path, content=clean.encode(), stored=stored, removed=removed)


def evidence_file(name: str, text: str, digest: str, secrets: Iterable[str]) -> BundleFile:
    """Return a member of collected evidence; `name` is its name in the case."""
    folder = name.split(" ")[0]
    path = _path(name)
    if folder == "dump":
        try:
            content = base64.b64decode(text, validate=True)
        except ValueError:
            return text_file(f"evidence/{path}.txt", text, secrets, digest)
        return BundleFile(path=f"evidence/{path}.bin", content=content, stored=digest, opaque=True)
    return text_file(f"evidence/{path}.txt", text, secrets, digest)


def render_manifest(
    case: Case, files: Sequence[BundleFile], left_out: Sequence[str], site: str, made_at: float
) -> bytes:
    """Return the manifest of the archive as canonical JSON (RFC 8785)."""
    suspect = case.suspect
    document: dict[str, Any] = {
        "type": PAYLOAD,
        "site": site,
        "case": case.id,
        "node": case.node,
        "system_serial": case.system_before,
        "vendor": case.vendor,
        "rma": case.ticket.rma if case.ticket else "",
        "suspect": suspect.model_dump(mode="json") if suspect else None,
        "made_at": datetime.fromtimestamp(int(made_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "files": {
            f.path: {
                "sha256": hashlib.sha256(f.content).hexdigest(),
                "bytes": len(f.content),
                "stored_sha256": f.stored,
                "secrets_removed": f.removed,
                "searched_for_secrets": not f.opaque,
            }
            for f in files
        },
        "left_out": list(left_out),
        "gaps": list(case.gaps),
    }
    return rfc8785.dumps(document)


def pack_bundle(files: Iterable[BundleFile], signed: str, listed: bytes) -> bytes:
    """The archive. Owners, times and order are fixed: the same files result in the same bytes."""
    members = {f.path: f.content for f in files} | {MANIFEST: listed, ENVELOPE: signed.encode()}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(members[name]))
    return gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)


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


def _path(name: str) -> str:
    """Return a name of evidence as a file name: "check gpu_inventory" -> "check/gpu_inventory"."""
    kind, _, name_part = name.partition(" ")
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in name_part)[:80].strip(".")
    kind = "".join(c if c.isalnum() else "_" for c in kind)[:40]
    return f"{kind}/{plain}" if plain else kind


def _unsafe(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/") or not name.isprintable()
