"""Reference integrity manifests (RIM): signed lists of golden measurements, ISO 19770-2 swidtags.

The document is refused unread when it has a document type, since only entities need one. The
signature is verified by signxml with the leaf of the document; the chain of that leaf by our own
rules, because signxml refuses NVIDIA's root (it asks a CA for the digitalSignature usage). Both XML
libraries are imported by the first manifest: they take 23 MB, and most daemons read none.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.checks.attestation.certificate_chains import (
    Chain,
    parse_certificates,
    verify_chain,
)
from provisioner.checks.attestation.trust_anchors import TrustAnchor
from provisioner.model.certificate import (
    Effect,
    Finding,
    FindingName,
    Unacceptable,
    notes,
    unproves,
)

if TYPE_CHECKING:
    from lxml import etree

SIZE_MAX = 256 * 1024  # bytes; published manifests have 18,000 to 26,000
RESOURCES_MAX = 256  # a measurement's index is one byte
ALTERNATIVES_MAX = 32
_TAG = "{http://standards.iso.org/iso/19770/-2/2015/schema.xsd}"
_DS = "{http://www.w3.org/2000/09/xmldsig#}"
_HASH = "{http://www.w3.org/2001/04/xmlenc#sha384}Hash"
_C14N = frozenset(
    {"http://www.w3.org/2006/12/xml-c14n11", "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"}
)
_ENVELOPED = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
_HEX = re.compile(r"[0-9a-fA-F]{2,128}")
_NAMES = {
    "DigestMethod": {"http://www.w3.org/2001/04/xmldsig-more#sha384"},
    "SignatureMethod": {"http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"},
    "CanonicalizationMethod": _C14N,
    "Transform": {_ENVELOPED, *_C14N},
}


@dataclass(frozen=True)
class GoldenValue:
    """The accepted values at one index, which counts from 0 here and from 1 in reports."""

    index: int
    values: tuple[bytes, ...]
    name: str = ""


@dataclass(frozen=True)
class ReferenceManifest:
    """A manifest and whether its golden values may be used: `findings` say why not."""

    rim_id: str  # as its file or the service names it; the document itself does not name it
    sha256: str
    product: str  # GH100, LS10, …
    version: str  # of the driver or the VBIOS
    golden: tuple[GoldenValue, ...] = ()  # active ones; empty if not trusted
    findings: tuple[Finding, ...] = field(default=())
    signed_until: float = 0.0  # end of the earliest certificate on its chain, seconds

    @property
    def is_usable(self) -> bool:
        """True if the signature chains to a pinned key; an expired signer is stated apart."""
        return bool(self.golden)


def read_manifest(
    raw: bytes, rim_id: str, anchors: tuple[TrustAnchor, ...], at: float, admitted_at: float
) -> ReferenceManifest:
    """Parse and verify a manifest; its faults are findings of the result, never exceptions.

    Its signer must have been valid when the manifest was admitted; if it has expired at `at`, the
    result says so and the values stay usable.
    """
    sha256 = hashlib.sha256(raw).hexdigest()
    try:
        root = _parse(raw)
        product, version = _read_meta(root)
        golden = _read_golden(root)
    except Unacceptable as refused:
        return ReferenceManifest(rim_id, sha256, "", "", findings=(refused.finding,))
    try:
        chain = _verify(raw, root, anchors, admitted_at)
    except Unacceptable as refused:
        return ReferenceManifest(rim_id, sha256, product, version, findings=(refused.finding,))
    ends = min(c.not_valid_after_utc for c in chain.certificates).timestamp()
    findings = tuple(_restate(f, anchored=chain.anchor is not None) for f in chain.findings)
    if any(
        f.name is not FindingName.RIM_EXPIRED and f.effect is not Effect.NOTES for f in findings
    ):
        return ReferenceManifest(rim_id, sha256, product, version, findings=findings)
    if at > ends and not any(f.name is FindingName.RIM_EXPIRED for f in findings):
        detail = "valid when the reference was admitted"
        findings += (notes(FindingName.RIM_EXPIRED_SINCE, detail),)
    return ReferenceManifest(rim_id, sha256, product, version, golden, findings, ends)


def _restate(finding: Finding, *, anchored: bool) -> Finding:
    """A fault of the signer's chain is a fault of the reference, not of the device."""
    if finding.effect is Effect.NOTES:
        return finding
    name = FindingName.RIM_CHAIN if anchored else FindingName.RIM_ANCHOR
    if finding.name is FindingName.NOT_VALID:
        name = FindingName.RIM_EXPIRED
    return unproves(name, finding.detail)


def _structure(reason: str) -> Unacceptable:
    return Unacceptable(unproves(FindingName.RIM_STRUCTURE, reason))


def _parse(raw: bytes) -> etree._Element:
    from lxml import etree

    if len(raw) > SIZE_MAX:
        raise _structure(f"{len(raw)} bytes are more than any manifest has")
    # UTF-16 would hide the words below, and has NUL bytes
    if b"\0" in raw or b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:
        raise _structure("refused unread: a document type or another encoding than UTF-8")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, encoding="utf-8"
    )
    try:
        root = etree.fromstring(raw, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _structure(f"it is not XML: {str(error)[:80]}") from None
    if root.tag != f"{_TAG}SoftwareIdentity":
        raise _structure(f"it is a {str(root.tag)[-40:]}, no SoftwareIdentity")
    return root


def _read_meta(root: etree._Element) -> tuple[str, str]:
    metas = root.findall(f"{_TAG}Meta")
    if len(metas) != 1:
        raise _structure(f"{len(metas)} Meta elements")
    version = metas[0].get("colloquialVersion", "")
    product = metas[0].get("product", "")
    if not (0 < len(version) <= 64 and version.isascii() and version.isprintable()):
        raise _structure("no version")
    return product[:32], version


def _read_golden(root: etree._Element) -> tuple[GoldenValue, ...]:
    payloads = root.findall(f"{_TAG}Payload")
    if len(payloads) != 1 or len(payloads[0]) > RESOURCES_MAX:
        raise _structure(f"{len(payloads)} Payload elements, or too many resources")
    golden: dict[int, GoldenValue] = {}
    for resource in payloads[0].findall(f"{_TAG}Resource"):
        index = _number(resource.get("index"), RESOURCES_MAX)
        if index in golden:
            raise _structure(f"index {index} is there twice")
        active = resource.get("active")
        if active not in ("True", "False"):
            raise _structure(f"index {index} is neither active nor inactive")
        values = _read_values(resource, index)
        name = "".join(c for c in resource.get("name", "") if c.isprintable())[:60]
        if active == "True":
            golden[index] = GoldenValue(index, values, name)
    if not golden:
        raise _structure("it has no active golden value")
    return tuple(golden[i] for i in sorted(golden))


def _read_values(resource: etree._Element, index: int) -> tuple[bytes, ...]:
    count = _number(resource.get("alternatives"), ALTERNATIVES_MAX)
    values = [resource.get(f"{_HASH}{n}", "") for n in range(count)]
    size = _number(resource.get("size"), 64)
    if not values or not all(_HEX.fullmatch(v) and len(v) == 2 * size for v in values):
        raise _structure(f"the values of index {index} are not {count} of {size} bytes in hex")
    return tuple(bytes.fromhex(v) for v in values)


def _number(text: str | None, limit: int) -> int:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 4:
        raise _structure(f"{(text or '')[:20]!r} is no number")
    if int(text) > limit:
        raise _structure(f"{text} is more than {limit}")
    return int(text)


def _verify(
    raw: bytes, root: etree._Element, anchors: tuple[TrustAnchor, ...], admitted_at: float
) -> Chain:
    """Verify the document's own signature, then the chain of its signer. Raises Unacceptable."""
    _require_shape(root)
    texts = [e.text or "" for e in root.iter(f"{_DS}X509Certificate")]
    pem = "".join(f"-----BEGIN CERTIFICATE-----\n{t}\n-----END CERTIFICATE-----\n" for t in texts)
    try:
        bag = parse_certificates(pem.encode())
        chain = verify_chain(bag, anchors, admitted_at)
    except Unacceptable as refused:
        raise Unacceptable(_restate(refused.finding, anchored=False)) from None
    if not isinstance(chain.leaf.public_key(), ec.EllipticCurvePublicKey):
        raise Unacceptable(unproves(FindingName.RIM_SIGNATURE, "the signer's key is not P-384"))
    _verify_signature(raw, chain.leaf)
    return chain


def _verify_signature(raw: bytes, signer: x509.Certificate) -> None:
    """Verify the document with its signer's key. Raises Unacceptable."""
    from lxml import etree
    from signxml.algorithms import DigestAlgorithm, SignatureMethod
    from signxml.exceptions import InvalidDigest, SignXMLException
    from signxml.verifier import SignatureConfiguration, XMLVerifier

    # signxml and the libraries below it promise no closed list for hostile documents
    unverified = (
        SignXMLException,
        InvalidSignature,
        UnsupportedAlgorithm,
        etree.LxmlError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    )
    configuration = SignatureConfiguration(
        require_x509=True,
        expect_references=1,
        signature_methods=frozenset({SignatureMethod.ECDSA_SHA384}),
        digest_algorithms=frozenset({DigestAlgorithm.SHA384}),
        # the signer's times are ours to judge: signxml shall not look at its clock
        verification_time=signer.not_valid_before_utc + timedelta(seconds=1),
    )
    try:
        XMLVerifier().verify(raw, x509_cert=signer, expect_config=configuration)
    except InvalidDigest:
        detail = "the document was edited after it was signed"
        raise Unacceptable(unproves(FindingName.RIM_DIGEST, detail)) from None
    except unverified:
        detail = "it does not verify with the signer's key"
        raise Unacceptable(unproves(FindingName.RIM_SIGNATURE, detail)) from None


def _require_shape(root: etree._Element) -> None:
    """Accept one enveloped signature over the whole document, and no other shape (wrapping)."""
    from lxml import etree

    signatures = list(root.iter(f"{_DS}Signature"))
    if len(signatures) != 1 or signatures[0].getparent() is not root:
        raise _structure(f"{len(signatures)} signatures, or one that is not the root's child")
    references = list(root.iter(f"{_DS}Reference"))
    if len(references) != 1 or references[0].get("URI") != "":
        raise _structure("the signature does not refer to the whole document, and only to it")
    for name, accepted in _NAMES.items():
        elements = list(root.iter(f"{_DS}{name}"))
        if not elements or any(e.get("Algorithm") not in accepted for e in elements):
            raise _structure(f"{name} is not of the algorithms that are accepted")
    transforms = [e.get("Algorithm") for e in root.iter(f"{_DS}Transform")]
    if transforms[0] != _ENVELOPED or len(transforms) > 2:
        raise _structure("the transforms are not enveloped-signature and a canonical form")
    if any(e.tag is etree.PI or e.tag is etree.Comment for e in root.iter()):
        raise _structure("it has comments or processing instructions")
