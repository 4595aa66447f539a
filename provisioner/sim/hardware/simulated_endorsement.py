"""The endorsement key of a simulated TPM: its maker's certificate, and credentials that it opens.

The maker is the simulator's: no site trusts it unless its `tpm_makers_file` names it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.sim.hardware.device_authority import DeviceAuthority, issue

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
