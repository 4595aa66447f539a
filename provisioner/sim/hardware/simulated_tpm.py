"""A simulated TPM 2.0: quotes and event logs in the forms of a real one, with a key of its own."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.sim.hardware.simulated_endorsement import (
    MAKER,
    SimulatedEndorsement,
    write_area,
)

_HEADER = b"Spec ID Event03\0" + bytes(4) + bytes([0, 2, 0, 2]) + struct.pack("<IHHB", 1, 11, 32, 0)
_VARIABLE = 0x80000001


@dataclass
class SimulatedTpm:
    """One board's TPM; a test changes its attributes to make it lie."""

    seed: str
    reset_count: int = 1
    secure_boot: bool = True
    pcrs: tuple[int, ...] = (0, 2, 4, 7)
    events: list[tuple[int, int, bytes, bytes]] = field(default_factory=list)
    maker: str = MAKER
    denied: bool = False  # the agent on this machine says that there is none

    def __post_init__(self) -> None:
        self.endorsement = SimulatedEndorsement(self.seed, self.maker)
        number = int.from_bytes(hashlib.sha256(self.seed.encode()).digest()) >> 1
        self.key = ec.derive_private_key(number + 1, ec.SECP256R1())
        self.start_boot(secure_boot=self.secure_boot)

    def start_boot(self, *, secure_boot: bool) -> None:
        """Measure another boot: all PCRs begin anew."""
        self.secure_boot = secure_boot
        self.events.clear()
        for pcr in (0, 2, 4):
            self.measure(pcr, 0x80000008, f"{self.seed}/firmware/{pcr}".encode())
        self.measure(7, _VARIABLE, _variable("SecureBoot", bytes([self.secure_boot])))

    @property
    def key_pem(self) -> bytes:
        """The public attestation key."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def area(self) -> bytes:
        """The public area of the attestation key."""
        return write_area(self.key)

    def measure(self, pcr: int, kind: int, data: bytes) -> None:
        """Extend a PCR and note the event."""
        self.events.append((pcr, kind, hashlib.sha256(data).digest(), data))

    def write_log(self) -> bytes:
        """Return the event log as firmware writes it."""
        head = struct.pack("<II", 0, 3) + bytes(20) + struct.pack("<I", len(_HEADER)) + _HEADER
        rows = [
            struct.pack("<IIIH", pcr, kind, 1, 11) + digest + struct.pack("<I", len(data)) + data
            for pcr, kind, digest, data in self.events
        ]
        return head + b"".join(rows)

    def read_pcrs(self) -> dict[int, bytes]:
        """Return the values that the events led to."""
        values = {n: bytes(32) for n in range(16)}
        for pcr, _, digest, _ in self.events:
            values[pcr] = hashlib.sha256(values[pcr] + digest).digest()
        return values

    def quote(self, nonce: bytes) -> tuple[bytes, bytes]:
        """Return the attestation structure and its DER signature."""
        values = self.read_pcrs()
        digest = hashlib.sha256(b"".join(values[n] for n in sorted(self.pcrs))).digest()
        bits = sum(1 << n for n in self.pcrs).to_bytes(3, "little")
        content = (
            struct.pack(">IH", 0xFF544347, 0x8018)
            + _sized(b"\0\x0b" + hashlib.sha256(self.key_pem).digest())
            + _sized(nonce)
            + struct.pack(">QIIB", 1000, self.reset_count, 0, 1)
            + struct.pack(">Q", 0x20191023)
            + struct.pack(">IHB", 1, 11, 3)
            + bits
            + _sized(digest)
        )
        signature = self.key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True))
        return content, signature


def _sized(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def _variable(name: str, content: bytes) -> bytes:
    text = name.encode("utf-16-le")
    return bytes(16) + struct.pack("<QQ", len(name), len(content)) + text + content
