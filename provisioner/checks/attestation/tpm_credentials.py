"""The proof that an attestation key is in the TPM of an endorsement key: a credential to open.

Source: TCG TPM 2.0 Library, Part 1, "Credential Protection", and Part 2, TPMT_PUBLIC. No TPM is
needed here. The credential is encrypted to the endorsement key and to the name of the attestation
key, so that only a TPM that holds both opens it (TPM2_ActivateCredential). The endorsement key has
the template of its kind in the TCG's EK Credential Profile: SHA-256 and AES-128-CFB, or of the high
range SHA-384 and AES-256-CFB.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.checks.attestation.byte_reader import ByteReader, malformed_at

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
