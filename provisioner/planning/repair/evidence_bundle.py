"""The archive of a case's evidence for a vendor: deterministic, complete, verifiable. Pure.

It is a gzipped tar with `manifest.json` (every file with its SHA-256) and `manifest.dsse.json` (the
same manifest, signed: DSSE 1.0.2, Ed25519). The same case results in the same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import rfc8785

from provisioner.model.base import Record
from provisioner.model.case import Case
from provisioner.planning.watch.log_text import scrub_text

PAYLOAD = "application/vnd.gpu-provisioner.case-bundle.v1+json"
MANIFEST = "manifest.json"
ENVELOPE = "manifest.dsse.json"
FILES_MAX = 512
# two crash dumps of 32 MB for each of 12 BMCs would be 768 MB: files over the limit are listed
BYTES_MAX = 256 * 1024 * 1024


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
    import tarfile  # 0.3 MiB, for archives of cases alone

    members = {f.path: f.content for f in files} | {MANIFEST: listed, ENVELOPE: signed.encode()}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(members[name]))
    return gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)


def _path(name: str) -> str:
    """Return a name of evidence as a file name: "check gpu_inventory" -> "check/gpu_inventory"."""
    kind, _, name_part = name.partition(" ")
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in name_part)[:80].strip(".")
    kind = "".join(c if c.isalnum() else "_" for c in kind)[:40]
    return f"{kind}/{plain}" if plain else kind
