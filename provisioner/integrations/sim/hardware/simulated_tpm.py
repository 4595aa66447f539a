"""A simulated TPM 2.0: quotes and event logs in the forms of a real one, with a key of its own."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.integrations.sim.hardware.device_authority import (
    DeviceAuthority,
    SimulatedDevice,
    issue,
    sign_raw,
)

# ------------------------------------------------------------------------------
# The endorsement key of a simulated TPM: its maker's certificate, and credentials that it opens.
#
# The maker is the simulator's: no site trusts it unless its `tpm_makers_file` names it.


MAKER = "Simulated TPM Maker"
_AREA = struct.pack(">HHIH", 0x23, 0x0B, 0x00050472, 0) + struct.pack(">5H", 0x10, 0x18, 0xB, 3, 16)


@lru_cache(maxsize=8)
def make_authority(name: str) -> DeviceAuthority:
    """Return a maker's authority, which certifies endorsement keys."""
    return DeviceAuthority(f"tpm/{name}", name)


@dataclass(frozen=True)
class SimulatedEndorsement:
    """One TPM's endorsement key (P-256), derived from its seed."""

    seed: str
    maker: str = MAKER

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """The private key, which never leaves a real TPM."""
        number = int.from_bytes(hashlib.sha256(f"{self.seed}/ek".encode()).digest()) >> 1
        return ec.derive_private_key(number + 1, ec.SECP256R1())

    def list_certificates(self) -> dict[str, bytes]:
        """Return NV index -> DER, as the TPM stores them: its own, and that of its issuer."""
        authority = make_authority(self.maker)
        name = f"{self.seed}/ek"
        leaf = issue(name, "simulated TPM", authority.family, is_ca=False, key=self.key)
        pair = (("0x1c0000a", leaf), ("0x1c00100", authority.family))
        return {index: holder.certificate.public_bytes(Encoding.DER) for index, holder in pair}

    def open_credential(self, content: bytes, area: bytes) -> bytes | None:
        """Return the secret of a credential; None if it is another TPM's or another key's."""
        size = int.from_bytes(content[8:10], "big")
        protected = content[10 : 10 + size]
        point = content[12 + size :]
        x, y = (int.from_bytes(point[at : at + 32], "big") for at in (2, 36))
        theirs = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        own = self.key
        shared = own.exchange(ec.ECDH(), theirs)
        parties = b"".join(n.to_bytes(32, "big") for n in (x, own.public_key().public_numbers().x))
        seed = ConcatKDFHash(SHA256(), 32, b"IDENTITY\0" + parties).derive(shared)
        name = b"\0\x0b" + hashlib.sha256(area[2:]).digest()
        encrypted = protected[34:]
        code = hmac.digest(_derive(seed, b"INTEGRITY\0", b"", 256), encrypted + name, "sha256")
        if code != protected[2:34]:
            return None
        key = _derive(seed, b"STORAGE\0", name, 128)[:16]
        cipher = Cipher(algorithms.AES(key), CFB(bytes(16))).decryptor()
        return cipher.update(encrypted)[2:]


def write_area(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return TPM2B_PUBLIC of an attestation key as the maintenance image derives it."""
    numbers = key.public_key().public_numbers()
    halves = (n.to_bytes(32, "big") for n in (numbers.x, numbers.y))
    content = _AREA + b"".join(struct.pack(">H", 32) + half for half in halves)
    return struct.pack(">H", len(content)) + content


def _derive(seed: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """KDFa for one block of SHA-256, written out from Part 1 of the specification."""
    content = struct.pack(">I", 1) + label + context + struct.pack(">I", bits)
    return hmac.digest(seed, content, "sha256")


# ------------------------------------------------------------------------------
# The SPDM answers of a simulated device: signed measurements in versions 1.1 and 1.2.


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
