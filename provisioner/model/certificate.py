"""A node's certificate: bound to serials, versions, tests and place; it expires, it is revoked."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.base import Record
from provisioner.model.health import Gate

GATE_NAMES: Mapping[Gate, str] = {
    Gate.A: "identity and errors",
    Gate.B: "load on the node",
    Gate.C: "fabric, with partners",
    Gate.D: "long burn",
}


class GateProof(Record):
    """A gate that was passed whole, by whose checks and when (whole seconds).

    What changes later and does not concern a gate leaves its proof standing: then it names an
    earlier certificate of the node.
    """

    gate: Gate
    certificate: str
    proved_at: float


class Certificate(Record):
    """Times are whole seconds since the epoch. `signature` is Ed25519 in hex, made by `key_id`.

    What is signed is the in-toto statement that `planning/certification/attestation.py` writes of
    it.
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
    gates: tuple[GateProof, ...] = ()  # what was proved as a whole, in the order of gates
    issued_at: float
    expires_at: float
    key_id: str = ""
    signature: str = ""

    @property
    def proved(self) -> str:
        """The letters of the gates that are proved: "abc"."""
        return "".join(g.gate.value for g in self.gates)


class Revocation(Record):
    """A certificate that must not be believed any more, and why."""

    certificate: str
    node: str
    revoked_at: float
    reason: str
