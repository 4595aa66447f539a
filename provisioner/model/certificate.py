"""A node's certificate: bound to serials, versions, tests and location; it expires and can be
revoked.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.base import Record
from provisioner.model.health import Gate
from provisioner.model.times.instant import Instant

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
