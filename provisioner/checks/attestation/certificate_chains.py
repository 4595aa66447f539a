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
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from provisioner.checks.attestation.trust_anchors import TrustAnchor, digest_spki
from provisioner.model.certificate import (
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
    bag: Sequence[x509.Certificate], pinned: dict[str, TrustAnchor], anchors: Sequence[TrustAnchor]
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


# ------------------------------------------------------------------------------
# OCSP answers that came with the evidence: was a certificate of the chain revoked?
#
# NVIDIA publishes revocations by OCSP alone. An answer is signed and dated, so that it can be
# fetched on a connected machine and carried to one without a network (RFC 6960). A revoked
# certificate, also one on hold, contradicts. A missing answer, one that has ended, or one of a
# responder that does not know the certificate is noted, or leaves the component unproved where the
# policy requires answers.


ANSWER_BYTES_MAX = 64 * 1024  # with the responder's certificate about 2 KB
ANSWERS_MAX = 64


def parse_answer(raw: bytes) -> ocsp.OCSPResponse:
    """Parse one DER answer with one certificate's status. Raises ValueError."""
    if len(raw) > ANSWER_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes are more than any answer has")
    try:
        answer = ocsp.load_der_ocsp_response(raw)
        if answer.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise ValueError(f"the responder refused: {answer.response_status.name.lower()}")
        _ = answer.certificate_status, answer.certificates, answer.signature_hash_algorithm
        _ = answer.issuer_key_hash, answer.hash_algorithm, answer.next_update_utc
    except (UnsupportedAlgorithm, TypeError) as error:
        raise ValueError(f"it cannot be read: {str(error)[:80]}") from None
    return answer


def check_revocation(
    chain: Sequence[x509.Certificate],
    answers: Sequence[ocsp.OCSPResponse],
    at: float,
    *,
    required: bool = False,
) -> tuple[Finding, ...]:
    """Return what the answers say at this time about a chain, leaf first, below its pinned key.

    `required`: a certificate without a good answer of this time leaves the component unproved.
    """
    when = datetime.fromtimestamp(at, UTC)
    state = unproves if required else notes
    findings: list[Finding] = []
    silent: list[str] = []
    for certificate, issuer in pairwise(chain):
        states = [a for a in answers if _concerns(a, certificate, issuer)]
        revoked = [a for a in states if a.certificate_status is ocsp.OCSPCertStatus.REVOKED]
        name = read_common_name(certificate)
        # a revocation does not end with the answer that states it
        if any(a.this_update_utc <= when for a in revoked):
            findings.append(contradicts(FindingName.REVOKED, _describe(name, revoked[0])))
        elif any(_is_good(a, when) for a in states):
            continue
        elif any(a.certificate_status is ocsp.OCSPCertStatus.UNKNOWN for a in states):
            detail = f"its issuer's responder does not know {name!r}"
            findings.append(state(FindingName.REVOCATION_UNKNOWN, detail))
        elif ends := [a.next_update_utc for a in states if _has_ended(a, when)]:
            last = max(end for end in ends if end is not None)
            detail = f"that for {name!r} on {last:%F}"
            findings.append(state(FindingName.REVOCATION_ENDED, detail))
        else:
            silent.append(name)
    if silent or len(chain) < 2:
        names = ", ".join(repr(n) for n in silent[:4]) or "the chain"
        findings.append(state(FindingName.REVOCATION, f"no OCSP answer of this time for {names}"))
    return tuple(findings)


def _has_ended(answer: ocsp.OCSPResponse, when: datetime) -> bool:
    return answer.next_update_utc is not None and answer.next_update_utc < when


def _is_good(answer: ocsp.OCSPResponse, when: datetime) -> bool:
    ends = answer.next_update_utc
    is_current = answer.this_update_utc <= when and ends is not None and when <= ends
    return is_current and answer.certificate_status is ocsp.OCSPCertStatus.GOOD


def _concerns(
    answer: ocsp.OCSPResponse, certificate: x509.Certificate, issuer: x509.Certificate
) -> bool:
    if answer.serial_number != certificate.serial_number:
        return False
    asked = ocsp.OCSPRequestBuilder().add_certificate(certificate, issuer, answer.hash_algorithm)
    request = asked.build()
    names = (request.issuer_key_hash, request.issuer_name_hash)
    if names != (answer.issuer_key_hash, answer.issuer_name_hash):
        return False
    return any(_is_signed(answer, signer) for signer in (issuer, *_find_responders(answer, issuer)))


def _find_responders(answer: ocsp.OCSPResponse, issuer: x509.Certificate) -> list[x509.Certificate]:
    """Return certificates in the answer that the issuer made for signing answers, valid then."""
    responders = []
    for certificate in answer.certificates[:4]:
        try:
            certificate.verify_directly_issued_by(issuer)
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            continue
        begins = certificate.not_valid_before_utc
        ends = certificate.not_valid_after_utc
        if ExtendedKeyUsageOID.OCSP_SIGNING in usage and begins <= answer.this_update_utc <= ends:
            responders.append(certificate)
    return responders


def _is_signed(answer: ocsp.OCSPResponse, signer: x509.Certificate) -> bool:
    key = signer.public_key()
    digest = answer.signature_hash_algorithm
    if digest is None or digest.digest_size < 32:
        return False
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(answer.signature, answer.tbs_response_bytes, ec.ECDSA(digest))
        elif isinstance(key, rsa.RSAPublicKey):
            padded = padding.PKCS1v15()
            key.verify(answer.signature, answer.tbs_response_bytes, padded, digest)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _describe(name: str, answer: ocsp.OCSPResponse) -> str:
    since = answer.revocation_time_utc
    reason = answer.revocation_reason
    text = f"{name!r} since {since:%F}" if since else repr(name)
    return f"{text}: {reason.value}" if reason else text
