"""The TPM of a host's board as the proof that an agent speaks for that host.

The agent runs on a machine that a tenant had, and its answer is hostile until it is judged here.
A key that is enrolled for the board must sign the quote: an agent without it is another machine's,
or the board was exchanged. Which firmware a board booted is not judged: no values of its PCRs are
admitted. `board_identity.py` decides which key is enrolled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.event_log import parse_event_log, read_secure_boot
from provisioner.checks.attestation.tpm_quotes import (
    QuoteEvidence,
    QuoteExpectation,
    verify_quote,
)
from provisioner.model.attestation import Effect, FindingName, Unacceptable
from provisioner.model.base import Record
from provisioner.model.node import BoardTpm
from provisioner.planning.certification.board_answers import decode_field, read_detail

STEP = "provisioner_quote_tpm"  # of the hardware manager in the maintenance image
_FIELDS = ("quote", "signature", "key", "event_log")
# findings that do not concern the identity of the board
_BESIDE = (FindingName.REFERENCE_MISSING, FindingName.RESET_UNCOUNTED)


class BoardProof(Record):
    """The TPM that an agent proved to have; "" in `refused`: nothing speaks against the agent."""

    tpm: BoardTpm | None = None  # None: the machine has none
    refused: str = ""


def bind_nonce(nonce: bytes, certificate: str) -> bytes:
    """Return the bytes that the TPM signs: a nonce bound to the agent's TLS certificate (PEM).

    So a quote counts for this connection only. Raises ValueError for another text.
    """
    der = x509.load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)
    return hashlib.sha256(nonce + hashlib.sha256(der).digest()).digest()


def judge_board(answer: object, bound: bytes, enrolled: BoardTpm | None, now: float) -> BoardProof:
    """Judge an agent's answer to `provisioner_quote_tpm`.

    `enrolled`: the TPM that the board had before; None: it has none yet. The quote alone is no
    reason to enrol its key: the proof of the returned TPM says so.
    """
    if not isinstance(answer, Mapping):
        return BoardProof(refused="its answer about the TPM is no object")
    if answer.get("result") != "done":
        detail = read_detail(answer)
        if answer.get("result") == "unsupported" and enrolled is None:
            return BoardProof()
        return BoardProof(refused=f"it gave no quote of the TPM: {detail}")
    fields = {
        name: decode_field(answer.get(name)) for name in ("quote", "signature", "key", "event_log")
    }
    evidence = QuoteEvidence(**{name: raw or b"" for name, raw in fields.items()})
    if None in fields.values() or not (evidence.quote and evidence.key):
        return BoardProof(refused="its answer about the TPM is malformed")
    # without an enrolment the quote's own key is the expectation: the quote must be signed by it
    first = verify_quote(evidence, QuoteExpectation(bound, key_sha256="-"))
    key = enrolled.key_sha256 if enrolled else first.identity
    result = verify_quote(evidence, QuoteExpectation(bound, key_sha256=key))
    for finding in result.findings:
        no_log = finding.name is FindingName.LOG and finding.effect is Effect.UNPROVES
        if finding.effect is not Effect.NOTES and finding.name not in _BESIDE and not no_log:
            return BoardProof(refused=f"the quote of its TPM is not this board's: {finding}")
    tpm = enrolled or BoardTpm(key_sha256=key, enrolled_at=now)
    secure_boot = _read_secure_boot(evidence.event_log)
    return BoardProof(tpm=tpm.model_copy(update={"secure_boot": secure_boot}))


def _read_secure_boot(raw: bytes) -> bool | None:
    """Return the state that a log measured, which replays to the quote; None if it says none."""
    try:
        return read_secure_boot(parse_event_log(raw)) if raw else None
    except Unacceptable:
        return None
