"""The document that proves a release: sealed, and bound to its certificate. Pure.

The seal covers every byte of the canonical JSON except itself, including the certificate's id and
digest, so that a proof cannot be presented with another certificate. Fields with their default are
left out of it: a field that a later version adds does not break older seals.
"""

from __future__ import annotations

import hashlib
import json

from provisioner.model.certificate import Certificate
from provisioner.model.recovery import GateRow
from provisioner.model.tenant import ReleaseProof

VERSION = 2


def render_canonical(proof: ReleaseProof) -> str:
    """Return the document as it is sealed: sorted keys, no blanks, no defaults, without its
    digest.
    """
    return _canonical(proof.model_dump(mode="json", exclude={"sha256"}, exclude_defaults=True))


def certificate_digest(certificate: Certificate) -> str:
    """Return the SHA-256 of a certificate's canonical JSON."""
    text = _canonical(certificate.model_dump(mode="json", exclude_defaults=True))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(document: dict[str, object]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def seal_proof(proof: ReleaseProof, certificate: Certificate | None) -> ReleaseProof:
    """Return the proof with its version, the certificate's digest and its own."""
    certificate_sha256 = "" if certificate is None else certificate_digest(certificate)
    bound = proof.model_copy(update={"version": VERSION, "certificate_digest": certificate_sha256})
    digest = hashlib.sha256(render_canonical(bound).encode()).hexdigest()
    return bound.model_copy(update={"sha256": digest})


def list_proof_objections(proof: ReleaseProof, certificate: Certificate | None) -> tuple[str, ...]:
    """Return why a proof is not valid; () if it is."""
    reasons = []
    if proof.version < VERSION:
        reasons.append("it is of version 1, which had no gate and no seal")
    elif hashlib.sha256(render_canonical(proof).encode()).hexdigest() != proof.sha256:
        reasons.append("it was changed after it was sealed")
    if certificate is None:
        reasons.append("its certificate is not there")
    elif certificate.id != proof.certificate or certificate.node != proof.node:
        reasons.append("it belongs to another certificate")
    elif proof.version >= VERSION and certificate_digest(certificate) != proof.certificate_digest:
        reasons.append("its certificate was changed since")
    if not proof.persisted:
        reasons.append("the leaves did not save the applied configuration")
    reasons += [str(row) for row in list_bad_rows(proof)]
    return tuple(reasons)


def list_bad_rows(proof: ReleaseProof) -> tuple[GateRow, ...]:
    """Return the rows that should have kept the node from its tenant."""
    return tuple(row for row in proof.gate if row.bad)
