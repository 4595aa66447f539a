"""The verdict about one SPDM report: of a GPU, an NVSwitch, or a root of trust behind a BMC.

The order of the checks: form, chain, nonce, signature, firmware identity, versions, golden values.
Measurements are compared only if the signature verifies with a leaf that chains to a pinned key:
before that nothing in the report is the device's word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.x509.ocsp import OCSPResponse

from provisioner.checks.attestation import spdm_messages
from provisioner.checks.attestation.certificate_chains import (
    Chain,
    check_revocation,
    read_common_name,
    read_fwids,
    read_identity,
    verify_chain,
)
from provisioner.checks.attestation.reference_manifests import ReferenceManifest
from provisioner.checks.attestation.spdm_messages import (
    OpaqueData,
    SignedMeasurements,
    is_signed_by,
    parse_opaque_data,
    parse_signed_measurements,
)
from provisioner.checks.attestation.trust_anchors import TrustStore
from provisioner.model.certificate import (
    Attestation,
    Effect,
    Finding,
    FindingName,
    Measurements,
    Mismatch,
    Unacceptable,
    contradicts,
    judge_findings,
    notes,
    unproves,
)

# ------------------------------------------------------------------------------
# Which manifests apply to a device: by product, version and board, never by file name alone.


# NV_GPU_VBIOS_1010_0200_882_96005E0001, or the file 1010_0200_882_96005E0001_PROD
_BOARD = re.compile(
    r"(?:^|_)([0-9A-Z]{4}_[0-9A-Z]{4}_[0-9A-Z]{3})_[0-9A-F]{10}(?:_|$)", re.IGNORECASE
)
_VBIOS = re.compile(r"^[0-9A-F]{2}(?:\.[0-9A-F]{2}){4}$", re.IGNORECASE)
NEEDED = {"gpu.report": ("driver", "vbios"), "nvswitch.report": ("vbios",)}


@dataclass(frozen=True)
class Device:
    """A device as its signed report describes it."""

    product: str
    kind: str
    identity: str
    versions: tuple[tuple[str, str], ...]
    board: str = ""  # project, SKU and chip SKU: 1010_0200_882; "" if not stated

    @property
    def label(self) -> str:
        """The device for a person: product, kind and identity."""
        noun = {"gpu.report": "GPU", "nvswitch.report": "NVSwitch"}.get(self.kind, "")
        return " ".join(w for w in (self.product, noun, self.identity) if w) or "unknown"


@dataclass(frozen=True)
class Choice:
    """The manifests whose golden values apply, and the findings about the choice."""

    manifests: tuple[ReferenceManifest, ...] = ()
    findings: tuple[Finding, ...] = ()
    complete: bool = False  # each version that the device states has its manifest


def choose_references(
    device: Device, manifests: Sequence[ReferenceManifest], admitted: frozenset[str]
) -> Choice:
    """Return the manifests that apply to this device, with the reasons against the others."""
    chosen: list[ReferenceManifest] = []
    findings: list[Finding] = []
    needed = NEEDED.get(device.kind, ())
    versions = dict(device.versions)
    for slot in needed:
        fitting = [m for m in manifests if _fits(m, slot, device, versions[slot])]
        usable = [m for m in fitting if m.is_usable and _is_admitted(m, admitted)]
        if usable:
            chosen.append(usable[0])
            findings += usable[0].findings
            continue
        findings += [f for m in fitting for f in m.findings if f.effect is Effect.UNPROVES]
        findings += [_not_admitted(m) for m in fitting if m.is_usable]
        if not fitting:
            findings += _explain_others(device, slot, versions[slot], manifests)
        findings.append(_missing(device, slot, versions[slot]))
    return Choice(tuple(chosen), tuple(findings), bool(needed) and len(chosen) == len(needed))


def read_board(rim_id: str) -> str:
    """Return project, SKU and chip SKU from a manifest's id, in upper case; "" without them."""
    match = _BOARD.search(rim_id)
    return match[1].upper() if match else ""


def _slot(manifest: ReferenceManifest) -> str:
    return "vbios" if _VBIOS.match(manifest.version) else "driver"


def _fits(manifest: ReferenceManifest, slot: str, device: Device, version: str) -> bool:
    board = read_board(manifest.rim_id)
    return (
        manifest.product == device.product
        and _slot(manifest) == slot
        and manifest.version.casefold() == version.casefold()
        and (not board or not device.board or board == device.board.upper())
    )


def _is_admitted(manifest: ReferenceManifest, admitted: frozenset[str]) -> bool:
    """Whether it is among the manifests that were admitted; any is if none was named."""
    return not admitted or manifest.sha256 in admitted


def _not_admitted(manifest: ReferenceManifest) -> Finding:
    return unproves(FindingName.RIM_NOT_ADMITTED, f"{manifest.rim_id} is {manifest.sha256}")


def _missing(device: Device, slot: str, version: str) -> Finding:
    detail = f"no usable manifest for {device.product} {slot} {version or 'of unknown version'}"
    return unproves(FindingName.REFERENCE_MISSING, detail)


def _explain_others(
    device: Device, slot: str, version: str, manifests: Sequence[ReferenceManifest]
) -> list[Finding]:
    """Say of each manifest of this slot for which device it is; unreadable ones say why."""
    rows = []
    for manifest in manifests:
        if not manifest.version:
            rows += list(manifest.findings)
        elif manifest.product != device.product:
            detail = f"{manifest.product} {manifest.version}, found {device.product}"
            rows += [unproves(FindingName.RIM_OTHER, detail), *manifest.findings]
        elif _slot(manifest) == slot:
            board = read_board(manifest.rim_id)
            ours = device.board
            theirs = manifest.version
            if board and ours and board != ours.upper():
                rows.append(unproves(FindingName.RIM_OTHER, f"{board}, found {ours}"))
            else:
                rows.append(unproves(FindingName.RIM_OTHER, f"{theirs}, found {version}"))
    return rows


# ------------------------------------------------------------------------------
# The comparison of measurements with golden values, index by index.


NVDEC_INDEX = 35  # in a manifest: the decoder's measurement, meaningful only while it is enabled


@dataclass(frozen=True)
class Compared:
    """The result over all golden values that apply."""

    golden: int = 0
    matched: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    findings: tuple[Finding, ...] = ()
    references: tuple[tuple[str, str], ...] = ()  # id and SHA-256
    indices: tuple[int, ...] = ()  # of the golden values, in the report


@dataclass(frozen=True)
class _Golden:
    values: tuple[bytes, ...]
    reference: str
    name: str = ""


def compare_measurements(
    report: SignedMeasurements,
    opaque: OpaqueData,
    choice: Choice,
    digests: Mapping[int, tuple[str, ...]],
    digests_id: str,
) -> Compared:
    """Compare every golden value; an index that no reference names is ignored."""
    golden, findings = _collect(opaque, choice)
    references = tuple((m.rim_id, m.sha256) for m in choice.manifests)
    if digests:
        golden |= {
            i: _Golden(tuple(bytes.fromhex(d) for d in accepted), digests_id)
            for i, accepted in digests.items()
        }
    elif not choice.manifests and not choice.findings:
        detail = "neither a manifest nor admitted digests name its golden values"
        findings.append(unproves(FindingName.REFERENCE_MISSING, detail))
    mismatches = []
    for index in sorted(golden):
        value = report.value_at(index)
        if value not in golden[index].values:
            mismatches.append(_mismatch(index, golden[index], value))
            findings.append(contradicts(FindingName.MEASUREMENT, describe_mismatch(mismatches[-1])))
    matched = len(golden) - len(mismatches)
    return Compared(
        len(golden), matched, tuple(mismatches), tuple(findings), references, tuple(sorted(golden))
    )


def describe_mismatch(mismatch: Mismatch) -> str:
    """Return index, golden and measured value for a person, digests shortened."""
    golden = " or ".join(_short(g) for g in mismatch.golden[:4])
    measured = _short(mismatch.measured) if mismatch.measured else "no value"
    return f"index {mismatch.index}: golden {golden}, measured {measured} ({mismatch.reference})"


def _short(digest: str) -> str:
    return digest if len(digest) <= 24 else f"{digest[:24]}…"


def _mismatch(index: int, golden: _Golden, value: bytes | None) -> Mismatch:
    return Mismatch(
        index=index,
        reference=golden.reference,
        golden=tuple(v.hex() for v in golden.values),
        measured="" if value is None else value.hex(),
    )


def _collect(opaque: OpaqueData, choice: Choice) -> tuple[dict[int, _Golden], list[Finding]]:
    """Return the golden values by the report's index, which is one more than the manifest's."""
    golden: dict[int, _Golden] = {}
    findings: list[Finding] = []
    for manifest in choice.manifests:
        for value in manifest.golden:
            if value.index == NVDEC_INDEX and manifest.product != "LS10":
                finding = _check_nvdec(opaque)
                if finding is not None:
                    findings.append(finding)
                    continue
            if value.index + 1 in golden:
                detail = f"index {value.index} is active in two manifests"
                findings.append(unproves(FindingName.RIM_STRUCTURE, detail))
            golden[value.index + 1] = _Golden(value.values, manifest.rim_id, value.name)
    return golden, findings


def _check_nvdec(opaque: OpaqueData) -> Finding | None:
    """Return why the decoder's measurement is left out; None if it counts."""
    status = opaque.number(spdm_messages.NVDEC0)
    if status == spdm_messages.NVDEC_ENABLED:
        return None
    if status == spdm_messages.NVDEC_DISABLED:
        return notes(FindingName.NVDEC_SKIPPED, f"index {NVDEC_INDEX} is skipped")
    shown = "absent" if status is None else f"0x{status:02x}"
    return unproves(FindingName.NVDEC, f"NVDEC0 is {shown}: index {NVDEC_INDEX} cannot be judged")


# the leaf's common name: GH100 A01 GSP FMC LF, GB100 …, LS_10 A01 FSP FMC LF (public chains)
_GPU = re.compile(r"^(G[A-Z]\d{3})\b")
_SWITCH = re.compile(r"^LS_?(\d{2})\b")


@dataclass(frozen=True)
class Expectation:
    """Everything that a report is judged by, apart from the evidence itself."""

    nonce: bytes | None  # the one that we asked with; None: nothing is known about freshness
    at: float  # seconds since 1970
    trust: TrustStore = field(default_factory=TrustStore)
    manifests: tuple[ReferenceManifest, ...] = ()
    digests: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # admitted by a person
    digests_id: str = ""  # of the witness that the digests were learned from
    admitted: frozenset[str] = frozenset()  # SHA-256 of manifests; empty: any with a good chain
    # driver, vbios -> the matrix's pin; "gpu.report/vbios" and the like hold for one kind only
    versions: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    answers: tuple[OCSPResponse, ...] = ()  # about certificates of the chain
    revocation: str = "record"  # RevocationPolicy: the effect of a missing answer


@dataclass(frozen=True)
class Evidence:
    """A report with the certificates that came with it, in any order."""

    report: bytes
    certificates: tuple[x509.Certificate, ...] = ()
    problem: Finding | None = None  # why the certificates could not be read
    source: str = ""


def verify_report(evidence: Evidence, expected: Expectation) -> Attestation:
    """Return the verdict about one report; faults are findings, never exceptions."""
    sha256 = hashlib.sha256(evidence.report).hexdigest()
    try:
        report = parse_signed_measurements(evidence.report)
    except Unacceptable as refused:
        return _refuse(evidence, sha256, refused.finding)
    findings = [evidence.problem] if evidence.problem else []
    chain = None
    try:
        if evidence.problem is None:
            chain = verify_chain(evidence.certificates, expected.trust.devices, expected.at)
            findings += chain.findings
    except Unacceptable as refused:
        findings.append(refused.finding)
    signed = _is_signed(report, chain)
    findings += _check_nonce(report, expected.nonce, signed=signed is True)
    if signed is False:
        findings.append(
            contradicts(FindingName.SIGNATURE, "it does not verify with the leaf's key")
        )
    device, opaque, refusal = _read_device(report, chain)
    if refusal is not None:
        findings.append(refusal)
    compared = Compared()
    if signed and chain is not None and chain.anchor is not None and refusal is None:
        findings += _check_fwid(opaque, chain)
        findings += _check_versions(device, expected.versions)
        choice = Choice()
        if expected.manifests or not expected.digests:
            choice = choose_references(device, expected.manifests, expected.admitted)
        compared = compare_measurements(
            report, opaque, choice, expected.digests, expected.digests_id
        )
        findings += (*choice.findings, *compared.findings)
        findings += _check_revocation(chain, expected)
    settled = tuple(dict.fromkeys(findings))
    return Attestation(
        verdict=judge_findings(settled),
        component=device.label,
        kind=device.kind,
        identity=device.identity,
        findings=settled,
        measurements=Measurements(golden=compared.golden, matched=compared.matched),
        mismatches=compared.mismatches,
        compared=compared.indices,
        versions=device.versions,
        mode=opaque.mode,
        nonce=report.nonce.hex(),
        measurement_digest=report.digest(),
        references=compared.references,
        evidence_sha256=sha256,
    )


def find_shared_identities(results: Sequence[Attestation]) -> tuple[Attestation, ...]:
    """Contradict components of one node that answered one nonce with one identity.

    The same bytes given twice are one report and no contradiction.
    """
    reports: dict[tuple[str, str], set[str]] = {}
    for result in results:
        if result.identity:
            key = (result.identity, result.nonce)
            reports.setdefault(key, set()).add(result.evidence_sha256)
    return tuple(
        _contradict_identity(r) if len(reports.get((r.identity, r.nonce), ())) > 1 else r
        for r in results
    )


def _contradict_identity(result: Attestation) -> Attestation:
    finding = contradicts(FindingName.IDENTITY, f"two components answer as {result.identity}")
    findings = (*result.findings, finding)
    return result.model_copy(update={"findings": findings, "verdict": judge_findings(findings)})


def _refuse(evidence: Evidence, sha256: str, finding: Finding) -> Attestation:
    identity = read_identity(evidence.certificates[0]) if evidence.certificates else ""
    return Attestation(
        verdict=judge_findings((finding,)),
        component=evidence.source or "unknown",
        kind="unknown",
        identity="" if len(evidence.certificates) != 1 else identity,
        findings=(finding,),
        evidence_sha256=sha256,
    )


def _is_signed(report: SignedMeasurements, chain: Chain | None) -> bool | None:
    """None if there is no key to verify with; the chain's findings say why."""
    if chain is None or chain.key is None:
        return None
    return is_signed_by(report, chain.key)


def _check_revocation(chain: Chain, expected: Expectation) -> tuple[Finding, ...]:
    if expected.revocation == "off":
        return (notes(FindingName.REVOCATION, "the policy leaves it out"),)
    required = expected.revocation == "require"
    if not expected.answers and not required:
        return (notes(FindingName.REVOCATION, "no OCSP answer was at hand"),)
    return check_revocation(chain.certificates, expected.answers, expected.at, required=required)


def _check_nonce(
    report: SignedMeasurements, nonce: bytes | None, *, signed: bool
) -> tuple[Finding, ...]:
    if nonce is None:
        return (unproves(FindingName.NONCE, "none was given: the report may be of any time"),)
    if report.nonce == nonce:
        return ()
    detail = f"the report answers {report.nonce.hex()[:16]}…, we asked with {nonce.hex()[:16]}…"
    if signed:
        detail = f"not the nonce we asked: {detail}"
        return (contradicts(FindingName.REPLAYED, detail),)
    return (contradicts(FindingName.NONCE, detail),)


def _read_device(
    report: SignedMeasurements, chain: Chain | None
) -> tuple[Device, OpaqueData, Finding | None]:
    nothing = OpaqueData({})
    if chain is None:
        return Device("", "spdm.redfish", "", ()), nothing, None
    name = read_common_name(chain.leaf)
    identity = read_identity(chain.leaf)
    gpu = _GPU.match(name)
    switch = _SWITCH.match(name)
    if gpu is None and switch is None:
        return Device(name, "spdm.redfish", identity, ()), nothing, None
    kind = "gpu.report" if gpu else "nvswitch.report"
    product = gpu[1] if gpu else f"LS{switch[1]}" if switch else ""
    try:
        opaque = parse_opaque_data(report.opaque, report.opaque_at)
    except Unacceptable as refused:
        return Device(product, kind, identity, ()), nothing, refused.finding
    versions: tuple[tuple[str, str], ...] = (("vbios", opaque.vbios),)
    if gpu:
        versions = (("driver", opaque.text(spdm_messages.DRIVER)), *versions)
    parts = (spdm_messages.PROJECT, spdm_messages.PROJECT_SKU, spdm_messages.CHIP_SKU)
    board = "_".join(opaque.text(p) for p in parts) if gpu else ""
    return Device(product, kind, identity, versions, board), opaque, None


def _check_fwid(opaque: OpaqueData, chain: Chain) -> tuple[Finding, ...]:
    """Compare the digest of the first mutable code in the report and in the leaf."""
    stated = opaque.fwid
    certified = read_fwids(chain.leaf)
    if not stated:
        return (notes(FindingName.FWID_NOT_STATED, "the report does not carry it"),)
    if certified is None:
        if (opaque.number(spdm_messages.OPAQUE_VERSION) or 0) >= 1:
            return (contradicts(FindingName.FWID, "the leaf does not carry it"),)
        return (notes(FindingName.FWID_NOT_STATED, "the leaf does not carry it"),)
    if stated not in certified:
        return (contradicts(FindingName.FWID, "the report's is not the one in the leaf"),)
    return ()


def _check_versions(
    device: Device, pins: Mapping[str, str | tuple[str, ...]]
) -> tuple[Finding, ...]:
    findings = []
    for name, version in device.versions:
        pin = pins.get(f"{device.kind}/{name}", pins.get(name, ()))
        approved = (pin,) if isinstance(pin, str) else pin
        if approved and version.casefold() not in {one.casefold() for one in approved}:
            shown = f"{name} {version or 'not stated'}, pinned {' or '.join(approved)}"
            findings.append(contradicts(FindingName.NOT_THE_PIN, shown))
    return tuple(findings)
