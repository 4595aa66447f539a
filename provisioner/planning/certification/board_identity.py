"""The enrolment of a board's TPM: a maker's certificate, and a credential that only this TPM opens.

Pure but for the randomness of the encryption. The agent's answers are hostile until they are judged
here. A quote alone proves no TPM, since any program can sign one: its key counts when a maker that
the site pinned vouches for an endorsement key, and the TPM with that key opens a credential that
names the quote's key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.endorsement_certificates import (
    Endorsement,
    Makers,
    read_endorsement,
    verify_endorsement,
)
from provisioner.checks.attestation.event_log import parse_event_log, read_secure_boot
from provisioner.checks.attestation.tpm_quotes import (
    QuoteEvidence,
    QuoteExpectation,
    digest_key,
    make_credential,
    parse_attestation_key,
    verify_quote,
)
from provisioner.model.base import Record
from provisioner.model.certificate import (
    Effect,
    Finding,
    FindingName,
    Unacceptable,
    contradicts,
    unproves,
)
from provisioner.model.node import BoardTpm, Node, TpmProof

# ------------------------------------------------------------------------------
# Fields of an agent's answers about its TPM: hostile text, read within bounds.


_FIELD_MAX = 2 * 1024 * 1024  # characters in Base64; an event log may have 1 MiB


def decode_field(value: object) -> bytes | None:
    """Return the bytes of a field in Base64; None for anything else."""
    if not isinstance(value, str) or len(value) > _FIELD_MAX:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def read_detail(answer: Mapping[object, object]) -> str:
    """Return the agent's reason, printable and short."""
    detail = answer.get("detail")
    text = detail if isinstance(detail, str) else "without a word"
    return "".join(c if c.isprintable() else " " for c in text[:200])


# ------------------------------------------------------------------------------
# The TPM of a host's board as the proof that an agent speaks for that host.
#
# The agent runs on a machine that a tenant had, and its answer is hostile until it is judged here.
# A key that is enrolled for the board must sign the quote: an agent without it is another
# machine's, or the board was exchanged. Which firmware a board booted is not judged: no values of
# its PCRs are admitted. `board_identity.py` decides which key is enrolled.


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


# ------------------------------------------------------------------------------
# The site's list of endorsement keys: which board's TPM may speak for which node. Pure.
#
# A maker's certificate proves that a key is in a genuine TPM, and not in which board. The list says
# it, from what the supplier of the boards delivered; without a list only a TPM that another node
# has enrolled already is refused.


BOARDS_BYTES_MAX = 4 * 1024 * 1024  # 16,384 nodes with three digests each have less
KEYS_MAX = 16  # of a node
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

ListedBoards = Mapping[str, tuple[str, ...]]  # node -> SHA-256 of keys or certificates, in hex


def parse_boards(raw: bytes) -> ListedBoards:
    """Parse lines of a node's name and its digests; "#" begins a remark. Raises ValueError."""
    if len(raw) > BOARDS_BYTES_MAX:
        raise ValueError(f"it has more than {BOARDS_BYTES_MAX} bytes")
    boards: dict[str, tuple[str, ...]] = {}
    holder: dict[str, str] = {}
    # no other line ends than this one: str.splitlines knows ten more
    for number, line in enumerate(raw.decode("utf-8").split("\n"), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        name = fields[0]
        digests = tuple(digest.replace(":", "").lower() for digest in fields[1:])
        if not _NAME.fullmatch(name) or not all(map(_SHA256.fullmatch, digests)):
            raise ValueError(f"line {number} is no node with SHA-256 digests in hex")
        boards[name] = (*boards.get(name, ()), *digests)
        if not 0 < len(boards[name]) <= KEYS_MAX:
            raise ValueError(f"line {number}: a node has 1 to {KEYS_MAX} digests")
        for digest in digests:
            if holder.setdefault(digest, name) != name:
                raise ValueError(f"line {number}: {holder[digest]} has this digest already")
    return boards


def require_listed(boards: ListedBoards, node: str, endorsement: Endorsement) -> None:
    """Raise Unacceptable unless the list names this endorsement key for the node.

    A digest is that of the public key (SPKI) or that of the certificate.
    """
    own = boards.get(node, ())
    key = digest_key(endorsement.key)
    shown = {key, endorsement.certificate_sha256}
    if shown.intersection(own):
        return
    other = next((name for name, digests in boards.items() if shown.intersection(digests)), "")
    if other:
        raise Unacceptable(contradicts(FindingName.EK_BOARD, f"the list has {key} for {other}"))
    if own:
        detail = f"the list has another key for {node} than {key}"
        raise Unacceptable(contradicts(FindingName.EK_BOARD, detail))
    raise Unacceptable(unproves(FindingName.EK_BOARD, f"the list has no key for {node}, not {key}"))


def find_holder(nodes: Iterable[Node], node: str, tpm: BoardTpm) -> str:
    """Return the name of another node that the same TPM is enrolled for; "" if there is none."""
    for other in nodes:
        if other.id == node or other.tpm is None:
            continue
        same_key = other.tpm.key_sha256 == tpm.key_sha256
        endorsed = tpm.endorsement_sha256
        if same_key or (endorsed and other.tpm.endorsement_sha256 == endorsed):
            return other.id
    return ""


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
