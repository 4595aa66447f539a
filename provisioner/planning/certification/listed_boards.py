"""The site's list of endorsement keys: which board's TPM may speak for which node. Pure.

A maker's certificate proves that a key is in a genuine TPM, and not in which board. The list says
it, from what the supplier of the boards delivered; without a list only a TPM that another node has
enrolled already is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provisioner.checks.attestation.endorsement_certificates import Endorsement
from provisioner.checks.attestation.tpm_credentials import digest_key
from provisioner.model.attestation import FindingName, Unacceptable, contradicts, unproves
from provisioner.model.node import BoardTpm, Node

BOARDS_BYTES_MAX = 4 * 1024 * 1024  # 16,384 nodes with three digests each have less
KEYS_MAX = 16  # of a node
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

ListedBoards = Mapping[str, tuple[str, ...]]  # node -> SHA-256 of keys or certificates, in hex


def parse_boards(raw: bytes) -> ListedBoards:
    """Parse lines of a node's name and its digests; "#" begins a remark. Raises ValueError."""
    if len(raw) > BOARDS_BYTES_MAX:
        raise ValueError(f"it has more than {BOARDS_BYTES_MAX} bytes")
    boards: dict[str, tuple[str, ...]] = {}
    holder: dict[str, str] = {}
    # no other line ends than this one: str.splitlines knows ten more
    for number, line in enumerate(raw.decode("utf-8").split("\n"), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        name = fields[0]
        digests = tuple(digest.replace(":", "").lower() for digest in fields[1:])
        if not _NAME.fullmatch(name) or not all(map(_SHA256.fullmatch, digests)):
            raise ValueError(f"line {number} is no node with SHA-256 digests in hex")
        boards[name] = (*boards.get(name, ()), *digests)
        if not 0 < len(boards[name]) <= KEYS_MAX:
            raise ValueError(f"line {number}: a node has 1 to {KEYS_MAX} digests")
        for digest in digests:
            if holder.setdefault(digest, name) != name:
                raise ValueError(f"line {number}: {holder[digest]} has this digest already")
    return boards


def require_listed(boards: ListedBoards, node: str, endorsement: Endorsement) -> None:
    """Raise Unacceptable unless the list names this endorsement key for the node.

    A digest is that of the public key (SPKI) or that of the certificate.
    """
    own = boards.get(node, ())
    key = digest_key(endorsement.key)
    shown = {key, endorsement.certificate_sha256}
    if shown.intersection(own):
        return
    other = next((name for name, digests in boards.items() if shown.intersection(digests)), "")
    if other:
        raise Unacceptable(contradicts(FindingName.EK_BOARD, f"the list has {key} for {other}"))
    if own:
        detail = f"the list has another key for {node} than {key}"
        raise Unacceptable(contradicts(FindingName.EK_BOARD, detail))
    raise Unacceptable(unproves(FindingName.EK_BOARD, f"the list has no key for {node}, not {key}"))


def find_holder(nodes: Iterable[Node], node: str, tpm: BoardTpm) -> str:
    """Return the name of another node that the same TPM is enrolled for; "" if there is none."""
    for other in nodes:
        if other.id == node or other.tpm is None:
            continue
        same_key = other.tpm.key_sha256 == tpm.key_sha256
        endorsed = tpm.endorsement_sha256
        if same_key or (endorsed and other.tpm.endorsement_sha256 == endorsed):
            return other.id
    return ""
