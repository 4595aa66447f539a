"""The SPDM answers of a simulated device: signed measurements in versions 1.1 and 1.2."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.sim.hardware.device_authority import SimulatedDevice, sign_raw

MEASUREMENTS = 64  # blocks of a GPU's report; an LS10 switch has 31
_NEGOTIATION = bytes.fromhex(
    "10840000"
    "100400000001"
    "0012"  # GET_VERSION; VERSION with one entry: 1.2
    "12e10000"
    + "00" * 16
    + "12610000"
    + "00" * 16  # GET_CAPABILITIES, CAPABILITIES
    + "12e30000"
    "0600" + "12630000"
    "0600"  # NEGOTIATE_ALGORITHMS, ALGORITHMS without tables
)
_PREFIX = b"dmtf-spdm-v1.2.*" * 4 + bytes(6) + b"responder-measurements signing"


def make_values(seed: str, count: int = MEASUREMENTS) -> dict[int, bytes]:
    """Return one 48-byte measurement for each index from 1, following from the seed."""
    return {
        i: hashlib.sha384(f"{seed}/measurement/{i}".encode()).digest() for i in range(1, count + 1)
    }


def write_opaque(fields: Mapping[int, bytes]) -> bytes:
    """Return opaque data: type, size and value of each field."""
    return b"".join(struct.pack("<HH", kind, len(v)) + v for kind, v in fields.items())


def gpu_fields(driver: str, vbios: str, board: str, fwid: bytes, mode: int = 0) -> dict[int, bytes]:
    """Return the opaque fields of a GPU; `board` is project, SKU and chip SKU: G520_0200_885."""
    project, sku, chip = board.split("_")
    groups = bytes.fromhex(vbios.replace(".", ""))
    return {
        6: groups[3::-1] + bytes([groups[4], 0, 0, 0]),
        15: chip.encode().ljust(9, b"\0"),
        17: project.encode() + b"\0",
        18: sku.encode() + b"\0",
        3: driver.encode() + b"\0",
        11: b"\x55",
        20: fwid,
        34: b"\x01\x00",
        36: struct.pack("<H", mode),
    }


@dataclass
class SpdmResponder:
    """A device that answers GET_MEASUREMENTS; a test changes its attributes to make it lie."""

    device: SimulatedDevice
    values: dict[int, bytes]
    opaque: Mapping[int, bytes] = field(default_factory=dict)
    version: int = 0x11
    asks_signature: bool = True
    blocks_counted: int | None = None  # None: as many as there are
    copies: int = 1  # of the first block, for a duplicate index

    def answer(self, nonce: bytes, slot: int = 0) -> bytes:
        """Return request and response, signed, as Redfish's SignedMeasurements carries them."""
        covered = self.write_messages(nonce, slot)
        content = covered
        if self.version >= 0x12:
            content = _PREFIX + hashlib.sha384(covered).digest()
        return covered + sign_raw(self.device.holder.key, content)

    def write_messages(self, nonce: bytes, slot: int = 0) -> bytes:
        """Return everything that the signature covers."""
        negotiation = _NEGOTIATION if self.version >= 0x12 else b""
        request = bytes([self.version, 0xE0, int(self.asks_signature), 0xFF]) + nonce
        rows = list(self.values.items())
        rows = rows[:1] * (self.copies - 1) + rows
        record = b"".join(_block(index, value) for index, value in rows)
        count = len(rows) if self.blocks_counted is None else self.blocks_counted
        opaque = write_opaque(self.opaque)
        responder_nonce = hashlib.sha256(b"responder" + nonce).digest()
        return (
            negotiation
            + request
            + bytes([slot, self.version, 0x60, 0, slot, count])
            + len(record).to_bytes(3, "little")
            + record
            + responder_nonce
            + len(opaque).to_bytes(2, "little")
            + opaque
        )


def _block(index: int, value: bytes) -> bytes:
    return struct.pack("<BBHBH", index, 1, 3 + len(value), 1, len(value)) + value
