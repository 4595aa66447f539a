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

from provisioner.checks.attestation.certificate_chains import parse_certificate, verify_chain
from provisioner.checks.attestation.trust_anchors import TrustAnchor
from provisioner.model.certificate import (
    Effect,
    Finding,
    FindingName,
    Unacceptable,
    notes,
    unproves,
)

# ------------------------------------------------------------------------------
# CBOR (RFC 8949) as signed manifests use it: a strict reader of definite lengths, and no more.
#
# Tags are kept as they are. A library would build objects from 25 of them while it reads (regular
# expressions, cyclic references, numbers of any size), which is no help with hostile files:
# decision
# 0090. Floats, indefinite lengths, duplicate keys and trailing bytes are refused.


DEPTH_MAX = 24  # a CoRIM has eleven levels
ITEMS_MAX = 20_000
_BYTES = 2
_TEXT = 3
_ARRAY = 4
_MAP = 5
_TAG = 6
_SIMPLE = 7
_SIMPLE_VALUES: Mapping[int, bool | None] = {20: False, 21: True, 22: None}


class NotCbor(ValueError):
    """The bytes are not one CBOR item of the accepted kinds; the text says where."""


@dataclass(frozen=True)
class Tagged:
    number: int
    value: Any


def parse_cbor(raw: bytes) -> Any:
    """Return the one item that the bytes hold: int, bytes, str, bool, None, list, dict or Tagged.

    Raises NotCbor.
    """
    reader = _Reader(raw)
    value = reader.read(0)
    if reader.at != len(raw):
        raise NotCbor(f"{len(raw) - reader.at} bytes behind the item")
    return value


def write_head(major: int, number: int) -> bytes:
    """Return the first bytes of an item in their shortest form: its major type and argument."""
    for limit, info, size in ((24, number, 0), (1 << 8, 24, 1), (1 << 16, 25, 2), (1 << 32, 26, 4)):
        if number < limit:
            return bytes([major << 5 | info]) + (number.to_bytes(size, "big") if size else b"")
    return bytes([major << 5 | 27]) + number.to_bytes(8, "big")


def write_bytes(content: bytes) -> bytes:
    return write_head(_BYTES, len(content)) + content


def write_text(text: str) -> bytes:
    content = text.encode()
    return write_head(_TEXT, len(content)) + content


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self._items = 0

    def read(self, depth: int) -> Any:
        self._items += 1
        if depth > DEPTH_MAX or self._items > ITEMS_MAX:
            raise NotCbor(f"nested too deep or too many items at byte {self.at}")
        begin = self.at
        first = self._take(1)[0]
        major = first >> 5
        if major == _SIMPLE:
            return self._read_simple(first & 31, begin)
        number = self._read_argument(first & 31, begin)
        if major == 0:
            return number
        if major == 1:
            return -1 - number
        if major == _BYTES:
            return self._take(number)
        if major == _TEXT:
            return self._read_text(number, begin)
        if major == _ARRAY:
            self._require(number, begin)
            return [self.read(depth + 1) for _ in range(number)]
        if major == _TAG:
            return Tagged(number, self.read(depth + 1))
        return self._read_map(number, depth, begin)

    def _read_simple(self, info: int, begin: int) -> bool | None:
        if info not in _SIMPLE_VALUES:
            raise NotCbor(f"a float or an unknown simple value at byte {begin}")
        return _SIMPLE_VALUES[info]

    def _read_text(self, size: int, begin: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise NotCbor(f"text that is not UTF-8 at byte {begin}") from None

    def _read_map(self, count: int, depth: int, begin: int) -> dict[int | str, Any]:
        self._require(2 * count, begin)
        entries: dict[int | str, Any] = {}
        for _ in range(count):
            key = self.read(depth + 1)
            if isinstance(key, bool) or not isinstance(key, int | str) or key in entries:
                raise NotCbor(f"a key of another type, or a second one, in the map at byte {begin}")
            entries[key] = self.read(depth + 1)
        return entries

    def _read_argument(self, info: int, begin: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise NotCbor(f"an indefinite or reserved length at byte {begin}")
        return int.from_bytes(self._take(1 << (info - 24)), "big")

    def _require(self, count: int, begin: int) -> None:
        """Refuse a count that the bytes that are left cannot hold, before anything is built."""
        if count > len(self.raw) - self.at:
            raise NotCbor(f"more items than bytes at byte {begin}")

    def _take(self, size: int) -> bytes:
        if size > len(self.raw) - self.at:
            raise NotCbor(f"cut short at byte {self.at}")
        taken = self.raw[self.at : self.at + size]
        self.at += size
        return taken


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
