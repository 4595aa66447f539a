"""The gates that a certificate proves, and whether they are enough for a release. Pure.

A gate is proved completely or not at all. A node that was tested in part, because only a part had
changed, keeps the earlier proof with its date; a change that concerns the gate and was not tested
ends the proof.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import floor

from provisioner.checks.check import Check
from provisioner.model.certificate import GATE_NAMES, Certificate, GateProof
from provisioner.model.health import Gate, HealthReport
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason

DAY_S = 86400.0


def list_proofs(
    certificate_id: str,
    report: HealthReport,
    kind: NodeKind,
    *,
    catalogue: Sequence[Check],
    last: Certificate | None,
    keeps: Collection[Gate],
    now: float,
) -> tuple[GateProof, ...]:
    """Return the gates of a certificate whose report has only passes.

    `keeps`: gates of which the last certificate's proof remains valid (`Selection.keeps`).
    """
    passed = {r.check for r in report.results}
    earlier = {g.gate: g for g in last.gates} if last is not None else {}
    proofs = []
    for gate in Gate:
        whole = {c.name for c in catalogue if (c.kind, c.gate) == (kind, gate) and not c.on_request}
        if gate is Gate.C:  # it is selected and run as a whole, by a session
            now_proved = any(r.gate is gate for r in report.results)
        else:
            now_proved = bool(whole) and whole <= passed
        if now_proved:
            at = float(floor(now))
            proofs.append(GateProof(gate=gate, certificate=certificate_id, proved_at=at))
        elif gate in keeps and gate in earlier:
            proofs.append(earlier[gate])
    return tuple(proofs)


def count_days_since_proof(last: Certificate | None, now: float) -> dict[Gate, float] | None:
    """Return gate -> days since it was proved; None without a certificate."""
    if last is None:
        return None
    return {g.gate: max(0.0, now - g.proved_at) / DAY_S for g in last.gates}


def find_unproved_gates(certificate: Certificate, demanded: str) -> tuple[Blocker, ...]:
    """Return why a certificate is not enough for a release that demands these gates; () if it
    is.
    """
    lacking = [g for g in Gate if g.value in demanded and g.value not in certificate.proved]
    if not lacking:
        return ()
    named = ", ".join(f"{g.value} ({GATE_NAMES[g]})" for g in lacking)
    return (
        Blocker(
            reason=Reason.CERTIFICATE_INVALID,
            subject=f"{certificate.node}/gates",
            detail=f"a release demands gate {named}, and its certificate proves"
            f" {certificate.proved or 'none'}",
            unblock="It is tested and certified again automatically; `release_gates` lists the"
            " demanded gates.",
        ),
    )
