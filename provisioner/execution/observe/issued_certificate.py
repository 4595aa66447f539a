"""The answer of the site's authority to a BMC's request, judged before the BMC gets it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.model.outcome import Blocker, Reason

TEXT_MAX = 65_536
_DAY = timedelta(days=1)
# what the library raises for foreign bytes; TypeError for values of other types inside of them
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True)
class IssuedCertificate:
    """The BMC's own certificate; the rest of a chain is not sent, since many BMCs refuse one."""

    pem: str
    sha256: str
    ends_at: float


def judge_issued(
    bmc: str, request: str, answer: str, now: float, renew_days: float
) -> IssuedCertificate | Blocker:
    """Return the certificate if it fits the request and lives long enough, else why not."""
    try:
        csr = x509.load_pem_x509_csr(request.encode()[:TEXT_MAX])
        wants_key = csr.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        signed = csr.is_signature_valid
    except _UNREADABLE as error:
        return _refuse(bmc, f"its request for a certificate cannot be read: {error}", _AT_BMC)
    if not signed:
        return _refuse(bmc, "its request for a certificate is not signed by its own key", _AT_BMC)
    try:
        issued = x509.load_pem_x509_certificate(answer.encode()[:TEXT_MAX])
        key = issued.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        begins = issued.not_valid_before_utc
        ends = issued.not_valid_after_utc
    except _UNREADABLE as error:
        detail = f"the authority's command printed no certificate that can be read: {error}"
        return _refuse(bmc, detail, _AT_AUTHORITY)
    if key != wants_key:
        detail = "the authority's certificate is for another key than the request's"
        return _refuse(bmc, detail, f"Print the BMC's own certificate first. {_AT_AUTHORITY}")
    at = datetime.fromtimestamp(now, UTC)
    if begins > at + _DAY or ends <= at:
        return _refuse(bmc, f"the certificate is valid from {begins} to {ends}", _AT_AUTHORITY)
    if ends <= at + timedelta(days=renew_days) + _DAY:
        days = (ends - at).days
        detail = f"the certificate ends in {days} days, and is renewed {renew_days:g} days before"
        return _refuse(bmc, detail, "Lower bmc_certificate_renew_days, or have it issued longer.")
    der = issued.public_bytes(Encoding.DER)
    pem = issued.public_bytes(Encoding.PEM).decode()
    return IssuedCertificate(pem, hashlib.sha256(der).hexdigest(), ends.timestamp())


_AT_BMC = "Look at the BMC's event log; it is tried again by itself."
_AT_AUTHORITY = "Correct `bmc_ca_command`; it is tried again by itself."


def _refuse(bmc: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.REFUSED, subject=bmc, detail=detail, unblock=unblock)
