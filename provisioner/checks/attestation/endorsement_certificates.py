"""Certificates of endorsement keys (EK): which maker vouches that a key is in a TPM of its own.

Source: TCG EK Credential Profile for TPM 2.0. The site pins the makers' certificates, roots or
intermediates: few TPMs carry the certificates of their issuers, so that those come from the site's
file too. A certificate of any other maker proves nothing, and says so by name. The file may hold
makers' revocation lists (CRL): those of an issuer on the chain are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from provisioner.checks.attestation.certificate_chains import parse_certificate, read_common_name
from provisioner.checks.attestation.tpm_quotes import EndorsementKey, name_template
from provisioner.model.certificate import FindingName, Unacceptable, contradicts, unproves

MAKERS_BYTES_MAX = 1024 * 1024
MAKERS_MAX = 512
CERTIFICATE_BYTES_MAX = 8192
_HOPS_MAX = 6
_DIGEST_BYTES = 32  # a signature with SHA-1 is no proof
_EK_USAGE = "2.23.133.8.1"  # tcg-kp-EKCertificate
_LIST_BEGINS = b"-----BEGIN X509 CRL-----"
_LIST_ENDS = b"-----END X509 CRL-----"
_FAULTS = (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True)
class Makers:
    """The site's file: certificates that it trusts as they are, and revocation lists of issuers."""

    certificates: tuple[x509.Certificate, ...] = ()
    revocations: tuple[x509.CertificateRevocationList, ...] = ()


@dataclass(frozen=True)
class Endorsement:
    """An endorsement key that a pinned maker vouches for."""

    key: EndorsementKey
    maker: str  # common name of the pinned certificate
    certificate_sha256: str = ""  # of the key's certificate (DER), in hex

    @property
    def kind(self) -> str:
        """The template that the TPM derives the key by: rsa, ecc, rsa3072 or ecc384."""
        return name_template(self.key)


def parse_makers(raw: bytes) -> Makers:
    """Parse the site's file of makers' certificates and revocation lists (PEM). Raises
    ValueError.
    """
    if len(raw) > MAKERS_BYTES_MAX:
        raise ValueError(f"it has more than {MAKERS_BYTES_MAX} bytes")
    try:
        certificates = tuple(x509.load_pem_x509_certificates(raw))
        for maker in certificates:
            _ = maker.public_key(), maker.extensions, maker.subject
        revocations = tuple(_parse_list(block) for block in _cut_lists(raw))
    except (x509.InvalidVersion, x509.DuplicateExtension, UnsupportedAlgorithm) as error:
        raise ValueError(f"a certificate cannot be read: {str(error)[:80]}") from None
    if len(certificates) > MAKERS_MAX or len(revocations) > MAKERS_MAX:
        raise ValueError(f"it has more than {MAKERS_MAX} certificates or lists")
    return Makers(certificates, revocations)


def _cut_lists(raw: bytes) -> list[bytes]:
    """Return the PEM blocks of revocation lists. Raises ValueError for one without an end."""
    blocks = []
    for part in raw.split(_LIST_BEGINS, MAKERS_MAX + 1)[1:]:
        body, end, _ = part.partition(_LIST_ENDS)
        if not end:
            raise ValueError("a revocation list has no end")
        blocks.append(_LIST_BEGINS + body + end)
    return blocks


def _parse_list(block: bytes) -> x509.CertificateRevocationList:
    one = x509.load_pem_x509_crl(block)
    _ = one.issuer, one.next_update_utc, one.last_update_utc
    return one


def read_endorsement(raw: bytes) -> x509.Certificate:
    """Parse a certificate as a TPM stores it: DER, perhaps padded. Raises Unacceptable."""
    size = 4 + int.from_bytes(raw[2:4], "big")
    if raw[:2] != b"\x30\x82" or not size <= len(raw) <= CERTIFICATE_BYTES_MAX:
        raise _refuse("it is no certificate in DER")
    try:
        return parse_certificate(raw[:size])
    except (ValueError, TypeError) as error:
        raise _refuse(f"it cannot be parsed: {str(error)[:80]}") from None


def verify_endorsement(
    leaf: x509.Certificate, bag: Sequence[x509.Certificate], makers: Makers, at: float
) -> Endorsement:
    """Return the key that a maker vouches for; `bag`: further certificates, of the TPM itself.

    Raises Unacceptable with the finding that names the cause.
    """
    when = datetime.fromtimestamp(at, UTC)
    key = leaf.public_key()
    if not name_template(key):
        raise _refuse("its key is neither RSA of 2048 or 3072 bits nor P-256 or P-384")
    assert isinstance(key, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey))
    _check_leaf(leaf)
    certificate = leaf
    for _ in range(_HOPS_MAX):
        if not certificate.not_valid_before_utc <= when <= certificate.not_valid_after_utc:
            name = read_common_name(certificate)
            raise _refuse(f"{name!r} is valid until {certificate.not_valid_after_utc:%F}")
        pinned = _find_issuer(certificate, makers.certificates)
        if pinned is not None:
            _check_revocation(certificate, pinned, makers.revocations, when)
            shown = leaf.fingerprint(SHA256()).hex()
            return Endorsement(key, read_common_name(pinned), shown)
        issuer = _find_issuer(certificate, bag)
        if issuer is None:
            break
        _check_revocation(certificate, issuer, makers.revocations, when)
        certificate = issuer
    name = certificate.issuer.rfc4514_string()
    shown = "".join(c for c in name if c.isprintable())[:120]
    raise Unacceptable(unproves(FindingName.EK_MAKER, f"{shown!r} issued it"))


def _find_issuer(
    certificate: x509.Certificate, candidates: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    """Return the authority that issued a certificate, by its signature."""
    digest = certificate.signature_hash_algorithm
    if digest is None or digest.digest_size < _DIGEST_BYTES:
        raise _refuse(f"{read_common_name(certificate)!r} is signed with a weak digest")
    for candidate in candidates:
        if candidate.subject != certificate.issuer or not _is_authority(candidate):
            continue
        try:
            certificate.verify_directly_issued_by(candidate)
        except _FAULTS:
            continue
        return candidate
    return None


def _check_revocation(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    lists: Sequence[x509.CertificateRevocationList],
    when: datetime,
) -> None:
    """Refuse a certificate that its issuer revoked, and one whose issuer's lists are of no use:
    they have ended, or bear its name and none is signed by its key.

    Lists of other issuers say nothing.
    """
    key = issuer.public_key()
    if not isinstance(key, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey)):
        raise _refuse(f"the key of {read_common_name(issuer)!r} is neither RSA nor of a curve")
    named = [one for one in lists if one.issuer == issuer.subject]
    own = [one for one in named if one.is_signature_valid(key)]
    name = read_common_name(certificate)
    for one in own:
        if one.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            detail = f"{name!r} is on its issuer's list of {one.last_update_utc:%F}"
            raise Unacceptable(contradicts(FindingName.EK_REVOKED, detail))
    if named and not own:
        detail = f"no list under the name of {read_common_name(issuer)!r} is signed by its key"
        raise Unacceptable(unproves(FindingName.EK_LIST_UNFIT, detail))
    # a list that states no end is as old as its date
    ends = [one.next_update_utc or one.last_update_utc for one in own]
    if ends and max(ends) < when:
        detail = f"the list about {name!r} was to be renewed until {max(ends):%F}"
        raise Unacceptable(unproves(FindingName.EK_LIST_ENDED, detail))


def _check_leaf(leaf: x509.Certificate) -> None:
    if _is_authority(leaf):
        raise _refuse("it is an authority's, not a TPM's")
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if _EK_USAGE not in {use.dotted_string for use in usage}:
        raise _refuse("it was issued for another use than that of a TPM's endorsement key")


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return limits.ca


def _refuse(detail: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.EK_UNFIT, detail))
