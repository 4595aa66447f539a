"""Xid 74 on Hopper: seven registers, of which four are valid, decoded bit by bit.

Source: NVIDIA Xid catalogue, bucket WORKFLOW_NVLINK_ERR. A bit that the workflow does not name, or
a register that Hopper does not have, gets the worst severity.
"""

from __future__ import annotations

import re
from enum import StrEnum

from provisioner.checks.xid.error_codes import UNKNOWN, Part, select_worst
from provisioner.model.base import Record
from provisioner.model.health import Severity

XID = 74
REGISTERS = 7
SOURCE = "NVIDIA Xid catalogue, WORKFLOW_NVLINK_ERR"
# "fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
_MESSAGE = re.compile(
    r"link\s+(\d{1,3})\s*\(\s*((?:0x[0-9a-fA-F]{1,8}\s*,\s*){6}0x[0-9a-fA-F]{1,8})\s*\)"
)


class NvlinkMeaning(StrEnum):
    """The meaning of a bit, in the workflow's order."""

    HARMLESS = "can be ignored"
    SYMPATHETIC = "follows another error; alone, report it"
    RESET_FABRIC = "follows another error, and the fabric must be reset"
    ECC = "hardware, ECC or parity: more than twice on one link is a fault of the part"
    SEATING = "perhaps hardware: check the link's seating, then field diagnosis"
    SIGNAL = "marginal signal: check the link's seating, field diagnosis"
    REPEATED = "report it if it is seen again and again"
    REPEATED_DIAG = "if it is seen again and again: field diagnosis"
    NOT_EXPECTED = "never expected in production: report it"
    THRESHOLD = "many corrected ECC errors: operation continues; run field diagnosis"
    UNLISTED = "in no published table"


SEVERITIES: dict[NvlinkMeaning, Severity | None] = {
    NvlinkMeaning.HARMLESS: None,
    NvlinkMeaning.SYMPATHETIC: Severity.MONITOR,
    NvlinkMeaning.RESET_FABRIC: Severity.RESET_GPU,
    NvlinkMeaning.ECC: Severity.RESET_GPU,
    NvlinkMeaning.SEATING: Severity.ISOLATE,
    NvlinkMeaning.SIGNAL: Severity.ISOLATE,
    NvlinkMeaning.REPEATED: Severity.MONITOR,
    NvlinkMeaning.REPEATED_DIAG: Severity.MONITOR,
    NvlinkMeaning.NOT_EXPECTED: Severity.ISOLATE,
    NvlinkMeaning.THRESHOLD: Severity.MONITOR,
    NvlinkMeaning.UNLISTED: UNKNOWN,
}
# The workflow names a part for these two only; for ECC and parity it does not name the faulty end.
PARTS: dict[NvlinkMeaning, Part] = {
    NvlinkMeaning.SEATING: Part.LINK,
    NvlinkMeaning.SIGNAL: Part.LINK,
}

# register (from 1, as the workflow counts) -> meaning -> bits
BITS: dict[int, dict[NvlinkMeaning, tuple[int, ...]]] = {
    1: {
        NvlinkMeaning.HARMLESS: (0, 23, 30),
        NvlinkMeaning.SYMPATHETIC: (1, 20),
        NvlinkMeaning.ECC: (4, 5),
        NvlinkMeaning.SEATING: (8, 9, 12, 16, 17, 24, 28),
        NvlinkMeaning.SIGNAL: (21, 22),
        NvlinkMeaning.REPEATED: (27, 29),
    },
    3: {
        NvlinkMeaning.ECC: (0, 1, 2, 6),
        NvlinkMeaning.NOT_EXPECTED: (13,),
        NvlinkMeaning.REPEATED_DIAG: (16, 19),
        NvlinkMeaning.REPEATED: (17, 18),
    },
    4: {
        NvlinkMeaning.SYMPATHETIC: (16, 17),
        NvlinkMeaning.RESET_FABRIC: (18,),
    },
    5: {
        NvlinkMeaning.ECC: (18, 19, 21, 22, 24, 25, 27, 28),
        NvlinkMeaning.THRESHOLD: (20, 23, 26, 29),
    },
}


class NvlinkBit(Record):
    """One set bit of one register."""

    register_number: int
    bit: int
    meaning: NvlinkMeaning

    @property
    def severity(self) -> Severity | None:
        return SEVERITIES[self.meaning]

    @property
    def part(self) -> Part:
        return PARTS.get(self.meaning, Part.UNKNOWN)

    def __str__(self) -> str:
        where = "" if self.part is Part.UNKNOWN else f" ({self.part})"
        return f"register {self.register_number} bit {self.bit}: {self.meaning.value}{where}"


def decode_registers(registers: tuple[int, ...]) -> tuple[NvlinkBit, ...]:
    """Return every set bit with its meaning."""
    bits_found = []
    for number, value in enumerate(registers[:REGISTERS], start=1):
        named = {b: m for m, bits in BITS.get(number, {}).items() for b in bits}
        bits_found += [
            NvlinkBit(
                register_number=number, bit=bit, meaning=named.get(bit, NvlinkMeaning.UNLISTED)
            )
            for bit in range(32)
            if value >> bit & 1
        ]
    return tuple(bits_found)


def rate_bits(bits: tuple[NvlinkBit, ...]) -> Severity | None:
    """Return the severity of all bits together; registers without a set bit get the worst.

    Bits that only follow another error count for little beside it, and are never harmless alone.
    """
    if not bits:
        return UNKNOWN
    return select_worst(bit.severity for bit in bits)


def parse_registers(message: str) -> tuple[int, tuple[int, ...]] | None:
    """Return link number and registers from the text of an Xid 74; None if it cannot be read."""
    match = _MESSAGE.search(message)
    if match is None:
        return None
    return int(match[1]), tuple(int(cell, 16) for cell in match[2].split(","))
