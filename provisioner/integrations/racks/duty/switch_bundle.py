"""Whether a PKCS#12 bundle may become the certificate of an NVLink switch. Pure but for `now`.

NetQ NVLink takes a bundle without a passphrase that its present authority signed (NVIDIA, "Rotate
Customer Certificates", docs/sources/hardware.md#certificate-rotation). What it would not accept, or
would not last longer, is refused here by name, before anything is sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, pkcs12

BYTES_MAX = 1 << 20
CHAIN_MAX = 8
DAY_S = 86_400.0


@dataclass(frozen=True)
class Bundle:
    """What a bundle has. `content` is the secret that is sent."""

    content: bytes = field(repr=False)
    key: Any = field(repr=False)
    certificate: x509.Certificate
    others: tuple[x509.Certificate, ...]

    @property
    def sha256(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def ends_at(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()


def read_bundle(content: bytes) -> Bundle:
    """Return a bundle. Raises ValueError, whose words have nothing of its content."""
    if len(content) > BYTES_MAX:
        raise ValueError("it is too large for a bundle")
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(content, None)
    except (ValueError, TypeError):
        raise ValueError("it is no PKCS#12 file without a passphrase") from None
    if key is None or certificate is None:
        raise ValueError(f"it has no {'private key' if key is None else 'certificate'}")
    return Bundle(content, key, certificate, tuple(others))


def find_refusals(
    bundle: Bundle, issuer: x509.Certificate, host: str, shown_ends_at: float, now: float
) -> Iterable[str]:
    """Yield why a bundle would not do at a switch, whose present certificate ends at that time."""
    made = bundle.certificate
    if _encode(bundle.key.public_key()) != _encode(made.public_key()):
        yield "its key is not its certificate's"
    if host.lower() not in _list_names(made):
        yield f"its certificate does not name {host}"
    begins = made.not_valid_before_utc.timestamp()
    if now < begins:
        yield f"its certificate begins on {_day(begins)}"
    if bundle.ends_at <= now:
        yield f"its certificate ended on {_day(bundle.ends_at)}"
    elif bundle.ends_at <= shown_ends_at:
        yield f"its certificate ends on {_day(bundle.ends_at)}, no later than the present one"
    if not _is_authority(issuer):
        yield "what --issuer has is no certificate of an authority"
    elif (
        not issuer.not_valid_before_utc.timestamp() <= now < issuer.not_valid_after_utc.timestamp()
    ):
        yield "the certificate of its authority is not valid now"
    elif not _leads_to(bundle, issuer):
        yield "no chain of signatures leads from its certificate to --issuer"


def _list_names(made: x509.Certificate) -> frozenset[str]:
    try:
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    hosts = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
    return frozenset(hosts | {str(one) for one in names.get_values_for_type(x509.IPAddress)})


def _is_authority(made: x509.Certificate) -> bool:
    try:
        return made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _leads_to(bundle: Bundle, issuer: x509.Certificate) -> bool:
    at = bundle.certificate
    for _ in range(CHAIN_MAX):
        if _signed(at, issuer):
            return True
        parents = [one for one in bundle.others if one != at and _signed(at, one)]
        if not parents or not _is_authority(parents[0]):
            return False
        at = parents[0]
    return False


def _signed(made: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        made.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _encode(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _day(at: float) -> str:
    return time.strftime("%F", time.gmtime(at))
