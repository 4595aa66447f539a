"""The document that a release leaves behind: sealed, bound to its certificate. Pure.

Rule: the seal covers every byte of the canonical JSON but itself, the certificate's id and digest
included, so that a proof cannot be laid beside another certificate.
"""

from __future__ import annotations

import hashlib
import json

from provisioner.model.certificate import Certificate
from provisioner.model.release import GateRow
from provisioner.model.tenant import ReleaseProof

VERSION = 2


def canonical(proof: ReleaseProof) -> str:
    """The document as it is sealed: sorted keys, no blanks, without its own digest."""
    document = proof.model_dump(mode="json", exclude={"sha256"})
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sealed(proof: ReleaseProof, certificate: Certificate | None) -> ReleaseProof:
    """The proof with its version, the certificate's digest and its own."""
    told = "" if certificate is None else certificate.digest()
    bound = proof.model_copy(update={"version": VERSION, "certificate_digest": told})
    digest = hashlib.sha256(canonical(bound).encode()).hexdigest()
    return bound.model_copy(update={"sha256": digest})


def objections(proof: ReleaseProof, certificate: Certificate | None) -> tuple[str, ...]:
    """Why a proof is not to be believed; () if it is."""
    found = []
    if proof.version < VERSION:
        found.append("it is of version 1, which had no gate and no seal")
    elif hashlib.sha256(canonical(proof).encode()).hexdigest() != proof.sha256:
        found.append("it was changed after it was sealed")
    if certificate is None:
        found.append("its certificate is not there")
    elif certificate.id != proof.certificate or certificate.node != proof.node:
        found.append("it belongs to another certificate")
    elif proof.version >= VERSION and certificate.digest() != proof.certificate_digest:
        found.append("its certificate was changed since")
    if not proof.persisted:
        found.append("the leaves did not keep what was applied")
    found += [str(row) for row in bad(proof)]
    return tuple(found)


def bad(proof: ReleaseProof) -> tuple[GateRow, ...]:
    """Rows that should have kept the node back."""
    return tuple(row for row in proof.gate if row.bad)
