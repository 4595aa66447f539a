"""Which gates a certificate proves, what carries over, and what a release demands."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from provisioner import checks
from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Reason
from provisioner.planning.certification import attestation
from provisioner.planning.certification import certification as gates
from provisioner.planning.certification.check_selection import (
    Cause,
    Change,
    FaultRecord,
    SelectionPolicy,
    select_checks,
)
from provisioner.settings import Settings

DAY = 86400.0
NOW = 1_750_000_000.0
LAST = Certificate(
    id="old", node="n1", release="r", profile="p", serials=("a=1",), versions=(("k/s", "1"),),
    boot_id="b", location="l", ports=(), report_digest="d", matrix_digest="m",
    gates=tuple(GateProof(gate=g, certificate="old", proved_at=NOW - 9 * DAY) for g in "abc"),
    issued_at=NOW - 9 * DAY, expires_at=NOW + DAY,
)  # fmt: skip


def report(*names: str) -> HealthReport:
    gate = {c.name: c.gate for c in checks.ALL}
    return HealthReport(
        node="n1",
        inventory_digest="i",
        started_at=1.0,
        ended_at=2.0,
        results=tuple(
            CheckResult(check=n, gate=gate[n.partition(" after ")[0]], verdict=Verdict.PASS)
            for n in names
        ),
    )


def proved(policy: str, change: Change, *more: str, last: Certificate | None = None) -> str:
    """What a certificate proves after the tests that a change asks for."""
    demanded = SelectionPolicy(gates=frozenset(Gate(g) for g in policy))
    standing = FaultRecord(proved_days=gates.count_days_since_proof(last, NOW))
    chosen = select_checks(change, checks.ALL, demanded, standing)
    found = gates.list_proofs(
        "new",
        report(*chosen.demanded, *(("rdma_pair",) if chosen.fabric else ()), *more),
        NodeKind.HOST,
        catalogue=checks.ALL,
        last=last,
        keeps=chosen.keeps,
        now=NOW,
    )
    return " ".join(f"{p.gate.value}:{p.certificate}" for p in found)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("ab", "a:new b:new"), ("abc", "a:new b:new c:new"), ("abcd", "a:new b:new c:new d:new")],
)
def test_a_new_node_proves_what_the_site_demands_and_nothing_more(
    policy: str, expected: str
) -> None:
    assert proved(policy, Change(causes=(Cause.NEW,))) == expected


def test_what_a_change_does_not_concern_stays_proved_by_the_earlier_certificate() -> None:
    disk = Change(causes=(Cause.REPAIRED,), devices=("storage/DISK_1",))
    nic = Change(causes=(Cause.REPAIRED,), devices=("nic/NIC_1",))

    assert proved("abc", disk, last=LAST) == "a:new b:old c:old"
    assert proved("abc", nic, last=LAST) == "a:new b:old c:new"


def test_what_a_change_concerns_and_was_not_tested_is_not_proved_any_more() -> None:
    nic = Change(causes=(Cause.REPAIRED,), devices=("nic/NIC_1",))

    assert proved("ab", nic, last=LAST) == "a:new b:old"
    assert proved("ab", Change(causes=(Cause.UNKNOWN,)), last=LAST) == "a:new b:new"


def test_a_gate_that_was_never_proved_is_tested_whatever_changed() -> None:
    plain = LAST.model_copy(update={"gates": LAST.gates[:2]})

    assert proved("abc", Change(causes=(Cause.PERIODIC,)), last=plain) == "a:new b:old c:new"


def test_a_switch_proves_its_own_gate() -> None:
    mine = [c.name for c in checks.ALL if c.kind is NodeKind.SWITCH]
    found = gates.list_proofs(
        "s", report(*mine), NodeKind.SWITCH, catalogue=checks.ALL, last=None, keeps=(), now=NOW
    )

    assert [p.gate for p in found] == [Gate.A]


def test_a_release_is_refused_by_the_gate_that_is_lacking() -> None:
    (refusal,) = gates.find_unproved_gates(LAST, "abcd")

    assert refusal.reason is Reason.CERTIFICATE_INVALID
    assert "d (long burn)" in refusal.detail
    assert "proves abc" in refusal.detail
    assert gates.find_unproved_gates(LAST, "abc") == ()


def test_the_age_of_a_proof_is_counted_in_days_and_never_negative() -> None:
    proof = LAST.gates[0]
    ahead = proof.model_copy(update={"gate": Gate.B, "proved_at": NOW + DAY})
    two = LAST.model_copy(update={"gates": (proof, ahead)})

    assert gates.count_days_since_proof(two, NOW) == {Gate.A: 9.0, Gate.B: 0.0}


def test_a_gate_that_was_never_proved_is_not_kept() -> None:
    found = gates.list_proofs(
        "new",
        report(),
        NodeKind.HOST,
        catalogue=checks.ALL,
        last=LAST,
        keeps=(Gate.B, Gate.D),
        now=NOW,
    )

    assert [(p.gate, p.certificate) for p in found] == [(Gate.B, "old")]


def test_a_release_demands_what_certification_demands_unless_the_site_says_less() -> None:
    assert Settings(certify_gates="abc").gates_to_release == "abc"
    assert Settings(certify_gates="abc", release_gates="ab").gates_to_release == "ab"
    with pytest.raises(ValidationError, match="release_gates requires c, which"):
        Settings(certify_gates="ab", release_gates="abc")


def test_gates_are_in_the_signed_statement_and_come_back_from_it() -> None:
    signed = LAST.model_copy(update={"key_id": "k", "signature": "00"})
    payload = attestation.write_statement(signed)
    envelope = attestation.parse_envelope(
        attestation.write_envelope(attestation.STATEMENT_PAYLOAD, payload, "k", b"\0")
    )

    assert attestation.read_certificate(envelope) == signed
    assert json.loads(payload)["predicate"]["gates"][2] == {
        "gate": "c",
        "name": "fabric, with partners",
        "certificate": "old",
        "provedAt": "2025-06-06T15:06:40Z",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"name":"fabric, with partners"', b'"name":"everything"'),
        (b'"gate":"c"', b'"gate":"z"'),
        (b'"gates":[', b'"gates":[7,'),
    ],
)
def test_a_statement_whose_gates_were_changed_is_not_understood(old: bytes, new: bytes) -> None:
    signed = LAST.model_copy(update={"key_id": "k", "signature": "00"})
    payload = attestation.write_statement(signed)
    assert old in payload
    text = attestation.write_envelope(
        attestation.STATEMENT_PAYLOAD, payload.replace(old, new, 1), "k", b"\0"
    )

    with pytest.raises(attestation.NotAnAttestation):
        attestation.read_certificate(attestation.parse_envelope(text))


def test_an_old_proof_of_gate_c_is_made_anew_and_a_fresh_one_is_not() -> None:
    policy = SelectionPolicy(gates=frozenset(Gate) - {Gate.D}, fabric_days_max=90.0)
    quiet = Change(causes=(Cause.PERIODIC,))

    def chosen(days: float) -> tuple[bool, str]:
        known = {Gate.A: days, Gate.B: days, Gate.C: days}
        found = select_checks(quiet, checks.ALL, policy, FaultRecord(proved_days=known))
        return found.fabric, (found.reasons | found.left_out)["fabric"]

    assert chosen(91.0) == (True, "periodic: gate C was proved 91 days ago")
    assert chosen(89.0) == (False, "nothing changed that shows between nodes")
