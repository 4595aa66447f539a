"""A simulated maker of devices: its own certificate authority, devices with keys, signed manifests.

The chains have the form of NVIDIA's (root, family, boot ROM, leaf with the firmware's digest), and
keys of the simulator: no verifier trusts them unless its caller adds the simulator's root. Keys and
signatures follow from the seed, so that a simulated fleet is the same in every run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from lxml import etree

FWID_OID = "2.23.133.5.4.1"
_ORDER_BITS = 383  # a private key of P-384 is below its order, which has 384 bits
_BEGINS = datetime(2022, 1, 1, tzinfo=UTC)
_ENDS = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_SHA384_OID = bytes.fromhex("0609608648016503040202")


def make_key(seed: str) -> ec.EllipticCurvePrivateKey:
    """Return the P-384 key that follows from a seed. For simulations only."""
    number = int.from_bytes(hashlib.sha512(seed.encode()).digest()) % (1 << _ORDER_BITS)
    return ec.derive_private_key(number + 1, ec.SECP384R1())


def sign_raw(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """Return r and s of an ECDSA signature with SHA-384, 48 bytes each."""
    signature = key.sign(content, ec.ECDSA(SHA384(), deterministic_signing=True))
    return b"".join(number.to_bytes(48, "big") for number in decode_dss_signature(signature))


@dataclass(frozen=True)
class Holder:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM).decode()


@dataclass(frozen=True)
class SimulatedDevice:
    """A device with its signing key and its chain, leaf first."""

    holder: Holder
    issuers: tuple[Holder, ...]
    fwid: bytes

    @property
    def chain_pem(self) -> str:
        """The chain as NVML gives it: leaf first."""
        return "".join(h.pem for h in (self.holder, *self.issuers))


@dataclass
class DeviceAuthority:
    """The maker's root and the authority below it; it issues devices and signs manifests."""

    seed: str
    root_name: str = "Simulated Device Identity CA"
    root: Holder = field(init=False)
    family: Holder = field(init=False)

    def __post_init__(self) -> None:
        self.root = issue(f"{self.seed}/root", self.root_name, None, is_ca=True)
        self.family = issue(f"{self.seed}/family", "Simulated Identity", self.root, is_ca=True)

    def make_device(
        self, product: str, serial: str, fwid: bytes | None = b"\x46" * 48
    ) -> SimulatedDevice:
        """Return a device, for example of the product "GH100 A01 GSP"."""
        name = f"{self.seed}/{product}/{serial}"
        rom = issue(f"{name}/rom", f"{product} BROM", self.family, is_ca=True, serial=serial[:20])
        leaf = issue(name, f"{product} FMC LF", rom, is_ca=False, serial=serial, fwid=fwid)
        return SimulatedDevice(leaf, (rom, self.family, self.root), fwid or b"")

    def make_signer(self, begins: datetime = _BEGINS, ends: datetime = _ENDS) -> Holder:
        """Return a signer of manifests below the family authority."""
        name = f"{self.seed}/signer/{begins:%F}/{ends:%F}"
        return issue(name, "Simulated RIM Signer", self.family, is_ca=False, times=(begins, ends))

    def sign_manifest(
        self,
        product: str,
        version: str,
        golden: Mapping[int, tuple[bytes, ...]],
        signer: Holder | None = None,
    ) -> bytes:
        """Return a signed swidtag whose golden values count their index from 0."""
        holder = signer or self.make_signer()
        chain = (holder, self.family, self.root)
        return sign_document(write_swidtag(product, version, golden), chain)


@cache
def find_authority() -> DeviceAuthority:
    """Return the simulated maker of all roots of trust, GPUs and NVSwitches of a site."""
    return DeviceAuthority("site", "Simulated Device Identity CA")


def issue(
    seed: str,
    name: str,
    issuer: Holder | None,
    *,
    is_ca: bool,
    serial: str = "",
    fwid: bytes | None = None,
    times: tuple[datetime, datetime] = (_BEGINS, _ENDS),
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Holder:
    """Issue a certificate; without an issuer it signs itself."""
    own = key or make_key(seed)
    names = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if serial:
        names.append(x509.NameAttribute(NameOID.SERIAL_NUMBER, serial))
    subject = x509.Name(names)
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16]) | 1
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(own.public_key())
        .serial_number(number)
        .not_valid_before(times[0])
        .not_valid_after(times[1])
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(_usage(is_ca=is_ca), critical=True)
    )
    if fwid is not None:
        builder = builder.add_extension(_tcb_info(fwid), critical=False)
    signer = issuer.key if issuer else own
    return Holder(builder.sign(signer, SHA384(), ecdsa_deterministic=True), own)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _tcb_info(fwid: bytes) -> x509.UnrecognizedExtension:
    """TCG DICE TcbInfo with one FWID: [6] { SEQUENCE { SHA-384, digest } }."""
    inner = _SHA384_OID + b"\x04" + bytes([len(fwid)]) + fwid
    row = b"\x30" + bytes([len(inner)]) + inner
    rows = b"\xa6" + bytes([len(row)]) + row
    value = b"\x30" + bytes([len(rows)]) + rows
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(FWID_OID), value)


_SWID = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd"
_DS = "http://www.w3.org/2000/09/xmldsig#"
_C14N = "http://www.w3.org/2006/12/xml-c14n11"
_SHA384_XML = "http://www.w3.org/2001/04/xmldsig-more#sha384"
_ECDSA_XML = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"
RESOURCES = 64  # that a manifest of a GPU lists, active or not


def write_swidtag(product: str, version: str, golden: Mapping[int, tuple[bytes, ...]]) -> str:
    """Return an unsigned swidtag in the form of NVIDIA's manifests."""
    rows = "".join(_resource(i, golden.get(i, ())) for i in range(RESOURCES))
    tag = hashlib.sha384(f"{product}_{version}".encode()).hexdigest()
    return (
        f'<SoftwareIdentity xmlns="{_SWID}" xmlns:n8060="http://www.w3.org/2001/04/xmlenc#sha384"'
        f' name="{product}" tagId="{tag}" version="1.0" tagVersion="0">'
        '<Entity name="Simulator" role="softwareCreator tagCreator"/>'
        f'<Meta colloquialVersion="{version}" edition="GPU" product="{product}"/>'
        f"<Payload>{rows}</Payload></SoftwareIdentity>"
    )


def _resource(index: int, values: tuple[bytes, ...]) -> str:
    shown = values or (bytes(48),)
    hashes = " ".join(f'n8060:Hash{n}="{v.hex()}"' for n, v in enumerate(shown))
    return (
        f'<Resource type="Measurement" index="{index}" active="{bool(values)}"'
        f' alternatives="{len(shown)}" {hashes} name="Measurement_{index}" size="48"/>'
    )


def sign_document(document: str, chain: tuple[Holder, ...]) -> bytes:
    """Return the document with an enveloped signature by the first of the chain."""
    root = etree.fromstring(document.encode())
    digest = hashlib.sha384(etree.tostring(root, method="c14n")).digest()
    certificates = "".join(
        f"<ds:X509Certificate>{_der_text(h)}</ds:X509Certificate>" for h in chain
    )
    signature = (
        f'<ds:Signature xmlns:ds="{_DS}"><ds:SignedInfo>'
        f'<ds:CanonicalizationMethod Algorithm="{_C14N}"/>'
        f'<ds:SignatureMethod Algorithm="{_ECDSA_XML}"/><ds:Reference URI=""><ds:Transforms>'
        f'<ds:Transform Algorithm="{_DS}enveloped-signature"/><ds:Transform Algorithm="{_C14N}"/>'
        f'</ds:Transforms><ds:DigestMethod Algorithm="{_SHA384_XML}"/>'
        f"<ds:DigestValue>{base64.b64encode(digest).decode()}</ds:DigestValue></ds:Reference>"
        "</ds:SignedInfo><ds:SignatureValue></ds:SignatureValue><ds:KeyInfo><ds:X509Data>"
        f"{certificates}</ds:X509Data></ds:KeyInfo></ds:Signature></SoftwareIdentity>"
    )
    whole = etree.fromstring((document.removesuffix("</SoftwareIdentity>") + signature).encode())
    info = whole.find(f".//{{{_DS}}}SignedInfo")
    value = whole.find(f".//{{{_DS}}}SignatureValue")
    raw = sign_raw(chain[0].key, etree.tostring(info, method="c14n"))
    value.text = base64.b64encode(raw).decode()
    signed: bytes = etree.tostring(whole)
    return signed


def _der_text(holder: Holder) -> str:
    return base64.b64encode(holder.certificate.public_bytes(Encoding.DER)).decode()


# ------------------------------------------------------------------------------
# Signed CoRIMs of a simulated maker: CBOR by RFC 8949, COSE_Sign1 by RFC 9052, own keys.
#
# The encoder shares nothing with the reader of the program; the form is that of
# draft-ietf-rats-corim and of the samples of veraison/corim (53b3014e).


_ES384 = -35


@dataclass(frozen=True)
class Tag:
    """A tagged value."""

    number: int
    value: Any


def encode(value: Any) -> bytes:
    """Return a value as CBOR."""
    if isinstance(value, bool) or value is None:
        return bytes([{False: 0xF4, True: 0xF5, None: 0xF6}[value]])
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    if isinstance(value, Tag):
        return _head(6, value.number) + encode(value.value)
    if isinstance(value, Mapping):
        rows = (encode(k) + encode(v) for k, v in value.items())
        return _head(5, len(value)) + b"".join(rows)
    return _head(4, len(value)) + b"".join(encode(one) for one in value)


def write_corim(
    digests: Mapping[Any, Sequence[bytes]], *, model: str = "CEC173x", version: str = "01.03"
) -> Any:
    """Return an unsigned CoRIM with one module; the keys are those of its measurements."""
    rows = [
        {0: key, 1: {0: {0: version}, 2: [[7, value] for value in values]}}
        for key, values in digests.items()
    ]
    environment = {0: {1: "Simulated maker", 2: model}}
    module = {1: {0: b"\x31" * 16}, 4: {0: [[environment, rows]]}}
    return Tag(501, {0: f"SIM_EROT_{version}", 1: [Tag(506, encode(module))]})


def sign_corim(
    corim: Any,
    by: DeviceAuthority,
    *,
    signer: Holder | None = None,
    headers: Mapping[int, Any] | None = None,
) -> bytes:
    """Return a CoRIM as a signed message with the chain of its signer."""
    holder = signer or by.make_signer()
    chain = [one.certificate.public_bytes(Encoding.DER) for one in (holder, by.family, by.root)]
    protected = encode({1: _ES384, 3: "application/rim+cbor", 33: chain, **(headers or {})})
    payload = encode(corim)
    signature = sign_raw(holder.key, encode(["Signature1", protected, b"", payload]))
    return encode(Tag(18, [protected, {}, payload, signature]))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = max(1, 1 << ((number.bit_length() + 7) // 8 - 1).bit_length())
    return bytes([major << 5 | 24 + size.bit_length() - 1]) + number.to_bytes(size, "big")
