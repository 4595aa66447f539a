"""The keys that evidence and references must chain to, pinned by the SHA-256 of their SPKI.

The key is pinned, and not a root certificate's fingerprint: NVIDIA's device root exists in two
certificates of one key (not before 2020-01-01 in HGX trees, 2021-11-05 in the SDK).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)


@dataclass(frozen=True)
class TrustAnchor:
    """One pinned key. `added` names the file by which an operator added it."""

    name: str  # the subject's common name
    spki_sha256: str
    source: str
    added: str = ""


DEVICE_ANCHORS = (
    TrustAnchor(
        name="NVIDIA Device Identity CA",
        spki_sha256="a90c4eb5acfd3e3d03a25db6a26b84f720ad0503196c627c21ddd48dd85b06a4",
        source="NVIDIA/nvtrust 02817309 (2026-04-20), verifier_device_root.pem",
    ),
)
RIM_ANCHORS = (
    TrustAnchor(
        name="NVIDIA CoRIM signing Root CA",
        spki_sha256="dec1dc316477aa851eebdf51327ae9f864bc8d89254657ed1e7eb9168af1e1a3",
        source="NVIDIA/nvtrust 02817309 (2026-04-20), verifier_RIM_root.pem",
    ),
)


@dataclass(frozen=True)
class TrustStore:
    """The keys for devices, for references and for TPM makers, kept apart."""

    devices: tuple[TrustAnchor, ...] = DEVICE_ANCHORS
    references: tuple[TrustAnchor, ...] = RIM_ANCHORS

    def with_added(self, anchors: tuple[TrustAnchor, ...]) -> TrustStore:
        """Return a store that also trusts an operator's keys, for devices and references."""
        return TrustStore(self.devices + anchors, self.references + anchors)


def digest_spki(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate's public key (SPKI) in lowercase hex."""
    key = certificate.public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def read_anchors(raw: bytes, source: str) -> tuple[TrustAnchor, ...]:
    """Read an operator's anchors: certificates or one public key. Raises ValueError."""
    if b"-----BEGIN CERTIFICATE" in raw:
        return tuple(
            TrustAnchor(c.subject.rfc4514_string(), digest_spki(c), source, added=source)
            for c in x509.load_pem_x509_certificates(raw)
        )
    key = load_pem_public_key(raw) if raw.startswith(b"-----") else load_der_public_key(raw)
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return (TrustAnchor("a public key", hashlib.sha256(spki).hexdigest(), source, added=source),)
