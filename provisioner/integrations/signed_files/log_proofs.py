"""What a tenant or an auditor checks of the log of evidence: its checkpoints, proofs and bundles.

Section numbers are of RFC 9162. Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from provisioner.planning.certification.evidence_log import (
    BEGINS,
    BUNDLE_TYPE,
    ENDS,
    HASH,
    Checkpoint,
    EntryBundle,
    EntryKind,
    LogEntry,
    ProvenEntry,
    blind,
    encode_entry,
    hash_leaf,
    hash_pair,
    identify_key,
)

BUNDLE_MAX = 16 * 1024 * 1024  # bytes of a bundle; a node with 100 entries has some 150,000


class NotALog(ValueError):
    """The text has not the form of a checkpoint or of a bundle, or its signature is not valid."""


def is_included(leaf: bytes, index: int, head: Checkpoint, path: Sequence[bytes]) -> bool:
    """Return whether a leaf's hash and its path lead to the head (2.1.3.2)."""
    if not 0 <= index < head.size:
        return False
    place = index
    last = head.size - 1
    result = leaf
    for step in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            result = hash_pair(step, result)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            result = hash_pair(result, step)
        place >>= 1
        last >>= 1
    return last == 0 and result == head.root


def has_grown(old: Checkpoint, new: Checkpoint, path: Sequence[bytes]) -> bool:
    """Return whether `new` holds all of `old`, unchanged and in its place (2.1.4.2)."""
    if old.size == new.size:
        return not path and old.root == new.root
    if old.size == 0:
        return not path
    if old.size > new.size or not path:
        return False
    hashes = list(path)
    if old.size & (old.size - 1) == 0:
        hashes.insert(0, old.root)
    place = old.size - 1
    last = new.size - 1
    while place & 1:
        place >>= 1
        last >>= 1
    before = after = hashes[0]
    for step in hashes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            before = hash_pair(step, before)
            after = hash_pair(step, after)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            after = hash_pair(after, step)
        place >>= 1
        last >>= 1
    return last == 0 and before == old.root and after == new.root


def open_checkpoint(note: str, is_signed: Callable[[str, str, bytes], bool]) -> Checkpoint:
    """Return a checkpoint whose signature is good. Raises NotALog.

    `is_signed` takes (text, name, key id and signature) and says whether a trusted key of that
    name signed the text; lines of other signers, such as witnesses, are passed over.
    """
    text, gap, signatures = note.partition("\n\n")
    text += "\n"
    lines = text.split("\n")
    if not gap or len(note) > 16_384 or len(lines) < 4 or not re.fullmatch(r"\d{1,18}", lines[1]):
        raise NotALog("this is no checkpoint of a log")
    try:
        root = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError):
        raise NotALog("the root of the checkpoint is no base64") from None
    if len(root) != 32:
        raise NotALog("the root of the checkpoint is no SHA-256")
    for line in signatures.splitlines():
        found = re.fullmatch(r"\N{EM DASH} (\S+) (\S+)", line)
        if found is None:
            raise NotALog("a signature line of the checkpoint cannot be read")
        if found[1] == lines[0] and is_signed(text, found[1], _decode(found[2])):
            return Checkpoint(lines[0], int(lines[1]), root)
    raise NotALog("no trusted key signed the checkpoint")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def parse_bundle(text: str) -> EntryBundle:
    """Return a bundle whose proofs are not checked yet. Raises NotALog."""
    if len(text) > BUNDLE_MAX:
        raise NotALog(f"it is larger than {BUNDLE_MAX} characters")
    try:
        bundle = EntryBundle.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        raise NotALog(f"it is no bundle of a log: {str(error)[:200]}") from None
    if bundle.type != BUNDLE_TYPE:
        raise NotALog("it is no bundle of a log of this version")
    return bundle


def list_log_objections(
    bundle: EntryBundle, head: Checkpoint, known: Checkpoint | None
) -> list[str]:
    """Return what is wrong with a bundle under an opened checkpoint; empty: nothing is.

    `known` is a checkpoint that the reader kept. Without it, or without entries, the bundle
    proves less; that is no objection, and `describe_proof` says it.
    """
    wrong = [] if known is None else _check_growth(bundle, head, known)
    before: ProvenEntry | None = None
    for proven in bundle.entries:
        name = f"entry {proven.index}"
        leaf = hash_leaf(encode_entry(proven.entry))
        if not is_included(leaf, proven.index, head, _decode_path(proven.path)):
            wrong.append(f"{name} is not in the log of this checkpoint")
        if proven.entry.node != bundle.node:
            wrong.append(f"{name} is about {proven.entry.node}, not about {bundle.node}")
        if before is not None and proven.entry.previous != before.index:
            wrong.append(f"between entries {before.index} and {proven.index} one is left out")
        before = proven
    return wrong + list_overlaps([p.entry for p in bundle.entries])


def list_overlaps(entries: Sequence[LogEntry]) -> list[str]:
    """Return where a node entered a second tenant's network, or was found in one, before it left.

    `entries` are one node's, in their order and without a gap.
    """
    found = []
    owner = ""
    for entry in entries:
        if entry.kind in BEGINS:
            if owner not in ("", entry.tenant):
                found.append(f"at {entry.at} it entered another tenant's network before it left")
            owner = entry.tenant
        elif entry.kind in ENDS:
            owner = ""
        elif entry.kind is EntryKind.STRAY:
            found.append(f"at {entry.at} ports were found in a customer's network unasked")
    return found


def describe_proof(bundle: EntryBundle, head: Checkpoint, known: Checkpoint | None) -> list[str]:
    """Return what a bundle without objections proves, and what it does not."""
    told = [f"{len(bundle.entries)} entries of {bundle.node} are in a log of {head.size}"]
    own = bundle.tenant and blind(bundle.tenant.salt, bundle.tenant.name)
    if own is not None and bundle.tenant is not None:
        mine = [p.entry for p in bundle.entries if p.entry.tenant == own]
        name = bundle.tenant.name
        if mine:
            ended = bundle.entries[-1].entry
            last = "and has not left it"
            if ended.kind in ENDS:
                last = f"to {ended.at}"
                if ended.kind is not EntryKind.LEFT:
                    last += f" ({ended.kind}: that its ports were read back is not in the log)"
            told.append(f"it was in the network of {name} from {mine[-1].at} {last}")
        else:
            told.append(f"it was never in the network of {name}")
    if bundle.entries and bundle.entries[0].entry.previous >= 0:
        told.append("earlier entries of this node are not shown")
    if known is None:
        told.append("NOT CHECKED: that the log only grew; keep a checkpoint and give --known")
    else:
        told.append(f"the log only grew since its {known.size} entries that were known")
    return told


def _check_growth(bundle: EntryBundle, head: Checkpoint, known: Checkpoint) -> list[str]:
    if known.origin != head.origin:
        return [f"the known checkpoint is of another log, {known.origin}"]
    if known.size > head.size:
        return [f"the log had {known.size} entries, and has {head.size} now"]
    path: Sequence[bytes] = ()
    if 0 < known.size < head.size:
        if bundle.since is None or bundle.since.size != known.size:
            return [f"it has no proof since {known.size} entries: export with --since {known.size}"]
        path = _decode_path(bundle.since.path)
    if not has_grown(known, head, path):
        return [f"the first {known.size} entries are not those of the known checkpoint"]
    return []


def _decode_path(path: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(step) if HASH.fullmatch(step) else b"" for step in path]


def is_note_signed(
    text: str, name: str, signature: bytes, public_keys: Mapping[str, bytes]
) -> bool:
    """Return whether one of the keys signed a note's text under a name: key id and signature."""
    for public in public_keys.values():
        if signature[:4] == identify_key(name, public):
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(signature[4:], text.encode())
            except (InvalidSignature, ValueError):
                continue
            return True
    return False
