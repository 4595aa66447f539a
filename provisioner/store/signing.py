"""Signs certificates with Ed25519 (RFC 8032), and checks signatures against known public keys.

The signed content and its envelope are `planning/certification/attestation.py`'s; the keys are
stored by `signing_keys.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from provisioner.model.certificate import Certificate
from provisioner.planning.certification.attestation import (
    STATEMENT_PAYLOAD,
    Envelope,
    encode_for_signing,
    write_envelope,
    write_statement,
)
from provisioner.planning.certification.evidence_log import write_note

_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----[^-]{1,4096}-----END PUBLIC KEY-----")


class Signer:
    """One private key in memory; shows in no log."""

    __slots__ = ("_key", "key_id", "public_key")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()
        self.key_id = key_id(self.public_key)

    def sign(self, certificate: Certificate) -> Certificate:
        """The certificate with `key_id` and `signature` set; any earlier signature is replaced."""
        named = certificate.model_copy(update={"key_id": self.key_id, "signature": ""})
        signature = self._key.sign(encode_for_signing(STATEMENT_PAYLOAD, write_statement(named)))
        return named.model_copy(update={"signature": signature.hex()})

    def seal(self, payload_type: str, payload: bytes) -> str:
        """Return any other document of ours in a DSSE envelope, as JSON text."""
        return write_envelope(
            payload_type,
            payload,
            self.key_id,
            self._key.sign(encode_for_signing(payload_type, payload)),
        )

    def sign_note(self, origin: str, text: str) -> str:
        """Return a text as a signed note (https://c2sp.org/signed-note), under a log's name."""
        return write_note(text, origin, self.public_key, self._key.sign(text.encode()))

    def become(self, other: Signer) -> None:
        """Sign with the other's key from now on, also for all users of this signer."""
        self._key = other._key
        self.public_key = other.public_key
        self.key_id = other.key_id

    def __repr__(self) -> str:
        return f"Signer(key_id={self.key_id!r})"


def verify(certificate: Certificate, public_keys: Mapping[str, bytes]) -> bool:
    """Return whether one of the keys (key id -> 32 bytes) signed exactly this certificate.

    Everything else is False: no signature, an unknown key, a changed field, garbage. It says
    nothing about expiry or revocation.
    """
    try:
        signature = bytes.fromhex(certificate.signature)
        envelope = Envelope(
            payload_type=STATEMENT_PAYLOAD,
            payload=write_statement(certificate),
            key_id=certificate.key_id,
            signature=signature,
        )
    except ValueError:
        return False
    return signed(envelope, public_keys)


def signed(envelope: Envelope, public_keys: Mapping[str, bytes]) -> bool:
    """Return whether one of the keys signed exactly this envelope's payload and type."""
    public = public_keys.get(envelope.key_id)
    if public is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(
            envelope.signature, encode_for_signing(envelope.payload_type, envelope.payload)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def envelope_of(certificate: Certificate) -> str:
    """Return a signed certificate as the DSSE envelope that others verify."""
    return write_envelope(
        STATEMENT_PAYLOAD,
        write_statement(certificate),
        certificate.key_id,
        bytes.fromhex(certificate.signature),
    )


def public_pem(public: bytes) -> str:
    """Return a public key as PEM (RFC 8410), as OpenSSL and in-toto's tools read it."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def keys_of(pem: str) -> Mapping[str, bytes]:
    """The public keys of a PEM file by key id. Raises ValueError if one is no Ed25519 key."""
    keys = {}
    for block in _PEM.findall(pem):
        key = load_pem_public_key(block.encode())
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("a key is not Ed25519")
        raw = key.public_bytes_raw()
        keys[key_id(raw)] = raw
    return keys


def key_id(public: bytes) -> str:
    """Return the name of a public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]
