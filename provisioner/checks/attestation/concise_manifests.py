"""Concise manifests (CoRIM): golden values of roots of trust and NICs, in CBOR signed with COSE.

Form: draft-ietf-rats-corim (tags 500, 501, 502 and 506, reference triples), COSE_Sign1 (RFC 9052)
with ES384 and the signer's chain in `x5chain` (RFC 9360). No manifest of NVIDIA's is public: this
was tried on re-made ones and on the samples of another implementation, never on a genuine one.
A key of a measurement that is a number is taken as the index of the SPDM measurement.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from provisioner.checks.attestation.cbor_values import (
    NotCbor,
    Tagged,
    parse_cbor,
    write_bytes,
    write_head,
    write_text,
)
from provisioner.checks.attestation.certificate_chains import parse_certificate, verify_chain
from provisioner.checks.attestation.trust_anchors import TrustAnchor
from provisioner.model.attestation import (
    Effect,
    Finding,
    FindingName,
    Unacceptable,
    notes,
    unproves,
)

SIZE_MAX = 256 * 1024
CHAIN_MAX = 8
_SIGN1 = 18
_OUTER = 500
_UNSIGNED = 501
_SIGNED = 502
_COMID = 506
# labels of COSE headers
_ALG = 1
_CRIT = 2
_X5CHAIN = 33
_ES384 = -35
# of corim-map
_ID = 0
_TAGS = 1
# of concise-mid-tag and triples-map
_TRIPLES = 4
_REFERENCES = 0
# of environment-map and class-map
_CLASS = 0
_VENDOR = 1
_MODEL = 2
_MKEY = 0
_MVAL = 1
_VERSION = 0
_DIGESTS = 2
_RAW = 4
_INDEX_MAX = 254
# algorithms of digests (IANA named-information registry; newer drafts allow the name) -> bytes
_SIZES: Mapping[int | str, int] = {1: 32, 7: 48, 8: 64, "sha-256": 32, "sha-384": 48, "sha-512": 64}


@dataclass(frozen=True)
class ConciseValues:
    """The reference values of one environment: whose they are, and the digests by index."""

    vendor: str
    model: str
    version: str
    digests: Mapping[int, tuple[str, ...]]  # lowercase hex
    unnamed: int = 0  # values whose key is no index: not used


@dataclass(frozen=True)
class ConciseManifest:
    """A manifest and whether its values may be used: `findings` say why not."""

    rim_id: str
    sha256: str
    values: tuple[ConciseValues, ...] = ()  # empty if not trusted
    findings: tuple[Finding, ...] = ()


def is_concise(raw: bytes) -> bool:
    """Return whether the bytes begin as a CoRIM does, signed or not."""
    heads = [write_head(6, number) for number in (_SIGN1, _OUTER, _UNSIGNED, _SIGNED)]
    return any(raw.startswith(head) for head in heads)


def read_concise(
    raw: bytes, anchors: tuple[TrustAnchor, ...], at: float, admitted_at: float
) -> ConciseManifest:
    """Parse and verify a signed CoRIM; its faults are findings of the result, never exceptions.

    Its signer must have been valid when the manifest was admitted.
    """
    sha256 = hashlib.sha256(raw).hexdigest()
    rim_id = ""
    try:
        protected, unprotected, payload, signature = _open(raw)
        corim = _unwrap(_parse(payload), _UNSIGNED)
        rim_id = _read_id(corim)
        values = tuple(_list_values(corim))
        if not any(one.digests for one in values):
            raise _refused("it names no value by an index of a measurement")
        findings = _verify(protected, unprotected, payload, signature, anchors, at, admitted_at)
    except Unacceptable as refused:
        return ConciseManifest(rim_id, sha256, findings=(refused.finding,))
    if any(f.effect is not Effect.NOTES for f in findings):
        return ConciseManifest(rim_id, sha256, findings=findings)
    return ConciseManifest(rim_id, sha256, values, findings)


def _refused(reason: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.RIM_STRUCTURE, reason))


def _parse(raw: bytes) -> Any:
    try:
        return parse_cbor(raw)
    except NotCbor as error:
        raise _refused(f"it is not CBOR as expected: {error}") from None


def _unwrap(value: Any, *numbers: int) -> Any:
    """Return the value behind these tags, each of which may be there once."""
    for number in numbers:
        if isinstance(value, Tagged) and value.number == number:
            value = value.value
    return value


def _open(raw: bytes) -> tuple[bytes, Mapping[Any, Any], bytes, bytes]:
    """Return protected headers, other headers, payload and signature of a COSE_Sign1."""
    if len(raw) > SIZE_MAX:
        raise _refused(f"{len(raw)} bytes are more than any manifest has")
    message = _parse(raw)
    if isinstance(message, Tagged) and message.number == _UNSIGNED:
        raise Unacceptable(unproves(FindingName.RIM_SIGNATURE, "the manifest is not signed"))
    message = _unwrap(message, _OUTER, _SIGNED, _SIGN1)
    if not (isinstance(message, list) and len(message) == 4):
        raise _refused("it is no COSE_Sign1")
    protected, unprotected, payload, signature = message
    texts = (protected, payload, signature)
    if not (all(isinstance(t, bytes) for t in texts) and isinstance(unprotected, dict)):
        raise _refused("it is no COSE_Sign1 with its payload")
    return protected, unprotected, payload, signature


def _verify(
    protected: bytes,
    unprotected: Mapping[Any, Any],
    payload: bytes,
    signature: bytes,
    anchors: tuple[TrustAnchor, ...],
    at: float,
    admitted_at: float,
) -> tuple[Finding, ...]:
    """Return the findings about the signer; raises Unacceptable for a bad signature."""
    headers = _parse(protected) if protected else {}
    if not isinstance(headers, dict) or _CRIT in headers:
        raise _refused("its headers are no map, or name extensions that must be understood")
    if headers.get(_ALG) != _ES384:
        raise Unacceptable(unproves(FindingName.ALGORITHM, "the manifest is not signed by ES384"))
    certificates = _read_chain(headers.get(_X5CHAIN, unprotected.get(_X5CHAIN)))
    try:
        chain = verify_chain(certificates, anchors, admitted_at)
    except Unacceptable as refused:
        raise Unacceptable(_restate(refused.finding, anchored=False)) from None
    parts = (write_text("Signature1"), write_bytes(protected), write_bytes(b""))
    signed = write_head(4, 4) + b"".join(parts) + write_bytes(payload)
    if not _is_signed(chain.leaf, signature, signed):
        detail = "it does not verify with the signer's key"
        raise Unacceptable(unproves(FindingName.RIM_SIGNATURE, detail))
    findings = tuple(_restate(f, anchored=chain.anchor is not None) for f in chain.findings)
    ends = min(c.not_valid_after_utc for c in chain.certificates).timestamp()
    if at > ends and not any(f.name is FindingName.RIM_EXPIRED for f in findings):
        detail = "valid when the reference was admitted"
        findings += (notes(FindingName.RIM_EXPIRED_SINCE, detail),)
    return findings


def _is_signed(leaf: x509.Certificate, signature: bytes, signed: bytes) -> bool:
    """Return whether r and s, 48 bytes each, verify with the P-384 key of the leaf."""
    key = leaf.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or len(signature) != 96:
        return False
    r, s = (int.from_bytes(signature[i : i + 48], "big") for i in (0, 48))
    try:
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _restate(finding: Finding, *, anchored: bool) -> Finding:
    """A fault of the signer's chain is a fault of the reference, not of the device."""
    if finding.effect is Effect.NOTES:
        return finding
    if finding.name is FindingName.NOT_VALID:
        return unproves(FindingName.RIM_EXPIRED, finding.detail)
    name = FindingName.RIM_CHAIN if anchored else FindingName.RIM_ANCHOR
    return unproves(name, finding.detail)


def _read_chain(header: Any) -> tuple[x509.Certificate, ...]:
    """Return the certificates of `x5chain`: one as bytes, or a list of them."""
    rows = header if isinstance(header, list) else [header]
    if not 0 < len(rows) <= CHAIN_MAX or not all(isinstance(r, bytes) for r in rows):
        raise Unacceptable(unproves(FindingName.RIM_CHAIN, "it carries no chain of its signer"))
    try:
        return tuple(parse_certificate(row) for row in rows)
    except (ValueError, TypeError):
        detail = "a certificate of its signer cannot be parsed"
        raise Unacceptable(unproves(FindingName.RIM_CHAIN, detail)) from None


def _read_id(corim: Any) -> str:
    named = corim.get(_ID) if isinstance(corim, dict) else None
    if isinstance(named, bytes):
        return named.hex()[:64]
    if isinstance(named, Tagged) and isinstance(named.value, bytes):
        return named.value.hex()[:64]
    return _clean(named)


def _clean(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(c for c in text if c.isprintable())[:120]


def _list_values(corim: Any) -> Iterator[ConciseValues]:
    """Return the reference values of every module tag; other tags are passed over."""
    tags = corim.get(_TAGS) if isinstance(corim, dict) else None
    if not isinstance(tags, list):
        raise _refused("it is no CoRIM with tags")
    for tag in tags:
        inner = tag
        if isinstance(tag, bytes):  # older drafts wrap each tag in bytes
            inner = _parse(tag)
        if isinstance(inner, Tagged) and inner.number == _COMID:
            body = inner.value
            module = _parse(body) if isinstance(body, bytes) else body
            yield from _list_references(module)


def _list_references(module: Any) -> Iterator[ConciseValues]:
    triples = module.get(_TRIPLES) if isinstance(module, dict) else None
    if not isinstance(triples, dict):
        raise _refused("a module tag has no triples")
    records = triples.get(_REFERENCES, [])
    for record in records if isinstance(records, list) else [records]:
        if not (isinstance(record, list) and len(record) == 2 and isinstance(record[0], dict)):
            raise _refused("a reference triple is no pair of environment and values")
        rows = record[1] if isinstance(record[1], list) else [record[1]]
        yield _read_values(record[0], rows)


def _read_values(environment: Mapping[Any, Any], rows: list[Any]) -> ConciseValues:
    named = environment.get(_CLASS, {})
    of_class = named if isinstance(named, dict) else {}
    digests: dict[int, tuple[str, ...]] = {}
    version = ""
    unnamed = 0
    for row in rows:
        values = row.get(_MVAL) if isinstance(row, dict) else None
        if not isinstance(values, dict):
            raise _refused("a measurement has no values")
        written = values.get(_VERSION)
        version = version or _clean(written.get(0) if isinstance(written, dict) else "")
        key = row.get(_MKEY)
        accepted = _read_accepted(values)
        if isinstance(key, bool) or not isinstance(key, int) or not accepted:
            unnamed += 1
        elif not 1 <= key <= _INDEX_MAX or key in digests:
            raise _refused(f"index {key} is there twice, or is none of a measurement")
        else:
            digests[key] = accepted
    vendor = _clean(of_class.get(_VENDOR))
    model = _clean(of_class.get(_MODEL))
    return ConciseValues(vendor, model, version, digests, unnamed)


def _read_accepted(values: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the digests, or the raw value, of one measurement; () if it has neither."""
    rows = values.get(_DIGESTS, [])
    if not isinstance(rows, list):
        raise _refused("the digests of a measurement are no list")
    accepted = []
    for row in rows:
        if not (isinstance(row, list) and len(row) == 2 and isinstance(row[1], bytes)):
            raise _refused("a digest is no pair of algorithm and bytes")
        if not isinstance(row[0], int | str) or _SIZES.get(row[0]) != len(row[1]):
            raise _refused("a digest has not the size of its algorithm")
        accepted.append(row[1].hex())
    raw = values.get(_RAW)
    if isinstance(raw, Tagged) and isinstance(raw.value, bytes) and 0 < len(raw.value) <= 64:
        accepted.append(raw.value.hex())
    return tuple(accepted)
