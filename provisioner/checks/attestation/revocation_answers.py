"""OCSP answers that came with the evidence: was a certificate of the chain revoked?

NVIDIA publishes revocations by OCSP alone. An answer is signed and dated, so that it can be fetched
on a connected machine and carried to one without a network (RFC 6960). A revoked certificate, also
one on hold, contradicts. A missing answer, one that has ended, or one of a responder that does not
know the certificate is noted, or leaves the component unproved where the policy requires answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from provisioner.checks.attestation.certificate_chains import read_common_name
from provisioner.model.attestation import Finding, FindingName, contradicts, notes, unproves

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
    """Return whether the answer is about this certificate, and was signed for its issuer."""
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
