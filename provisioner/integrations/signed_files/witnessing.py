"""Cosignatures of a log's checkpoint, and the policy that says whose are enough. Pure.

Sources: c2sp.org/tlog-cosignature (Ed25519), c2sp.org/tlog-policy, c2sp.org/tlog-witness and
c2sp.org/signed-note. Cosignatures by ML-DSA-44 (signature type 6) are passed over, and a policy
that names such a key is refused: a quorum that cannot be reached would hide that nobody checked it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from provisioner.planning.certification.evidence_log import Checkpoint

LOG_KEY = 1  # signature types of signed notes
COSIGNER_KEY = 4
LINES_MAX = 1024  # of a policy
DEPTH_MAX = 32  # of groups in groups
COSIGNATURE_BYTES = 4 + 8 + 64  # key id, seconds since 1970, Ed25519
PROOF_LINES_MAX = 63  # tlog-witness, add-checkpoint
TIME_MAX = 2**63 - 1
NONE = "none"


class BadPolicy(ValueError):
    """A policy or a key in it cannot be used; `str` says which line and why."""


class Witness(NamedTuple):
    """A witness: its key's name and bytes, and the prefix where it takes checkpoints, or ""."""

    key_name: str
    public: bytes
    url: str


class Group(NamedTuple):
    """Members of which at least `threshold` are needed."""

    threshold: int
    members: tuple[str, ...]


class Policy(NamedTuple):
    """Which logs and witnesses are trusted; `logs` are key names with their public keys."""

    logs: tuple[tuple[str, bytes], ...]
    witnesses: Mapping[str, Witness]
    groups: Mapping[str, Group]
    quorum: str

    def is_met(self, cosigned: Mapping[str, int], name: str = "") -> bool:
        """Return whether these witnesses, by their names in the policy, are enough."""
        name = name or self.quorum
        if name == NONE:
            return True
        group = self.groups.get(name)
        if group is None:
            return name in cosigned
        return sum(self.is_met(cosigned, member) for member in group.members) >= group.threshold


def parse_policy(text: str) -> Policy:
    """Return a policy of c2sp.org/tlog-policy. Raises BadPolicy."""
    reader = _Reader()
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        raise BadPolicy(f"it has more than {LINES_MAX} lines")
    for number, line in enumerate(lines, start=1):
        words = line.strip(" \t").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            reader.take(words)
        except BadPolicy as error:
            raise BadPolicy(f"line {number}: {error}") from None
    if not reader.quorum:
        raise BadPolicy("it has no `quorum` line")
    return Policy(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum)


class _Reader:
    """The lines of a policy so far; a line names only what stands before it."""

    def __init__(self) -> None:
        self.logs: list[tuple[str, bytes]] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, Group] = {}
        self.quorum = ""
        self._keys: set[bytes] = set()
        self._depths: dict[str, int] = {}  # of groups
        self._members: set[str] = set()

    def take(self, words: Sequence[str]) -> None:
        """Read one line. Raises BadPolicy."""
        match words:
            case ["log", key] | ["log", key, _]:
                self.logs.append(self._read_key(key, LOG_KEY))
            case ["witness", name, key, *url] if len(url) <= 1:
                self._check_new(name)
                witness = self._read_key(key, COSIGNER_KEY)
                self.witnesses[name] = Witness(*witness, url[0] if url else "")
            case ["group", name, threshold, *members] if members:
                self._check_new(name)
                self.groups[name] = self._read_group(threshold, members)
                self._depths[name] = 1 + max(self._depths.get(member, 0) for member in members)
                if self._depths[name] > DEPTH_MAX:
                    raise BadPolicy(f"its groups are more than {DEPTH_MAX} deep")
            case ["quorum", name] if not self.quorum:
                if name != NONE:
                    self._check_known(name)
                self.quorum = name
            case _:
                raise BadPolicy(f"{' '.join(words)[:60]!r} is no line of a policy, or its second")

    def _read_key(self, text: str, kind: int) -> tuple[str, bytes]:
        name, public = read_verifier_key(text, kind)
        if public in self._keys:
            raise BadPolicy("this key stands twice")
        self._keys.add(public)
        return name, public

    def _read_group(self, threshold: str, members: Sequence[str]) -> Group:
        for member in members:
            self._check_known(member)
            if member in self._members:
                raise BadPolicy(f"{member} is a member twice")
            self._members.add(member)
        count = {"any": "1", "all": str(len(members))}.get(threshold, threshold)
        if not re.fullmatch(r"[1-9][0-9]{0,3}", count) or int(count) > len(members):
            raise BadPolicy(f"{threshold[:20]!r} of {len(members)} members is no threshold")
        return Group(int(count), tuple(members))

    def _check_known(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise BadPolicy(f"{name[:60]} is no witness and no group above")

    def _check_new(self, name: str) -> None:
        if name == NONE or name in self.witnesses or name in self.groups:
            raise BadPolicy(f"the name {name[:60]} is taken")


def read_verifier_key(text: str, kind: int) -> tuple[str, bytes]:
    """Return name and Ed25519 key of `name+id+key` with this signature type. Raises BadPolicy."""
    name, _, rest = text.partition("+")
    identity, _, encoded = rest.partition("+")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not name or len(key) < 2:
        raise BadPolicy("this is no key in the form name+id+key")
    if key[0] != kind or len(key) != 33:
        raise BadPolicy(f"a key of signature type {key[0]} is not used here; it has to be {kind}")
    if _identify(name, key) != identity:
        raise BadPolicy("the key's id is not that of its name and bytes")
    return name, key[1:]


def _identify(name: str, key: bytes) -> str:
    return hashlib.sha256(name.encode() + b"\n" + key).digest()[:4].hex()


def read_cosignatures(note: str, policy: Policy) -> dict[str, int]:
    """Return who of a policy cosigned a note, with the time, in seconds since 1970.

    Lines of unknown keys are passed over. Raises BadPolicy where a known witness's does not hold:
    such a note is malformed (c2sp.org/signed-note).
    """
    body, _, signatures = note.rpartition("\n\n")
    found: dict[str, int] = {}
    for key_name, signature in _list_signatures(signatures):
        for name, witness in policy.witnesses.items():
            key = bytes((COSIGNER_KEY,)) + witness.public
            if key_name != witness.key_name or signature[:4].hex() != _identify(key_name, key):
                continue
            at = _verify(f"{body}\n", witness.public, signature)
            if at is None:
                raise BadPolicy(f"the cosignature of {name} does not hold")
            found[name] = max(at, found.get(name, 0))
    return found


def _list_signatures(text: str) -> Iterator[tuple[str, bytes]]:
    for line in text.splitlines():
        found = re.fullmatch(r"\N{EM DASH} (\S+) (\S+)", line)
        if found is not None:
            try:
                yield found[1], base64.b64decode(found[2], validate=True)
            except (binascii.Error, ValueError):
                continue


def _verify(body: str, public: bytes, signature: bytes) -> int | None:
    at = int.from_bytes(signature[4:12], "big")
    if len(signature) != COSIGNATURE_BYTES or not 0 < at <= TIME_MAX:
        return None
    try:
        message = f"cosignature/v1\ntime {at}\n{body}".encode()
        Ed25519PublicKey.from_public_bytes(public).verify(signature[12:], message)
    except (InvalidSignature, ValueError):
        return None
    return at


def write_submission(old_size: int, path: Sequence[str], note: str) -> bytes:
    """Return the body of `add-checkpoint`; `path`: the proof of growth, each hash in hex."""
    if len(path) > PROOF_LINES_MAX:
        raise ValueError(f"a proof has at most {PROOF_LINES_MAX} lines")
    proof = [base64.b64encode(bytes.fromhex(step)).decode() for step in path]
    return ("\n".join([f"old {old_size}", *proof]) + f"\n\n{note}").encode()


def read_own_lines(answer: str, note: str, policy: Policy, name: str) -> str:
    """Return the lines of an answer that are this witness's, verified; "" where none is.

    Raises BadPolicy where its line does not hold.
    """
    alone = policy._replace(witnesses={name: policy.witnesses[name]})
    body = note.rpartition("\n\n")[0]
    lines = [f"{line}\n" for line in answer.splitlines()]
    return "".join(x for x in lines if read_cosignatures(f"{body}\n\n{x}", alone))


def describe_witnessing(head: Checkpoint, cosigned: Mapping[str, int], *, met: bool) -> str:
    """Return what the cosignatures say of a checkpoint, in a line for people."""
    names = ", ".join(sorted(cosigned)) or "nobody"
    enough = "the policy's quorum" if met else "NOT the policy's quorum"
    return f"the first {head.size} entries were witnessed by {names}: {enough}"
