"""Signed SPDM measurements: GET_MEASUREMENTS and MEASUREMENTS messages, versions 1.1 and 1.2.

Source of the formats: DMTF DSP0274 (SPDM) 1.1.2 and 1.2.1, DSP8010 ComponentIntegrity v1_3_2 on
`SignedMeasurements`: requests and responses one after the other, only the last one signed; from
SPDM 1.2 on the messages from GET_VERSION to ALGORITHMS stand in front.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from provisioner.model.certificate import FindingName, Unacceptable, contradicts, unproves

# ------------------------------------------------------------------------------
# A reader of binary evidence that names the byte at which a length or a field is wrong.


def malformed_at(offset: int, reason: str) -> Unacceptable:
    """Return the refusal of bytes that cannot be parsed at `offset`."""
    return Unacceptable(unproves(FindingName.MALFORMED, f"at byte {offset}: {reason}"))


class ByteReader:
    """Reads fields one after the other and never past the end."""

    def __init__(self, raw: bytes, *, base: int = 0) -> None:
        self._raw = raw
        self._base = base  # offset of these bytes in the whole document, for messages
        self._at = 0

    @property
    def offset(self) -> int:
        """The offset of the next byte in the whole document."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._raw) - self._at

    def peek(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end, without reading them."""
        return self._raw[self._at : self._at + size]

    def take(self, size: int, field: str) -> bytes:
        """Read `size` bytes. Raises Unacceptable if they are not there."""
        if size > self.left:
            raise malformed_at(self.offset, f"{field} needs {size} bytes, {self.left} are left")
        start = self._at
        self._at += size
        return self._raw[start : self._at]

    def take_little(self, size: int, field: str) -> int:
        return int.from_bytes(self.take(size, field), "little")

    def take_big(self, size: int, field: str) -> int:
        return int.from_bytes(self.take(size, field), "big")


# ------------------------------------------------------------------------------
# The opaque data of NVIDIA's GPU and NVSwitch reports: types, sizes and values.
#
# Source of the types: NVIDIA/attestation-sdk 73c032eb, gpu_opaque_data_parser.hpp and
# switch_opaque_data_parser.hpp. Unknown types are kept and do not fail; old drivers leave types
# out.


DRIVER = 3
VBIOS = 6
NVDEC0 = 11
CHIP_SKU = 15
PROJECT = 17
PROJECT_SKU = 18
FWID = 20
OPAQUE_VERSION = 34
MODE = 36
OPAQUE_VERSION_MAX = 1  # 0 and 1 are published
NVDEC_ENABLED = 0xAA
NVDEC_DISABLED = 0x55
_MODES = {0: "single", 1: "multi", 2: "PPCIE"}


@dataclass(frozen=True)
class OpaqueData:
    values: dict[int, bytes]

    def text(self, kind: int) -> str:
        """Return an ASCII value without its NULs; "" if it is absent or not printable."""
        value = self.values.get(kind, b"").rstrip(b"\0")
        text = value.decode("ascii", errors="replace")
        return text if text.isascii() and text.isprintable() else ""

    def number(self, kind: int) -> int | None:
        """Return a little-endian number; None if it is absent."""
        value = self.values.get(kind)
        return int.from_bytes(value, "little") if value else None

    @property
    def fwid(self) -> bytes:
        """The digest of the first mutable code; b"" if the report does not state it."""
        return self.values.get(FWID, b"")

    @property
    def mode(self) -> str:
        """The multi-GPU mode; "" if the driver does not state it."""
        number = self.number(MODE)
        return "" if number is None else _MODES.get(number, f"mode {number}")

    @property
    def vbios(self) -> str:
        """The VBIOS version as 96.00.A5.00.01; "" if it is absent.

        GPUs write two little-endian words, 00a50096 01000000; LS10 switches write ASCII.
        """
        value = self.values.get(VBIOS, b"")
        if len(value) != 8:
            return self.text(VBIOS).upper()
        first = value[3::-1].hex().upper()
        last = value[4:5].hex().upper()
        return ".".join((*(first[i : i + 2] for i in range(0, 8, 2)), last))


def parse_opaque_data(opaque: bytes, at: int = 0) -> OpaqueData:
    """Parse the types and values; `at` is their offset in the report. Raises Unacceptable."""
    reader = ByteReader(opaque, base=at)
    values: dict[int, bytes] = {}
    while reader.left:
        start = reader.offset
        kind = reader.take_little(2, "opaque type")
        size = reader.take_little(2, "opaque size")
        if kind in values:
            raise malformed_at(start, f"opaque type {kind} is there twice")
        values[kind] = reader.take(size, f"opaque type {kind}")
    parsed = OpaqueData(values)
    version = parsed.number(OPAQUE_VERSION)
    if version is not None and version > OPAQUE_VERSION_MAX:
        detail = f"opaque data version {version}; {OPAQUE_VERSION_MAX} is the newest published"
        raise Unacceptable(unproves(FindingName.VERSION, detail))
    return parsed


SIZE_MAX = 256 * 1024  # bytes; the largest public report has 4,274, a record alone may have 2**24
EXCHANGES_MAX = 256  # one for each measurement index is the most that a BMC makes
V1_1 = 0x11
V1_2 = 0x12
SIGNATURE_SIZE = 96  # r and s of P-384, not DER
_REQUEST = 0xE0
_RESPONSE = 0x60
_SIGNATURE_ASKED = 0x01
_DMTF = 1  # measurement specification
_SIGNING_CONTEXT = b"responder-measurements signing"
# message code -> size of a fixed message in (1.1, 1.2); DSP0274 "Capabilities", with its header
_CAPABILITIES_SIZE = {V1_1: 12, V1_2: 20}


@dataclass(frozen=True)
class Measurement:
    """One block of a measurement record."""

    index: int
    kind: int  # value type of DSP0274: 0 ROM, 1 mutable firmware, …
    raw: bool  # the bits themselves in place of their digest
    value: bytes


@dataclass(frozen=True)
class SignedMeasurements:
    """Parsed evidence. Nothing of it is proved before `is_signed_by` returned True."""

    version: int
    nonce: bytes  # of the signed request
    slot: int
    measurements: tuple[Measurement, ...]
    opaque: bytes  # of the signed response
    opaque_at: int  # its offset, for messages
    transcript: bytes  # everything that the signature covers
    signature: bytes

    def value_at(self, index: int) -> bytes | None:
        """Return the measurement with this index, from 1; None if there is none."""
        return next((m.value for m in self.measurements if m.index == index), None)

    def digest(self) -> str:
        """Return the SHA-256 of all indices and values, in the order of the indices."""
        rows = sorted((m.index, m.value) for m in self.measurements)
        content = b"".join(bytes([i]) + len(v).to_bytes(2, "little") + v for i, v in rows)
        return hashlib.sha256(content).hexdigest()


def parse_signed_measurements(raw: bytes) -> SignedMeasurements:
    """Parse the evidence of one component. Raises Unacceptable."""
    if len(raw) > SIZE_MAX:
        raise malformed_at(SIZE_MAX, f"{len(raw)} bytes are more than any report has")
    reader = ByteReader(raw)
    negotiated = _read_negotiation(reader)
    version = reader.peek(1)[0] if reader.left else 0
    if version >> 4 != 1:  # DSP0274: major version 1
        shown = f"0x{version:02x} begins" if reader.left else "nothing is"
        raise malformed_at(reader.offset, f"{shown} no SPDM message")
    _require_version(version, negotiated, reader.offset)
    measurements: dict[int, Measurement] = {}
    for _ in range(EXCHANGES_MAX):
        nonce, slot = _read_request(reader, version)
        opaque, opaque_at = _read_response(reader, version, measurements)
        if nonce is not None:
            break
        if not reader.left:
            raise _unsigned()
    else:
        raise malformed_at(reader.offset, f"more than {EXCHANGES_MAX} exchanges")
    transcript = raw[: reader.offset]
    signature = reader.take(SIGNATURE_SIZE, "signature")
    if reader.left:
        detail = f"{reader.left} after the signed message"
        raise Unacceptable(contradicts(FindingName.TRAILING_BYTES, detail))
    rows = tuple(measurements[i] for i in sorted(measurements))
    return SignedMeasurements(version, nonce, slot, rows, opaque, opaque_at, transcript, signature)


def is_signed_by(report: SignedMeasurements, key: ec.EllipticCurvePublicKey) -> bool:
    """Return whether the report's signature verifies with this P-384 key."""
    covered = report.transcript
    if report.version >= V1_2:
        covered = _prefix(report.version) + hashlib.sha384(covered).digest()
    r, s = (int.from_bytes(report.signature[i : i + 48], "big") for i in (0, 48))
    try:
        key.verify(encode_dss_signature(r, s), covered, ec.ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _prefix(version: int) -> bytes:
    """DSP0274 1.2 "Signature generation": 100 bytes before the digest that is signed."""
    text = f"dmtf-spdm-v{version >> 4}.{version & 15}.*".encode() * 4
    return text + bytes(100 - len(text) - len(_SIGNING_CONTEXT)) + _SIGNING_CONTEXT


def _unsigned() -> Unacceptable:
    return Unacceptable(unproves(FindingName.UNSIGNED, "the last request asks for no proof"))


def _require_version(version: int, negotiated: int | None, at: int) -> None:
    if version not in (V1_1, V1_2):
        detail = f"SPDM 0x{version:02x} at byte {at}; 1.1 and 1.2 are supported"
        raise Unacceptable(unproves(FindingName.VERSION, detail))
    if version == V1_1 and negotiated is not None:
        detail = "labelled 1.1, with the negotiation in front that begins with 1.2"
        raise Unacceptable(contradicts(FindingName.VERSION, detail))
    if version == V1_2 and negotiated is None:
        detail = "labelled 1.2, without the negotiation that 1.2 signs"
        raise Unacceptable(contradicts(FindingName.VERSION, detail))
    if negotiated is not None and negotiated != version:
        detail = f"0x{negotiated:02x} was negotiated, the messages are 0x{version:02x}"
        raise Unacceptable(contradicts(FindingName.VERSION, detail))


def _read_negotiation(reader: ByteReader) -> int | None:
    """Read GET_VERSION to ALGORITHMS; return the version of the last four, None without any."""
    if reader.peek(2) != b"\x10\x84":
        return None
    reader.take(4, "GET_VERSION")
    _expect(reader, 0x10, 0x04, "VERSION")
    reader.take(1, "VERSION")
    entries = reader.take_little(1, "VERSION")
    reader.take(2 * entries, "VERSION entries")
    version = reader.peek(1)[0] if reader.left else 0
    if version not in _CAPABILITIES_SIZE:
        return version
    for code, field in ((0xE1, "GET_CAPABILITIES"), (0x61, "CAPABILITIES")):
        _expect(reader, version, code, field)
        reader.take(_CAPABILITIES_SIZE[version] - 4, field)
    for code, field in ((0xE3, "NEGOTIATE_ALGORITHMS"), (0x63, "ALGORITHMS")):
        _expect(reader, version, code, field)
        length = reader.take_little(2, field)
        if length < 6:
            raise malformed_at(reader.offset - 2, f"{field} says that it has {length} bytes")
        reader.take(length - 6, field)
    return version


def _expect(reader: ByteReader, version: int, code: int, field: str) -> bytes:
    """Read a message's header of four bytes; return its two parameters."""
    at = reader.offset
    header = reader.take(4, field)
    if header[1] != code:
        raise malformed_at(at + 1, f"code 0x{header[1]:02x} where {field} has 0x{code:02x}")
    if header[0] != version:
        detail = f"{field} is 0x{header[0]:02x} among messages of 0x{version:02x}"
        raise Unacceptable(contradicts(FindingName.VERSION, detail))
    return header[2:]


def _read_request(reader: ByteReader, version: int) -> tuple[bytes | None, int]:
    """Return nonce and slot of a request; no nonce if it asks for no signature."""
    attributes, _ = _expect(reader, version, _REQUEST, "GET_MEASUREMENTS")
    if attributes & _SIGNATURE_ASKED:
        return reader.take(32, "nonce"), reader.take_little(1, "slot")
    if reader.peek(2)[1:] != bytes([_RESPONSE]):
        raise _unsigned()  # nonce and slot stand there all the same: the bit was changed
    return None, 0


def _read_response(
    reader: ByteReader, version: int, measurements: dict[int, Measurement]
) -> tuple[bytes, int]:
    _expect(reader, version, _RESPONSE, "MEASUREMENTS")
    blocks = reader.take_little(1, "number of blocks")
    length = reader.take_little(3, "record length")
    at = reader.offset
    record = ByteReader(reader.take(length, "measurement record"), base=at)
    for _ in range(blocks):
        block = _read_block(record)
        if block.index in measurements:
            raise _blocks(f"index {block.index} is there twice")
        measurements[block.index] = block
    if record.left:
        raise _blocks(f"{blocks} are counted, {record.left} bytes are left in the record")
    reader.take(32, "responder's nonce")
    size = reader.take_little(2, "opaque length")
    return reader.take(size, "opaque data"), reader.offset - size


def _read_block(record: ByteReader) -> Measurement:
    if not record.left:
        raise _blocks("more are counted than the record holds")
    at = record.offset
    index = record.take_little(1, "block index")
    specification = record.take_little(1, "measurement specification")
    size = record.take_little(2, "block size")
    block = ByteReader(record.take(size, "block"), base=record.offset - size)
    if index in (0, 0xFF) or specification != _DMTF:
        raise _blocks(f"index {index} with specification {specification} at byte {at}")
    kind = block.take_little(1, "value type")
    length = block.take_little(2, "value size")
    value = block.take(length, "measurement value")
    if block.left:
        raise _blocks(f"{block.left} bytes too many in the block at byte {at}")
    return Measurement(index=index, kind=kind & 0x7F, raw=bool(kind & 0x80), value=value)


def _blocks(reason: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.MALFORMED, f"blocks: {reason}"))
