"""Quotes of a TPM 2.0: the attestation structure, its signature, and its boot's event log.

Source of the formats: TCG TPM 2.0 Library, Part 2 "Structures" (TPMS_ATTEST, TPMT_SIGNATURE). A
quote proves that a TPM with the enrolled attestation key saw this boot; the event log says which
boot that was, and counts only if it replays to the quoted digest.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)

from provisioner.checks.attestation.event_log import SHA256 as ALG_SHA256
from provisioner.checks.attestation.event_log import (
    EventLog,
    digest_pcrs,
    find_edited_variables,
    parse_event_log,
    read_secure_boot,
    replay_events,
)
from provisioner.checks.attestation.spdm_messages import ByteReader, malformed_at
from provisioner.model.certificate import (
    Attestation,
    Finding,
    FindingName,
    Measurements,
    Mismatch,
    Unacceptable,
    contradicts,
    judge_findings,
    notes,
    unproves,
)

# ------------------------------------------------------------------------------
# The proof that an attestation key is in the TPM of an endorsement key: a credential to open.
#
# Source: TCG TPM 2.0 Library, Part 1, "Credential Protection", and Part 2, TPMT_PUBLIC. No TPM is
# needed here. The credential is encrypted to the endorsement key and to the name of the attestation
# key, so that only a TPM that holds both opens it (TPM2_ActivateCredential). The endorsement key
# has the template of its kind in the TCG's EK Credential Profile: SHA-256 and AES-128-CFB, or of
# the high range SHA-384 and AES-256-CFB.


SECRET_BYTES = 32  # no longer than a digest of the endorsement key's name algorithm
PUBLIC_BYTES_MAX = 1024  # ours has 90
_FILE_HEAD = struct.pack(">II", 0xBADCC0DE, 1)  # of files of tpm2_makecredential
_ECC = 0x0023
_SHA256 = 0x000B
_NULL = 0x0010
_ECDSA = 0x0018
_P256 = 0x0003
# fixedTPM, fixedParent, sensitiveDataOrigin, restricted, sign; a restricted key signs only what the
# TPM itself states, and one with `decrypt` is no signing key
_NEEDED = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 18
_DECRYPT = 1 << 17

RSA_HIGH_BITS = 3072
EndorsementKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class _Template:
    """The algorithms of one kind of endorsement key."""

    digest: HashAlgorithm
    curve: ec.EllipticCurve
    cipher_bytes: int


_LOW = _Template(SHA256(), ec.SECP256R1(), 16)
_HIGH = _Template(SHA384(), ec.SECP384R1(), 32)


@dataclass(frozen=True)
class AttestationKey:
    """The public area of an attestation key: its name covers key and attributes."""

    name: bytes
    spki_sha256: str


def parse_attestation_key(raw: bytes) -> AttestationKey:
    """Parse TPM2B_PUBLIC of a restricted P-256 signing key. Raises Unacceptable."""
    if len(raw) > PUBLIC_BYTES_MAX:
        raise malformed_at(PUBLIC_BYTES_MAX, "no public area is that long")
    reader = ByteReader(raw)
    content = reader.take(reader.take_big(2, "size"), "public area")
    if reader.left:
        raise malformed_at(reader.offset, "something stands behind the public area")
    area = ByteReader(content)
    kinds = (area.take_big(2, "type"), area.take_big(2, "name algorithm"))
    attributes = area.take_big(4, "attributes")
    area.take(area.take_big(2, "policy size"), "policy")
    parameters = tuple(area.take_big(2, "parameter") for _ in range(5))
    if kinds != (_ECC, _SHA256) or parameters != (_NULL, _ECDSA, _SHA256, _P256, _NULL):
        raise malformed_at(2, "it is no P-256 key that signs with ECDSA and SHA-256")
    if attributes & _NEEDED != _NEEDED or attributes & _DECRYPT:
        detail = f"attributes 0x{attributes:08x}: not a restricted key that never left its TPM"
        raise malformed_at(6, detail)
    x = int.from_bytes(area.take(area.take_big(2, "size"), "coordinate"), "big")
    y = int.from_bytes(area.take(area.take_big(2, "size"), "coordinate"), "big")
    if area.left:
        raise malformed_at(area.offset, "something stands behind the key")
    try:
        key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    except ValueError:
        raise malformed_at(area.offset, "its point is not on the curve") from None
    name = struct.pack(">H", _SHA256) + hashlib.sha256(content).digest()
    return AttestationKey(name, digest_key(key))


def digest_key(key: EndorsementKey) -> str:
    """Return the SHA-256 of a public key (SPKI), in hex."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def name_template(key: object) -> str:
    """Return the kind of an endorsement key, as `tpm2_createek` calls it; "" for any other."""
    if isinstance(key, rsa.RSAPublicKey):
        return {2048: "rsa", RSA_HIGH_BITS: "rsa3072"}.get(key.key_size, "")
    if isinstance(key, ec.EllipticCurvePublicKey):
        return {"secp256r1": "ecc", "secp384r1": "ecc384"}.get(key.curve.name, "")
    return ""


def make_credential(key: EndorsementKey, name: bytes, secret: bytes) -> bytes:
    """Return a credential as a file of tpm2_makecredential: the secret, for one TPM and one key."""
    template = _HIGH if name_template(key) in ("rsa3072", "ecc384") else _LOW
    seed, encrypted_seed = _make_seed(key, template)
    content = struct.pack(">H", len(secret)) + secret
    encrypted = _encrypt_identity(template, seed, name, content)
    protected = _sized(_digest_identity(template, seed, name, encrypted)) + encrypted
    return _FILE_HEAD + _sized(protected) + _sized(encrypted_seed)


def _encrypt_identity(template: _Template, seed: bytes, name: bytes, content: bytes) -> bytes:
    """Encrypt with the key that follows from the seed and from the name (AES-CFB)."""
    key = _derive(template, seed, b"STORAGE", name, template.cipher_bytes)
    encryptor = Cipher(algorithms.AES(key), CFB(bytes(16))).encryptor()
    return encryptor.update(content) + encryptor.finalize()


def _digest_identity(template: _Template, seed: bytes, name: bytes, encrypted: bytes) -> bytes:
    """Return the HMAC over the encrypted secret and the name."""
    key = _derive(template, seed, b"INTEGRITY", b"", template.digest.digest_size)
    code = HMAC(key, template.digest)
    code.update(encrypted + name)
    return code.finalize()


def _agree_on_seed(template: _Template, shared: bytes, ours: int, theirs: int) -> bytes:
    """Return the seed of an ECC endorsement key: KDFe of the shared x and of both keys' x."""
    size = template.digest.digest_size
    parties = b"".join(number.to_bytes(size, "big") for number in (ours, theirs))
    return ConcatKDFHash(template.digest, size, b"IDENTITY\0" + parties).derive(shared)


def _make_seed(key: EndorsementKey, template: _Template) -> tuple[bytes, bytes]:
    """Return a seed, and the same encrypted so that the endorsement key's TPM alone has it."""
    size = template.digest.digest_size  # of a coordinate, too
    if isinstance(key, rsa.RSAPublicKey):
        seed = os.urandom(size)
        oaep = padding.OAEP(padding.MGF1(template.digest), template.digest, b"IDENTITY\0")
        return seed, key.encrypt(seed, oaep)
    own = ec.generate_private_key(template.curve)
    point = own.public_key().public_numbers()
    shared = own.exchange(ec.ECDH(), key)
    seed = _agree_on_seed(template, shared, point.x, key.public_numbers().x)
    return seed, b"".join(_sized(number.to_bytes(size, "big")) for number in (point.x, point.y))


def _derive(template: _Template, seed: bytes, label: bytes, context: bytes, size: int) -> bytes:
    """KDFa of the TPM's specification: SP 800-108 in counter mode."""
    before = CounterLocation.BeforeFixed
    return KBKDFHMAC(
        template.digest, Mode.CounterMode, size, 4, 4, before, label, context, None
    ).derive(seed)


def _sized(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


QUOTE_BYTES_MAX = 4096  # swtpm's has 145
_MAGIC = 0xFF544347
_QUOTE = 0x8018
_RSASSA = 0x0014
_RSAPSS = 0x0016


@dataclass(frozen=True)
class Quote:
    """A parsed TPMS_ATTEST of a quote. Nothing of it is proved before its signature is."""

    signer: bytes  # qualified name of the attestation key
    nonce: bytes
    reset_count: int  # rises with each reset of the board
    restart_count: int
    is_clock_safe: bool
    firmware: int
    pcrs: tuple[int, ...]  # of the SHA-256 bank
    pcr_digest: bytes


@dataclass(frozen=True)
class QuoteEvidence:
    """The answer of an agent: quote, signature (DER or TPMT_SIGNATURE), key and event log."""

    quote: bytes
    signature: bytes
    key: bytes  # public attestation key, PEM or DER
    event_log: bytes = b""


@dataclass(frozen=True)
class QuoteExpectation:
    """What we know of this board's TPM, and what we asked."""

    nonce: bytes | None  # None: nothing is known about freshness
    key_sha256: str  # SPKI of the attestation key that was enrolled for this board; "": none
    reset_count: int | None = None  # that our own resets lead to; None: not counted yet
    secure_boot: bool | None = None  # as the BMC reports it
    golden_pcrs: tuple[tuple[int, tuple[str, ...]], ...] = ()  # PCR -> accepted values, hex
    reference: str = ""  # of the golden values: the matrix row that they came from


def parse_quote(raw: bytes) -> Quote:
    """Parse TPMS_ATTEST. Raises Unacceptable."""
    if len(raw) > QUOTE_BYTES_MAX:
        raise malformed_at(QUOTE_BYTES_MAX, f"{len(raw)} bytes are more than any quote has")
    reader = ByteReader(raw)
    if reader.take_big(4, "magic") != _MAGIC or reader.take_big(2, "type") != _QUOTE:
        raise malformed_at(0, "it is no quote that a TPM made")
    signer = reader.take(reader.take_big(2, "name size"), "name")
    nonce = reader.take(reader.take_big(2, "nonce size"), "nonce")
    reader.take(8, "clock")
    reset_count = reader.take_big(4, "reset count")
    restart_count = reader.take_big(4, "restart count")
    is_safe = reader.take_big(1, "safe") == 1
    firmware = reader.take_big(8, "firmware version")
    pcrs = _read_selection(reader)
    digest = reader.take(reader.take_big(2, "digest size"), "PCR digest")
    if reader.left:
        detail = f"{reader.left} after the quote"
        raise Unacceptable(contradicts(FindingName.TRAILING_BYTES, detail))
    return Quote(signer, nonce, reset_count, restart_count, is_safe, firmware, pcrs, digest)


def verify_quote(evidence: QuoteEvidence, expected: QuoteExpectation) -> Attestation:
    """Return the verdict about one board's quote; faults are findings, never exceptions."""
    sha256 = hashlib.sha256(evidence.quote + evidence.event_log).hexdigest()
    key_sha256 = _digest_key(evidence.key)
    try:
        quote = parse_quote(evidence.quote)
        log = parse_event_log(evidence.event_log) if evidence.event_log else None
    except Unacceptable as refused:
        return _conclude((refused.finding,), key_sha256, sha256)
    findings = [*_check_key(key_sha256, expected.key_sha256)]
    signed = _is_signed(evidence)
    if expected.nonce is None:
        detail = "none was given: the quote may be of any time"
        findings.append(unproves(FindingName.NONCE, detail))
    elif quote.nonce != expected.nonce:
        name = FindingName.REPLAYED if signed else FindingName.NONCE
        findings.append(contradicts(name, "not the nonce we asked"))
    if not signed:
        findings.append(contradicts(FindingName.SIGNATURE, "it does not verify with this key"))
        return _conclude(tuple(findings), key_sha256, sha256, quote)
    findings += _check_resets(quote, expected.reset_count)
    if log is None:
        findings.append(unproves(FindingName.LOG, "no event log came with the quote"))
        return _conclude(tuple(findings), key_sha256, sha256, quote)
    findings += _check_log(quote, log)
    mismatches: tuple[Mismatch, ...] = ()
    if not any(f.name is FindingName.LOG for f in findings):
        findings += _check_secure_boot(log, reported=expected.secure_boot)
        mismatches = _compare_pcrs(quote, log, expected)
        findings += [_describe(m) for m in mismatches]
    if not expected.golden_pcrs:
        findings.append(unproves(FindingName.REFERENCE_MISSING, "no PCR values are admitted"))
    golden = len(expected.golden_pcrs)
    counts = Measurements(golden=golden, matched=golden - len(mismatches))
    result = _conclude(tuple(findings), key_sha256, sha256, quote)
    return result.model_copy(update={"measurements": counts, "mismatches": mismatches})


def _conclude(
    findings: tuple[Finding, ...], key_sha256: str, sha256: str, quote: Quote | None = None
) -> Attestation:
    return Attestation(
        verdict=judge_findings(findings),
        component=f"TPM {key_sha256[:16]}".strip(),
        kind="tpm.quote",
        identity=key_sha256,
        findings=findings,
        nonce=quote.nonce.hex() if quote else "",
        measurement_digest=quote.pcr_digest.hex() if quote else "",
        evidence_sha256=sha256,
    )


def _read_selection(reader: ByteReader) -> tuple[int, ...]:
    """Read TPML_PCR_SELECTION; only one selection, of the SHA-256 bank, is accepted."""
    at = reader.offset
    if reader.take_big(4, "selections") != 1 or reader.take_big(2, "bank") != ALG_SHA256:
        raise malformed_at(at, "it does not quote the SHA-256 bank, and that alone")
    bits = int.from_bytes(reader.take(reader.take_big(1, "selection size"), "selection"), "little")
    return tuple(n for n in range(24) if bits >> n & 1)


def _digest_key(raw: bytes) -> str:
    key = _load_key(raw)
    if key is None:
        return ""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _load_key(raw: bytes) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey | None:
    try:
        key = load_pem_public_key(raw) if raw.startswith(b"-----") else load_der_public_key(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)) else None


def _check_key(key_sha256: str, enrolled: str) -> tuple[Finding, ...]:
    if not enrolled:
        return (unproves(FindingName.AK, "no attestation key is enrolled for this board"),)
    if key_sha256 != enrolled:
        detail = f"{key_sha256[:16] or 'no key'} is not the enrolled {enrolled[:16]}"
        return (contradicts(FindingName.AK, detail),)
    return ()


def _is_signed(evidence: QuoteEvidence) -> bool:
    key = _load_key(evidence.key)
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            der = _read_ecdsa(evidence.signature)
            key.verify(der, evidence.quote, ec.ECDSA(SHA256()))
        elif key is not None:
            raw, pad = _read_rsa(evidence.signature)
            key.verify(raw, evidence.quote, pad, SHA256())
    except (InvalidSignature, ValueError, Unacceptable, UnsupportedAlgorithm):
        return False
    return key is not None


def _read_ecdsa(raw: bytes) -> bytes:
    """DER as `tpm2_quote -f plain` writes it, or TPMT_SIGNATURE."""
    if raw[:1] == b"\x30":
        return raw
    reader = ByteReader(raw)
    _expect_scheme(reader, (_ECDSA,))
    r, s = (
        int.from_bytes(reader.take(reader.take_big(2, "size"), "number"), "big") for _ in range(2)
    )
    return encode_dss_signature(r, s)


def _read_rsa(raw: bytes) -> tuple[bytes, padding.AsymmetricPadding]:
    """The plain signature (PKCS #1 1.5), or TPMT_SIGNATURE."""
    if len(raw) in (256, 384, 512):
        return raw, padding.PKCS1v15()
    reader = ByteReader(raw)
    scheme = _expect_scheme(reader, (_RSASSA, _RSAPSS))
    signature = reader.take(reader.take_big(2, "size"), "signature")
    if scheme == _RSASSA:
        return signature, padding.PKCS1v15()
    return signature, padding.PSS(padding.MGF1(SHA256()), padding.PSS.AUTO)


def _expect_scheme(reader: ByteReader, schemes: tuple[int, ...]) -> int:
    scheme = reader.take_big(2, "scheme")
    if scheme not in schemes or reader.take_big(2, "hash") != ALG_SHA256:
        raise malformed_at(0, f"signature scheme 0x{scheme:04x}")
    return scheme


def _check_resets(quote: Quote, expected: int | None) -> tuple[Finding, ...]:
    if expected is None:
        detail = f"the TPM counts {quote.reset_count}; ours are not counted yet"
        return (notes(FindingName.RESET_UNCOUNTED, detail),)
    if quote.reset_count != expected:
        detail = f"the TPM counts {quote.reset_count}, our resets lead to {expected}"
        return (contradicts(FindingName.RESET, detail),)
    return ()


def _check_log(quote: Quote, log: EventLog) -> tuple[Finding, ...]:
    if digest_pcrs(replay_events(log), quote.pcrs) != quote.pcr_digest:
        detail = "its events lead to other PCR values than those quoted"
        return (contradicts(FindingName.LOG, detail),)
    places = find_edited_variables(log)
    if places:
        detail = f"the data of event {places[0]} are not those that were measured"
        return (contradicts(FindingName.LOG, detail),)
    return ()


def _check_secure_boot(log: EventLog, *, reported: bool | None) -> tuple[Finding, ...]:
    measured = read_secure_boot(log)
    if reported is None or measured is None or reported == measured:
        return ()
    words = {True: "on", False: "off"}
    detail = f"the BMC reports Secure Boot {words[reported]}, PCR 7 says {words[measured]}"
    return (contradicts(FindingName.CONTRADICTION, detail),)


def _compare_pcrs(quote: Quote, log: EventLog, expected: QuoteExpectation) -> tuple[Mismatch, ...]:
    """Compare the PCRs that are quoted; one that is not quoted has no value."""
    values = replay_events(log)
    rows = []
    for pcr, golden in expected.golden_pcrs:
        value = values[pcr].hex() if pcr in quote.pcrs else ""
        if value not in golden:
            rows.append(
                Mismatch(index=pcr, reference=expected.reference, golden=golden, measured=value)
            )
    return tuple(rows)


def _describe(mismatch: Mismatch) -> Finding:
    golden = " or ".join(g[:24] for g in mismatch.golden)
    detail = f"PCR {mismatch.index}: golden {golden}…, measured {mismatch.measured[:24]}…"
    return contradicts(FindingName.MEASUREMENT, detail)
