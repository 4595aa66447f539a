"""Certificates in a form that others can verify: an in-toto statement in a DSSE envelope. Pure.

The statement is in-toto's Attestation Framework 1.0 (https://in-toto.io/Statement/v1). Its subject
is the digest of the node's serials and versions; its predicate states the proofs, their time and
the node's location. It is written as canonical JSON (RFC 8785) and carried in a Dead Simple Signing
Envelope (https://github.com/secure-systems-lab/dsse, protocol 1.0.2), so that any tool that
supports DSSE can verify it with the public key alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import rfc8785
from pydantic import ValidationError

from provisioner.model.base import Record
from provisioner.model.certificate import GATE_NAMES, Certificate, GateProof, Revocation

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:gpu-provisioner:node-certificate:v1"
STATEMENT_PAYLOAD = "application/vnd.in-toto+json"
REVOCATIONS_PAYLOAD = "application/vnd.gpu-provisioner.revocations.v1+json"
SIZE_MAX = 4 * 1024 * 1024  # characters of an envelope; a node's is about 30,000
REVOCATIONS_VALID_S = 7 * 86400.0  # an older list may miss later revocations
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class NotAnAttestation(ValueError):
    """The document has not the form of an in-toto attestation."""


class Envelope(Record):
    """A DSSE envelope with one signature. The signature is verified before the payload is read."""

    payload_type: str
    payload: bytes
    key_id: str
    signature: bytes


class RevocationList(Record):
    """All revocations before `issued_at`; a verifier fetches the list again after `next_update`."""

    issued_at: float
    next_update: float
    keys: tuple[str, ...]  # ids of signing keys that are no longer trusted
    revoked: tuple[Revocation, ...]


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature covers: DSSE 1.0.2, "Pre-Authentication Encoding"."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def write_envelope(payload_type: str, payload: bytes, key_id: str, signature: bytes) -> str:
    document = {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(document, indent=2) + "\n"


def parse_envelope(text: str) -> Envelope:
    """Parse an envelope; its signature is not verified yet. Raises NotAnAttestation."""
    if len(text) > SIZE_MAX:
        raise NotAnAttestation(f"larger than {SIZE_MAX} characters")
    try:
        document = json.loads(text)
        (signature,) = document["signatures"]
        return Envelope(
            payload_type=document["payloadType"],
            payload=base64.b64decode(document["payload"], validate=True),
            key_id=signature.get("keyid", ""),
            signature=base64.b64decode(signature["sig"], validate=True),
        )
    except (KeyError, TypeError, AttributeError, RecursionError, ValidationError):
        raise NotAnAttestation("this is no DSSE envelope with one signature") from None
    except (ValueError, binascii.Error) as error:
        raise NotAnAttestation(f"this is no DSSE envelope: {error}") from None


def write_statement(certificate: Certificate) -> bytes:
    """Return the bytes to sign; equal certificates have equal bytes, in every implementation."""
    predicate: dict[str, Any] = {
        "certificate": certificate.id,
        "node": certificate.node,
        "release": certificate.release,
        "profile": certificate.profile,
        "serials": list(certificate.serials),
        "versions": [list(pair) for pair in certificate.versions],
        "bootId": certificate.boot_id,
        "position": {"location": certificate.location, "ports": list(certificate.ports)},
        "matrix": {"sha256": certificate.matrix_digest},
        "report": {"sha256": certificate.report_digest},
        "checks": list(certificate.checks),
        "evidence": list(certificate.evidence),
        "gates": [
            {
                "gate": g.gate.value,
                "name": GATE_NAMES[g.gate],
                "certificate": g.certificate,
                "provedAt": _stamp(g.proved_at),
            }
            for g in certificate.gates
        ],
        "issuedAt": _stamp(certificate.issued_at),
        "expiresAt": _stamp(certificate.expires_at),
        "keyId": certificate.key_id,
    }
    if certificate.attestation:
        predicate["attestation"] = certificate.attestation
    installed = rfc8785.dumps([predicate["serials"], predicate["versions"]])
    return rfc8785.dumps(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {
                    "name": certificate.node,
                    "digest": {"sha256": hashlib.sha256(installed).hexdigest()},
                }
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
    )


def read_certificate(envelope: Envelope) -> Certificate:
    """Return the certificate that an envelope carries. Raises NotAnAttestation.

    Parsing is strict: a statement that this program would not have written is refused, because a
    field that is overlooked is a field that is not verified.
    """
    if envelope.payload_type != STATEMENT_PAYLOAD:
        raise NotAnAttestation(f"the payload is {envelope.payload_type[:80]!r}, no statement")
    p = _document(envelope.payload).get("predicate")
    try:
        assert isinstance(p, Mapping)
        certificate = Certificate(
            id=p["certificate"],
            node=p["node"],
            release=p["release"],
            profile=p["profile"],
            serials=tuple(p["serials"]),
            versions=tuple((kind, version) for kind, version in p["versions"]),
            boot_id=p["bootId"],
            location=p["position"]["location"],
            ports=tuple(p["position"]["ports"]),
            matrix_digest=p["matrix"]["sha256"],
            report_digest=p["report"]["sha256"],
            checks=tuple(p["checks"]),
            evidence=tuple(p["evidence"]),
            gates=tuple(
                GateProof(
                    gate=g["gate"], certificate=g["certificate"], proved_at=_time(g["provedAt"])
                )
                for g in p["gates"]
            ),
            attestation=p.get("attestation", ""),
            issued_at=_time(p["issuedAt"]),
            expires_at=_time(p["expiresAt"]),
            key_id=p["keyId"],
            signature=envelope.signature.hex(),
        )
    except (AssertionError, KeyError, TypeError, ValueError):
        raise NotAnAttestation("the statement is no node certificate") from None
    if certificate.key_id != envelope.key_id or write_statement(certificate) != envelope.payload:
        raise NotAnAttestation("the statement has fields that a node certificate has not")
    return certificate


def write_revocations(
    revoked: Sequence[Revocation], keys: Sequence[str], now: float, valid_s: float
) -> bytes:
    """Return the revocation list as canonical JSON, to be signed."""
    rows: list[Any] = [
        {
            "certificate": r.certificate,
            "node": r.node,
            "revokedAt": _stamp(r.revoked_at),
            "reason": r.reason,
        }
        for r in sorted(revoked, key=lambda r: (r.revoked_at, r.certificate))
    ]
    document = {
        "issuedAt": _stamp(now),
        "nextUpdate": _stamp(now + valid_s),
        "keys": sorted(keys),
        "revoked": rows,
    }
    return rfc8785.dumps(document)


def read_revocations(envelope: Envelope) -> RevocationList:
    """Return the list that an envelope carries. Raises NotAnAttestation."""
    if envelope.payload_type != REVOCATIONS_PAYLOAD:
        raise NotAnAttestation(f"the payload is {envelope.payload_type[:80]!r}, no revocation list")
    document = _document(envelope.payload)
    try:
        return RevocationList(
            issued_at=_time(document["issuedAt"]),
            next_update=_time(document["nextUpdate"]),
            keys=tuple(document["keys"]),
            revoked=tuple(
                Revocation(
                    certificate=r["certificate"],
                    node=r["node"],
                    revoked_at=_time(r["revokedAt"]),
                    reason=r["reason"],
                )
                for r in document["revoked"]
            ),
        )
    except (KeyError, TypeError, ValueError):
        raise NotAnAttestation("this is no revocation list") from None


def find_objections(
    certificate: Certificate, now: float, listed: RevocationList | None = None
) -> tuple[str, ...]:
    """Why a certificate with a good signature is not valid at this time; () if it is valid."""
    reasons = []
    if now < certificate.issued_at:
        reasons.append(f"it is from the future: issued at {_stamp(certificate.issued_at)}")
    if now >= certificate.expires_at:
        reasons.append(f"it expired at {_stamp(certificate.expires_at)}")
    if listed is not None:
        reasons += _find_revocations(certificate, now, listed)
    return tuple(reasons)


def _find_revocations(certificate: Certificate, now: float, listed: RevocationList) -> list[str]:
    reasons = [
        f"it was revoked at {_stamp(r.revoked_at)}: {r.reason}"
        for r in listed.revoked
        if r.certificate == certificate.id
    ]
    if certificate.key_id in listed.keys:
        reasons.append(f"the key {certificate.key_id} that signed it was withdrawn")
    if now >= listed.next_update:
        reasons.append("the revocation list is out of date: fetch a newer one")
    if now < listed.issued_at:
        reasons.append("the revocation list is from the future: check this machine's clock")
    return reasons


def _document(payload: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        raise NotAnAttestation("the payload is not JSON") from None
    if not isinstance(document, dict):
        raise NotAnAttestation("the payload is not a JSON object")
    return document


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime(_TIME)


def _time(text: str) -> float:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
