"""A node's certificate: bound to serials, versions, tests and location; it expires and can be
revoked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.cohort import Gate
from provisioner.model.times.instant import Instant

# ------------------------------------------------------------------------------
# Verdicts about signed evidence of a device's firmware: closed names, frozen records.
#
# A verdict is `proved` only when every check succeeded. A check that could not be made (no
# reference, an expired signer, bytes that cannot be parsed) leaves the component `unproved`;
# evidence that disagrees with itself, with our question or with the reference makes it
# `contradicted`.


class Verdict(StrEnum):
    """The result for one component."""

    PROVED = "proved"
    UNPROVED = "unproved"
    CONTRADICTED = "contradicted"


class Effect(StrEnum):
    """The consequence of one finding for the verdict."""

    CONTRADICTS = "contradicts"
    UNPROVES = "unproves"
    NOTES = "notes"  # stated, and the verdict is the same without it


class FindingName(StrEnum):
    """The first word or words of each finding. Closed: auditors and tests search for them."""

    # the answer to our question
    NONCE = "nonce"
    REPLAYED = "replayed"
    SIGNATURE = "signature"
    MALFORMED = "malformed"
    TRAILING_BYTES = "trailing bytes"
    UNSIGNED = "unsigned"
    VERSION = "version"
    # the identity of the answering device
    CHAIN = "chain"
    NOT_VALID = "chain not valid at this time"
    ANCHOR = "anchor"
    ALGORITHM = "algorithm"
    IDENTITY = "identity"
    FWID = "fwid"
    FWID_NOT_STATED = "fwid not stated"
    REVOCATION = "revocation not looked at"
    REVOCATION_ENDED = "revocation answer ended"
    REVOCATION_UNKNOWN = "revocation unknown"
    REVOKED = "revoked"
    ADDED_ANCHOR = "added anchor"
    # the comparison with references
    NOT_THE_PIN = "version is not the pin"
    MEASUREMENT = "measurement"
    NVDEC = "nvdec status unknown"
    NVDEC_SKIPPED = "nvdec disabled"
    REFERENCE_MISSING = "reference missing"
    ATTESTER_MISSING = "attester missing"
    RIM_DIGEST = "rim digest"
    RIM_SIGNATURE = "rim signature"
    RIM_ANCHOR = "rim anchor"
    RIM_CHAIN = "rim chain"
    RIM_EXPIRED = "rim expired"
    RIM_EXPIRED_SINCE = "rim signer expired since"
    RIM_STRUCTURE = "rim structure"
    RIM_OTHER = "rim is for"
    RIM_NOT_ADMITTED = "rim is not the admitted one (sha256)"
    # a TPM's quote
    LOG = "log does not replay"
    AK = "ak"
    AK_UNBOUND = "ak is not bound to the ek"
    EK_MISSING = "ek certificate missing"
    EK_UNFIT = "ek certificate unfit"
    EK_MAKER = "ek maker is not pinned"
    EK_BOARD = "ek is not this board's"
    EK_REVOKED = "ek certificate revoked"
    EK_LIST_ENDED = "ek revocation list ended"
    EK_LIST_UNFIT = "ek revocation list unfit"
    RESET = "reset we did not make"
    RESET_UNCOUNTED = "resets not counted"
    CONTRADICTION = "contradiction"


class Finding(Record):
    """One result that a reader must know: `text` begins with the words of `name`."""

    name: FindingName
    effect: Effect
    detail: str = ""

    def __str__(self) -> str:
        runs_on = self.name is FindingName.RIM_OTHER or self.detail.startswith("at byte")
        if runs_on and self.name in (FindingName.RIM_OTHER, FindingName.MALFORMED):
            return f"{self.name.value} {self.detail}"
        return f"{self.name.value}: {self.detail}" if self.detail else self.name.value


def contradicts(name: FindingName, detail: str = "") -> Finding:
    return Finding(name=name, effect=Effect.CONTRADICTS, detail=detail)


def unproves(name: FindingName, detail: str = "") -> Finding:
    return Finding(name=name, effect=Effect.UNPROVES, detail=detail)


def notes(name: FindingName, detail: str = "") -> Finding:
    """Return a finding that does not change the verdict."""
    return Finding(name=name, effect=Effect.NOTES, detail=detail)


def judge_findings(findings: tuple[Finding, ...]) -> Verdict:
    effects = {f.effect for f in findings}
    if Effect.CONTRADICTS in effects:
        return Verdict.CONTRADICTED
    return Verdict.UNPROVED if Effect.UNPROVES in effects else Verdict.PROVED


class Unacceptable(ValueError):
    """Evidence or a reference that cannot be accepted; the finding names the cause."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Mismatch(Record):
    """A measurement that differs from its golden value."""

    index: int  # of the measurement block, from 1
    reference: str  # the id of the reference that names the golden value
    golden: tuple[str, ...]  # lowercase hex: the value or its accepted alternatives
    measured: str  # lowercase hex; "" if the report has no such index


class Measurements(Record):
    """Golden values that apply to the component, and how many of them were measured."""

    golden: int = 0
    matched: int = 0


class Attestation(Record):
    """The verdict about one component's evidence, with everything that it rests on."""

    verdict: Verdict
    component: str  # "GH100 GPU 72CA2723…": kind and identity of the device, as it signed them
    kind: str  # gpu.report, nvswitch.report, spdm.redfish, tpm.quote, unknown
    identity: str = ""  # serial number in the leaf's subject
    findings: tuple[Finding, ...]
    measurements: Measurements = Measurements()
    mismatches: tuple[Mismatch, ...] = ()
    compared: tuple[int, ...] = ()  # indices that have a golden value
    versions: tuple[tuple[str, str], ...] = ()  # ("driver", "590.12"), ("vbios", "96.00…")
    mode: str = ""  # single, multi, PPCIE; "" if not stated
    nonce: str = ""  # lowercase hex, as the evidence carries it
    measurement_digest: str = ""  # SHA-256 over all (index, value) of the report
    references: tuple[tuple[str, str], ...] = ()  # (id, SHA-256) of each reference used
    evidence_sha256: str = ""


GATE_NAMES: Mapping[Gate, str] = {
    Gate.A: "identity and errors",
    Gate.B: "load on the node",
    Gate.C: "fabric, with partners",
    Gate.D: "long burn",
}


class GateProof(Record):
    """A gate that was passed completely, with the certificate of that validation and the time
    (whole seconds).

    A later change that does not concern a gate leaves its proof valid: the proof then names an
    earlier certificate of the node.
    """

    gate: Gate
    certificate: str
    proved_at: Instant


class Certificate(Record):
    """A certificate. Times are whole Unix seconds; `signature` is Ed25519 in hex, made by `key_id`.

    The signature covers the in-toto statement that `planning/certification/attestation.py` writes
    of the certificate.
    """

    id: str
    node: str
    release: str
    profile: str
    serials: tuple[str, ...]  # every device serial, sorted
    versions: tuple[tuple[str, str], ...]  # (kind/slot, running version), sorted
    boot_id: str
    location: str
    ports: tuple[str, ...]  # "switch/interface", sorted
    report_digest: str
    matrix_digest: str
    checks: tuple[str, ...] = ()  # results that all passed, sorted
    evidence: tuple[str, ...] = ()  # SHA-256 of every raw output that was judged, sorted
    gates: tuple[GateProof, ...] = ()  # gates that were proved completely, in the order of gates
    # "state-sha256:…" of the attested state, "recorded …", or that none were required; of earlier
    # releases "sha256:…" of the evidence, or ""
    attestation: str = ""
    issued_at: Instant
    expires_at: Instant
    key_id: str = ""
    signature: str = ""

    @property
    def proved(self) -> str:
        """Return the letters of the proved gates: "abc"."""
        return "".join(g.gate.value for g in self.gates)


class Revocation(Record):
    """A certificate that is no longer valid, and the reason."""

    certificate: str
    node: str
    revoked_at: float
    reason: str


class SigningKey(Record):
    """The public half of a key that signs or signed certificates here. `signs`: it does so now."""

    key_id: str
    public: bytes
    created_at: float
    signs: bool
    withdrawn_at: float | None
