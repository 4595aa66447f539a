"""The opaque data of NVIDIA's GPU and NVSwitch reports: types, sizes and values.

Source of the types: NVIDIA/attestation-sdk 73c032eb, gpu_opaque_data_parser.hpp and
switch_opaque_data_parser.hpp. Unknown types are kept and do not fail; old drivers leave types out.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.checks.attestation.byte_reader import ByteReader, malformed_at
from provisioner.model.attestation import FindingName, Unacceptable, unproves

DRIVER = 3
VBIOS = 6
NVDEC0 = 11
CHIP_SKU = 15
PROJECT = 17
PROJECT_SKU = 18
FWID = 20
SWITCH_PDIS = 22
OPAQUE_VERSION = 34
CHIP_INFO = 35
MODE = 36
OPAQUE_VERSION_MAX = 1  # 0 and 1 are published
NVDEC_ENABLED = 0xAA
NVDEC_DISABLED = 0x55
_MODES = {0: "single", 1: "multi", 2: "PPCIE"}


@dataclass(frozen=True)
class OpaqueData:
    """The values by type."""

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
