"""Certificate chains of devices and of reference manifests, from the leaf to a pinned key.

Chains come leaf first (NVML, NSCQ) and root first (Redfish of HGX), so the order is made by the
issuers. A CA's signature is verified once and remembered: the intermediates of a fleet are few.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID

from provisioner.checks.attestation.trust_anchors import TrustAnchor, digest_spki
from provisioner.model.attestation import (
    Finding,
    FindingName,
    Unacceptable,
    contradicts,
    notes,
    unproves,
)

CERTIFICATES_MAX = 16  # of one chain; five is usual, eight the most that is documented (BlueField)
CHAIN_BYTES_MAX = 64 * 1024
FWID_OIDS = frozenset({"2.23.133.5.4.1", "2.23.133.5.4.1.1"})  # TCG DICE: TCB info, multi TCB info
_UNDERSTOOD = {
    ExtensionOID.BASIC_CONSTRAINTS.dotted_string,
    ExtensionOID.KEY_USAGE.dotted_string,
    ExtensionOID.EXTENDED_KEY_USAGE.dotted_string,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME.dotted_string,
    *FWID_OIDS,
}
_UNREADABLE = (
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
)
_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]{1,20000}?)-----END CERTIFICATE-----"
)


@dataclass(frozen=True)
class Chain:
    """A chain in order, leaf first, up to the certificate with the pinned key if there is one."""

    certificates: tuple[x509.Certificate, ...]
    findings: tuple[Finding, ...]
    anchor: TrustAnchor | None = None

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate whose key signs the evidence."""
        return self.certificates[0]

    @property
    def key(self) -> ec.EllipticCurvePublicKey | None:
        """The leaf's P-384 key; None for any other algorithm."""
        key = self.leaf.public_key()
        if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1):
            return key
        return None


@lru_cache(maxsize=8192)
def parse_certificate(der: bytes) -> x509.Certificate:
    """Parse one certificate; raises ValueError. Remembered: intermediates come again and again."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.public_key()
        _ = certificate.extensions, certificate.subject, certificate.issuer
        _ = certificate.signature_hash_algorithm
    except _UNREADABLE as error:
        raise ValueError(f"it cannot be read: {str(error)[:80]}") from None
    return certificate


def parse_certificates(raw: bytes) -> tuple[x509.Certificate, ...]:
    """Parse PEM, or DER certificates one after the other. Raises Unacceptable."""
    if len(raw) > CHAIN_BYTES_MAX:
        raise _refused(f"{len(raw)} bytes are more than any chain has")
    try:
        blocks = [base64.b64decode(b"".join(m.split()), validate=True) for m in _PEM.findall(raw)]
        if not blocks:
            blocks = list(_split_der(raw))
        if not 0 < len(blocks) <= CERTIFICATES_MAX:
            raise _refused(f"{len(blocks)} certificates; 1 to {CERTIFICATES_MAX} are accepted")
        return tuple(parse_certificate(block) for block in blocks)
    except Unacceptable:
        raise
    except (ValueError, binascii.Error, TypeError) as error:
        raise _refused(f"a certificate cannot be parsed: {str(error)[:80]}") from None


def _split_der(raw: bytes) -> Iterable[bytes]:
    """DER certificates one after the other: each is a SEQUENCE with a length of two bytes."""
    while raw:
        if raw[:2] != b"\x30\x82" or len(raw) < 4:
            raise _refused("neither PEM nor DER")
        size = 4 + int.from_bytes(raw[2:4], "big")
        if size > len(raw):
            raise _refused(f"a certificate of {size} bytes, {len(raw)} are left")
        yield raw[:size]
        raw = raw[size:]


def _refused(reason: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.CHAIN, reason))


def verify_chain(
    bag: Sequence[x509.Certificate], anchors: Sequence[TrustAnchor], at: float
) -> Chain:
    """Order the certificates and verify them up to a pinned key. Raises Unacceptable without any.

    The time `at` is in seconds since 1970. Certificates that are not on the way are ignored.
    """
    if not bag:
        raise _refused("there is no certificate")
    path, problem, anchor = _walk(bag, {a.spki_sha256: a for a in anchors}, anchors)
    findings = [problem] if problem else []
    findings += _check_algorithms(path)
    findings += _check_uses(path)
    findings += _check_times(path, at)
    if anchor is not None and anchor.added:
        detail = f"{anchor.name} is trusted because of {anchor.added}"
        findings.append(notes(FindingName.ADDED_ANCHOR, detail))
    return Chain(path, tuple(findings), anchor)


def _walk(
    bag: Sequence[x509.Certificate],
    pinned: dict[str, TrustAnchor],
    anchors: Sequence[TrustAnchor],
) -> tuple[tuple[x509.Certificate, ...], Finding | None, TrustAnchor | None]:
    path = [_find_leaf(bag)]
    while len(path) <= CERTIFICATES_MAX:
        last = path[-1]
        anchor = pinned.get(digest_spki(last))
        if anchor is not None:
            return tuple(path), None, anchor
        if last.subject == last.issuer:
            return tuple(path), _not_pinned(last, anchors), None
        named = [c for c in bag if c.subject == last.issuer and c not in path]
        issuer = next((c for c in named if _is_issued_by(_der(last), _der(c))), None)
        if issuer is None:
            return tuple(path), _no_issuer(last, named, anchors), None
        path.append(issuer)
    return tuple(path), unproves(FindingName.CHAIN, "it goes in a circle"), None


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


@lru_cache(maxsize=8192)
def _is_issued_by(child: bytes, issuer: bytes) -> bool:
    try:
        parse_certificate(child).verify_directly_issued_by(parse_certificate(issuer))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _find_leaf(bag: Sequence[x509.Certificate]) -> x509.Certificate:
    issuers = {c.issuer for c in bag if c.issuer != c.subject}
    below = [c for c in bag if c.subject not in issuers]
    leaves = [c for c in below if not _is_ca(c)] or below or list(bag)
    return leaves[0]


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _not_pinned(root: x509.Certificate, anchors: Sequence[TrustAnchor]) -> Finding:
    name = read_common_name(root)
    detail = f"the chain ends in {name!r}, whose key is not pinned"
    # a foreign maker's root is no lie; a pinned name with another key is one
    pretends = any(a.name == name for a in anchors)
    return (contradicts if pretends else unproves)(FindingName.ANCHOR, detail)


def _no_issuer(
    last: x509.Certificate, named: Sequence[x509.Certificate], anchors: Sequence[TrustAnchor]
) -> Finding:
    if any(c.subject == c.issuer for c in named):
        return _not_pinned(named[0], anchors)
    name = last.issuer.rfc4514_string()
    if named:
        detail = f"the certificate of {name} did not issue the one below it"
        return contradicts(FindingName.CHAIN, detail)
    return unproves(FindingName.CHAIN, f"the certificate of the issuer {name} is missing")


def _check_algorithms(path: Sequence[x509.Certificate]) -> Iterable[Finding]:
    """Require P-384 and SHA-384 of every certificate that stands below the pinned key."""
    for certificate in path:
        key = certificate.public_key()
        if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)):
            yield unproves(FindingName.ALGORITHM, f"{read_common_name(certificate)!r} is not P-384")
        elif not isinstance(certificate.signature_hash_algorithm, SHA384):
            yield unproves(
                FindingName.ALGORITHM, f"{read_common_name(certificate)!r} is not SHA-384"
            )


def _check_uses(path: Sequence[x509.Certificate]) -> Iterable[Finding]:
    for depth, certificate in enumerate(path):
        name = read_common_name(certificate)
        for extension in certificate.extensions:
            if extension.critical and extension.oid.dotted_string not in _UNDERSTOOD:
                oid = extension.oid.dotted_string
                yield unproves(FindingName.CHAIN, f"{name!r} has the critical extension {oid}")
        usage = _usage(certificate)
        if depth == 0:
            if usage is not None and not usage.digital_signature:
                yield unproves(FindingName.CHAIN, f"the key of {name!r} is not for this use")
            continue
        if not _is_ca(certificate) or (usage is not None and not usage.key_cert_sign):
            yield contradicts(FindingName.CHAIN, f"{name!r} may not issue certificates")
        limit = _path_length(certificate)
        if limit is not None and depth - 1 > limit:
            yield contradicts(FindingName.CHAIN, f"{name!r} may have {limit} authorities below it")


def _usage(certificate: x509.Certificate) -> x509.KeyUsage | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return None


def _path_length(certificate: x509.Certificate) -> int | None:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return None
    return constraints.value.path_length


def _check_times(path: Sequence[x509.Certificate], at: float) -> Iterable[Finding]:
    when = datetime.fromtimestamp(at, UTC)
    for certificate in path:
        begins = certificate.not_valid_before_utc
        ends = certificate.not_valid_after_utc
        if not begins <= when <= ends:
            detail = (
                f"{read_common_name(certificate)!r} is valid from {begins:%F} to {ends:%F} only"
            )
            yield unproves(FindingName.NOT_VALID, detail)


def read_common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name, printable and bounded."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = str(names[0].value) if names else certificate.subject.rfc4514_string()
    return "".join(c for c in text if c.isprintable())[:80]


def read_identity(certificate: x509.Certificate) -> str:
    """Return the serial number in the leaf's subject, or else the digest of its key."""
    numbers = certificate.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)
    text = str(numbers[0].value) if numbers else ""
    if text and text.isascii() and text.isprintable():
        return text[:80]
    return digest_spki(certificate)


_SHA384_DIGEST = bytes.fromhex("06096086480165030402020430")  # OID of SHA-384, then 48 bytes


def read_fwids(certificate: x509.Certificate) -> tuple[bytes, ...] | None:
    """Return the SHA-384 firmware digests of the TCB extension; None without the extension.

    TCG "DICE Attestation Architecture" 1.1: fwids is a list of SEQUENCE { algorithm, digest }.
    """
    for extension in certificate.extensions:
        if extension.oid.dotted_string in FWID_OIDS:
            assert isinstance(extension.value, x509.UnrecognizedExtension)
            value = extension.value.value
            starts = [m.end() for m in re.finditer(re.escape(_SHA384_DIGEST), value)]
            return tuple(value[s : s + 48] for s in starts if s + 48 <= len(value))
    return None
