"""The enrolment of a board's TPM: a maker's certificate, and a credential that only this TPM opens.

Pure but for the randomness of the encryption. The agent's answers are hostile until they are judged
here. A quote alone proves no TPM, since any program can sign one: its key counts when a maker that
the site pinned vouches for an endorsement key, and the TPM with that key opens a credential that
names the quote's key.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509

from provisioner.checks.attestation.endorsement_certificates import (
    Endorsement,
    Makers,
    read_endorsement,
    verify_endorsement,
)
from provisioner.checks.attestation.tpm_credentials import (
    digest_key,
    make_credential,
    parse_attestation_key,
)
from provisioner.model.attestation import Finding, FindingName, Unacceptable, unproves
from provisioner.model.node import BoardTpm, TpmProof
from provisioner.planning.certification.board_answers import decode_field, read_detail
from provisioner.planning.certification.listed_boards import ListedBoards, require_listed

READ_STEP = "provisioner_read_tpm_identity"  # of the hardware manager in the maintenance image
OPEN_STEP = "provisioner_activate_credential"
_CERTIFICATES_MAX = 24


@dataclass(frozen=True)
class Challenge:
    """A credential that only the TPM of this endorsement key opens, and only for this key."""

    credential: bytes
    secret: bytes
    endorsement: Endorsement


def challenge_board(
    answer: object,
    key_sha256: str,
    makers: Makers,
    secret: bytes,
    at: float,
    *,
    node: str = "",
    boards: ListedBoards | None = None,
) -> Challenge:
    """Judge an agent's answer to `provisioner_read_tpm_identity`; return the next question.

    `key_sha256`: the key that signed the quote of this boot. `boards`: the site's list, on which
    the endorsement key must be `node`'s; None: there is no list. Raises Unacceptable with the
    finding.
    """
    fields = _read_done(answer)
    area = decode_field(fields.get("public")) or b""
    key = parse_attestation_key(area)
    if key.spki_sha256 != key_sha256:
        detail = "the public area is not that of the key that signed the quote"
        raise Unacceptable(unproves(FindingName.AK_UNBOUND, detail))
    certificates = _read_certificates(fields.get("certificates"))
    endorsement = _choose_endorsement(certificates, makers, at, node, boards)
    credential = make_credential(endorsement.key, key.name, secret)
    return Challenge(credential, secret, endorsement)


def judge_opening(answer: object, challenge: Challenge, tpm: BoardTpm) -> BoardTpm:
    """Return the TPM as proved by the agent's answer to `provisioner_activate_credential`.

    Raises Unacceptable if the credential was not opened.
    """
    secret = decode_field(_read_done(answer).get("secret")) or b""
    if not hmac.compare_digest(secret, challenge.secret):
        raise Unacceptable(unproves(FindingName.AK_UNBOUND, "the credential was not opened"))
    proved = {
        "proof": TpmProof.MAKER,
        "maker": challenge.endorsement.maker,
        "endorsement_sha256": digest_key(challenge.endorsement.key),
    }
    return tpm.model_copy(update=proved)


def _read_done(answer: object) -> Mapping[object, object]:
    if not isinstance(answer, Mapping):
        raise _missing("the answer about the TPM is no object")
    if answer.get("result") != "done":
        raise _missing(read_detail(answer))
    return answer


def _read_certificates(rows: object) -> list[x509.Certificate]:
    """Parse those that can be parsed; one that cannot is no certificate."""
    values = list(rows.values())[:_CERTIFICATES_MAX] if isinstance(rows, Mapping) else []
    certificates = []
    problem: Unacceptable | None = None
    for value in values:
        try:
            certificates.append(read_endorsement(decode_field(value) or b""))
        except Unacceptable as refused:
            problem = refused
    if not certificates:
        raise problem or _missing("the TPM stores none")
    return certificates


def _choose_endorsement(
    certificates: list[x509.Certificate],
    makers: Makers,
    at: float,
    node: str,
    boards: ListedBoards | None,
) -> Endorsement:
    """Return the first endorsement key that a pinned maker vouches for, and the list if any."""
    problems: list[Finding] = []
    for certificate in certificates:
        try:
            endorsement = verify_endorsement(certificate, certificates, makers, at)
            if boards is not None:
                require_listed(boards, node, endorsement)
            return endorsement
        except Unacceptable as refused:
            problems.append(refused.finding)
    # of several certificates, the finding that a person can act on: a revoked one first
    lists = (FindingName.EK_LIST_ENDED, FindingName.EK_LIST_UNFIT)
    telling = (FindingName.EK_REVOKED, FindingName.EK_BOARD, *lists, FindingName.EK_MAKER)
    ordered = [p for name in telling for p in problems if p.name is name]
    raise Unacceptable((ordered or problems)[0])


def _missing(detail: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.EK_MISSING, detail))
