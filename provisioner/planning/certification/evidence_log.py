"""An append-only log of certificates, erasures and handovers that needs no trust in the site. Pure.

Its entries are leaves of a Merkle tree (RFC 9162, 2.1), whose head the site signs as a checkpoint
(https://c2sp.org/tlog-checkpoint) in a signed note (https://c2sp.org/signed-note). Who keeps one
checkpoint can prove later that nothing before it was changed or taken out. Each entry names the
index of its node's entry before it, so that a node's entries are a chain with no room between two
of them. Names of tenants are blinded: an entry holds a digest over a salt that only its tenant and
the site have.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import rfc8785
from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.events import EventKind

BUNDLE_TYPE = "urn:gpu-provisioner:evidence-log:v1"
ENTRIES_MAX = 5_000  # of one node in a bundle
PATH_MAX = 64  # hashes of a proof in a tree of up to 2**63 leaves; a consistency proof one more
ED25519 = b"\x01"  # C2SP signed-note, "Signatures": the algorithm of the key's id
HASH = re.compile(r"[0-9a-f]{64}")
Range = tuple[int, int]  # leaves from the first up to, and without, the second


class EntryKind(StrEnum):
    """What an entry says of its node."""

    CERTIFIED = "certified"  # evidence: SHA-256 of the certificate's statement
    ATTESTED = "attested"  # devices proved their state anew; evidence: its digest
    ERASED = "erased"  # evidence: the digest of the erasure report
    NOT_ERASED = "not_erased"  # an erasure ended without proof for each drive
    ENTERED = "entered"  # it is in its tenant's network; evidence: the digest of the release proof
    ADOPTED = "adopted"  # it was in a tenant's network when it was taken over
    LEFT = "left"  # all its ports were read back in the maintenance tenant
    REFUSED = "refused"  # a handover was begun and given up, and the node fenced
    STRAY = "stray"  # ports were found in a customer's network without a handover
    RETIRED = "retired"


KINDS: Mapping[str, EntryKind] = {
    EventKind.CERTIFIED: EntryKind.CERTIFIED,
    EventKind.ATTESTED: EntryKind.ATTESTED,
    EventKind.SANITIZED: EntryKind.ERASED,
    EventKind.NOT_SANITIZED: EntryKind.NOT_ERASED,
    EventKind.RELEASED: EntryKind.ENTERED,
    EventKind.ADOPTED: EntryKind.ADOPTED,
    EventKind.FENCE: EntryKind.LEFT,
    EventKind.RELEASE_REFUSED: EntryKind.REFUSED,
    EventKind.TRESPASS: EntryKind.STRAY,
    EventKind.RETIRED: EntryKind.RETIRED,
}
_EVIDENCE = {
    EntryKind.ATTESTED: "state",
    EntryKind.ENTERED: "proof",
    EntryKind.ERASED: "report",
    EntryKind.NOT_ERASED: "report",
}
PROOFS = (EntryKind.CERTIFIED, EntryKind.ATTESTED, EntryKind.ERASED)
BEGINS = (EntryKind.ENTERED, EntryKind.ADOPTED)
ENDS = (EntryKind.LEFT, EntryKind.REFUSED, EntryKind.RETIRED)


class LogEntry(Record):
    """One leaf. Its bytes are `encode_entry`'s: canonical JSON (RFC 8785)."""

    kind: EntryKind
    node: str
    at: str  # RFC 3339, UTC
    previous: int = Field(-1, ge=-1)  # index of the node's entry before; -1: this is its first
    tenant: str = ""  # `blind`'s digest, of ENTERED and ADOPTED
    evidence: str = ""  # SHA-256 of the document that it is about, or empty
    row: str  # digest of the row of the site's journal


class ProvenEntry(Record):
    """An entry with its way to the head."""

    index: int = Field(ge=0)
    entry: LogEntry
    path: tuple[str, ...] = Field(max_length=PATH_MAX)  # RFC 9162, 2.1.3: hexadecimal hashes


class Growth(Record):
    """That the log only grew since a size that somebody knows."""

    size: int = Field(ge=0)
    path: tuple[str, ...] = Field(max_length=PATH_MAX + 1)  # RFC 9162, 2.1.4


class OwnName(Record):
    """What a tenant finds itself by."""

    name: str
    salt: str


class EntryBundle(Record):
    """All entries of one node, or those of a tenant's time, with their proofs."""

    type: str = BUNDLE_TYPE
    checkpoint: str
    node: str
    entries: tuple[ProvenEntry, ...] = Field((), max_length=ENTRIES_MAX)
    since: Growth | None = None
    tenant: OwnName | None = None


class Checkpoint(NamedTuple):
    """A head of the log: how many leaves it covers, and their root."""

    origin: str
    size: int
    root: bytes


# ------------------------------------------------------------------------------
# The tree: RFC 9162, 2.1.


def hash_leaf(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + leaf).digest()


def hash_pair(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def list_subtrees(begin: int, end: int) -> list[tuple[int, int]]:
    """Return the complete subtrees (level, place) that leaves `begin` to `end` consist of.

    `begin` has to be a multiple of each of their sizes, as it is in every proof.
    """
    found = []
    while begin < end:
        level = (end - begin).bit_length() - 1
        found.append((level, begin >> level))
        begin += 1 << level
    return found


def fold_subtrees(hashes: Sequence[bytes]) -> bytes:
    """Return the hash over complete subtrees, the largest first; that of nothing is SHA-256("")."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    result = hashes[-1]
    for left in reversed(hashes[:-1]):
        result = hash_pair(left, result)
    return result


def plan_inclusion(index: int, size: int) -> list[Range]:
    """Return the ranges whose hashes prove a leaf, in RFC 9162's order (2.1.3.1)."""
    begin = 0
    end = size
    path: list[Range] = []
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((begin, middle))
            begin = middle
    return path[::-1]


def plan_consistency(old: int, size: int) -> list[Range]:
    """Return the ranges whose hashes prove that a log of `old` leaves grew (2.1.4.1)."""
    if not 0 < old < size:
        return []
    begin = 0
    end = size
    path: list[Range] = []
    while end != old:
        middle = begin + _split(end - begin)
        if old <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((begin, middle))
            begin = middle
    if begin:
        path.append((begin, end))
    return path[::-1]


def _split(count: int) -> int:
    """Return the largest power of two below a number above one."""
    return 1 << (count - 1).bit_length() - 1


# ------------------------------------------------------------------------------
# Entries.


def encode_entry(entry: LogEntry) -> bytes:
    """Return the bytes of the leaf."""
    return rfc8785.dumps(entry.model_dump(mode="json"))


def blind(salt: str, tenant: str) -> str:
    """Return what stands for a tenant in entries; who has not the salt cannot try names."""
    return hmac.new(bytes.fromhex(salt), tenant.encode(), hashlib.sha256).hexdigest()


def salt_of(secret: str, tenant: str) -> str:
    """Return a tenant's salt; the site's secret cannot be derived from it."""
    return hmac.new(bytes.fromhex(secret), b"salt " + tenant.encode(), hashlib.sha256).hexdigest()


def build_entry(
    row: Mapping[str, Any], previous: int, secret: str, statements: Mapping[str, str]
) -> LogEntry | None:
    """Return the entry for a row of the journal; None: the row says nothing for the log.

    `statements` has the SHA-256 of certificates' statements by the certificate's id.
    """
    kind = KINDS.get(row["kind"])
    detail = row["detail"]
    tenant = str(detail.get("tenant") or "")
    if kind is None or not row["node"] or (kind is EntryKind.ADOPTED and not tenant):
        return None
    if kind is EntryKind.LEFT and not (detail.get("confirmed") and detail.get("placements")):
        return None  # not read back at each of the node's ports
    evidence = str(detail.get(_EVIDENCE.get(kind, ""), ""))
    if kind is EntryKind.CERTIFIED:
        evidence = statements.get(str(detail.get("certificate")), "")
    enters = kind in (EntryKind.ENTERED, EntryKind.ADOPTED)
    return LogEntry(
        kind=kind,
        node=row["node"],
        at=datetime.fromtimestamp(row["at"], UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        previous=previous,
        tenant=blind(salt_of(secret, tenant), tenant) if enters else "",
        evidence=evidence if HASH.fullmatch(evidence) else "",
        row=row["digest"],
    )


def cut_to_tenant(entries: Sequence[tuple[int, LogEntry]], own: str) -> list[tuple[int, LogEntry]]:
    """Return the entries of one tenant's last time on a node, from the entry that begins it.

    Those before and after are about others. What proves the node right before its begin was made
    for this handover and stays: an erasure, a certificate, attestations. It ends as for
    `list_overlaps`: with LEFT, or with REFUSED or RETIRED and the LEFT that may follow at once.
    Another tenant's entry without an end before it is shown, as the proof of an overlap, and is
    the last.
    """
    begins = [i for i, (_, e) in enumerate(entries) if e.tenant == own]
    if not begins:
        return []
    first = last = begins[-1]
    while first and entries[first - 1][1].kind in PROOFS:
        first -= 1
    for _, entry in entries[last + 1 :]:
        ended = entries[last][1].kind in ENDS
        if entries[last][1].kind is EntryKind.LEFT or (ended and entry.kind not in ENDS):
            break
        last += 1
        if entry.kind in BEGINS:
            break
    return list(entries[first : last + 1])


# ------------------------------------------------------------------------------
# Checkpoints in signed notes.


def write_checkpoint(origin: str, size: int, root: bytes) -> str:
    """Return the text that is signed; `size` leaves under `root`."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"


def identify_key(origin: str, public: bytes) -> bytes:
    """Return a key's id in signed notes: four bytes."""
    return hashlib.sha256(origin.encode() + b"\n" + ED25519 + public).digest()[:4]


def write_verifier_key(origin: str, public: bytes) -> str:
    """Return the key in the form that witnesses and monitors take: `name+id+key`."""
    key = base64.b64encode(ED25519 + public).decode()
    return f"{origin}+{identify_key(origin, public).hex()}+{key}"


def write_note(text: str, origin: str, public: bytes, signature: bytes) -> str:
    """Return a text with its signature."""
    signed = base64.b64encode(identify_key(origin, public) + signature).decode()
    return f"{text}\n\N{EM DASH} {origin} {signed}\n"
