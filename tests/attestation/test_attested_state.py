"""The attested state of a node: the same for the same firmware, whatever the nonces were."""

from __future__ import annotations

import base64
import json

import pytest
from attested_devices import AUTHORITY
from lying_histories import CONTEXT, DEVICES, GENUINE, IMPLANT, ROOTS, RULE

from provisioner.checks.attested_firmware import CHECK, NAME
from provisioner.checks.check import CheckContext
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import CheckResult, Evidence, Finding, Gate, Severity, Verdict
from provisioner.model.matrix import AttestationRule, Match, Matrix, Profile, Release
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.attested_state import (
    AttestedRoot,
    RootChange,
    compare_roots,
    describe_attestation,
    digest_roots,
    find_certified_rule,
    read_roots,
)
from provisioner.planning.watch.leaks import (
    Renewal,
    confirm_renewal,
    judge_renewal,
    was_reset,
)

PROVED_AT = 1_795_305_600.0  # 2026-11-22


def answers(nonce: int, *, implanted: str = "", exchanged: str = "") -> dict[str, Evidence]:
    """All roots of trust answer questions with nonces that begin with this byte."""
    rows = []
    for number, name in enumerate(ROOTS):
        device = DEVICES[name]
        if name == exchanged:
            device = AUTHORITY.make_device("CEC173x EC", "spare", None)
        asked = bytes([nonce, number]) * 16
        values = IMPLANT if name == implanted else GENUINE
        signed = SpdmResponder(device, values).answer(asked)
        row = {"component": name, "nonce": asked.hex(), "certificates": device.chain_pem}
        rows.append({**row, "signed": base64.b64encode(signed).decode()})
    text = json.dumps({"asked_at": PROVED_AT, "components": rows, "gaps": []})
    return {"measurements": Evidence(source="bmc", exit_code=0, text=text)}


def state(nonce: int, **changes: str) -> str:
    roots = read_roots(answers(nonce, **changes), RULE)
    assert roots is not None
    return digest_roots(roots)


def test_two_questions_about_one_state_have_one_digest() -> None:
    assert answers(1) != answers(2)
    assert state(1) == state(2)


@pytest.mark.parametrize("change", ["implanted", "exchanged"])
def test_other_firmware_and_another_device_have_other_digests(change: str) -> None:
    assert state(1, **{change: ROOTS[1]}) != state(2)


def changes(**after: str) -> tuple[RootChange, ...]:
    before = read_roots(answers(1), RULE)
    now = read_roots(answers(2, **after), RULE)
    assert before is not None
    assert now is not None
    return compare_roots(before, now)


def test_a_difference_names_the_root_with_the_certified_and_the_present_value() -> None:
    (changed,) = changes(implanted=ROOTS[1])

    assert changed.name == ROOTS[1]
    assert changed.detail == (
        f"measurement 3: {GENUINE[3].hex()} was certified, now it is {IMPLANT[3].hex()}"
    )
    (moved,) = changes(exchanged=ROOTS[2])
    assert moved.detail.endswith("now it is spare")
    assert changes() == ()


def certificate_text(policy: str, *, implanted: str = "") -> str:
    rule = AttestationRule(**{**RULE.model_dump(), "policy": policy})
    outputs = answers(1, implanted=implanted)
    text = json.dumps({n: e.model_dump(mode="json") for n, e in outputs.items()})
    result = CheckResult(check=NAME, gate=Gate.A, verdict=Verdict.PASS, evidence="e" * 64)
    return describe_attestation([result], {"e" * 64: text}, CheckContext(attestation=rule))


def test_a_certificate_says_whether_its_state_was_required_or_recorded() -> None:
    assert certificate_text("require") == f"state-sha256:{state(2)}"
    assert certificate_text("record") == f"recorded state-sha256:{state(2)}, 3 of 3 proved"
    assert certificate_text("record", implanted=ROOTS[0]).endswith(", 2 of 3 proved")
    assert certificate_text("off") == "not required by the profile"


def test_a_recorded_difference_is_a_finding_of_a_check_that_passes() -> None:
    recorded = CONTEXT.model_copy(
        update={"attestation": RULE.model_copy(update={"policy": "record"})}
    )
    outputs = answers(1, implanted=ROOTS[0])

    required = CHECK.judge(outputs, CONTEXT)
    kept = CHECK.judge(outputs, recorded)

    assert (required.verdict, kept.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert kept.findings == required.findings
    assert CHECK.judge({}, recorded).findings[0].detail.startswith("cannot be judged")


def finding(part: str, severity: Severity) -> Finding:
    return Finding(part=part, severity=severity, detail="d", measured="m", wanted="w")


def make_root(name: str, identity: str) -> AttestedRoot:
    return AttestedRoot(name=name, kind="ERoT", identity=identity, values=(), proved=True)


def test_only_a_lie_differs_and_a_missing_proof_is_unproved() -> None:
    findings = [finding("A", Severity.ISOLATE), finding("B", Severity.POWER_CYCLE)]
    certified = [make_root(name, "old") for name in "ABC"]
    shown = [make_root("A", "old"), make_root("B", "new"), make_root("C", "new")]

    result = judge_renewal(findings, certified, shown)

    text = "d: measured m, admitted w"
    change = "old was certified, now it is new"
    assert result.differs == (("A", text), ("C", change))
    assert result.unproved == (("B", text),)
    assert result.roots == tuple(shown)
    assert judge_renewal([], None, shown).proved  # the certified state can be read no more


def test_a_difference_that_does_not_come_again_is_no_proof_and_no_lie() -> None:
    once = Renewal(differs=(("A", "replayed"),))
    twice = Renewal(differs=(("A", "replayed"), ("B", "signature")))

    assert confirm_renewal(once, Renewal()).proved
    assert confirm_renewal(once, twice) == Renewal(
        differs=(("A", "replayed"),), unproved=(("B", "signature"),)
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("2026-11-20T10:00:00+00:00", "2026-11-20T10:00:00+00:00", False),
        ("2026-11-20T10:00:00+00:00", "2026-11-20T10:00:30+00:00", False),  # from its uptime
        ("2026-11-20T10:00:00+00:00", "2026-11-20T12:00:00+00:00", True),
        ("2026-11-20T10:00:00+00:00", "1970-01-01T00:00:00+00:00", True),  # its clock is lost
        ("2026-11-20T10:00:00+00:00", "2026-11-20T11:00:00+01:00", False),  # the same moment
        ("2026-11-20T10:00:00+00:00", "0000-00-00T00:00:00+00:00", False),  # iDRAC: no time
        ("", "2026-11-20T10:00:00+00:00", False),  # shown for the first time
        (None, "2026-11-20T10:00:00+00:00", False),  # before the last proof
        (None, "2026-11-23T10:00:00+00:00", True),  # since the last proof
    ],
)
def test_a_reset_is_another_time_of_reset(before: str | None, after: str, expected: bool) -> None:
    read = None if before is None else {"/redfish/v1/Managers/1": before}

    assert was_reset(read, {"/redfish/v1/Managers/1": after}, PROVED_AT) is expected


def test_a_host_is_judged_by_the_release_that_it_is_certified_for() -> None:
    """Its target is another one from a campaign's beginning until its own turn."""
    now = RULE.model_copy(update={"policy": "record"})
    matrix = Matrix(
        releases={
            name: Release(profiles={"p": Profile(match=Match(), pins={}, attestation=rule)})
            for name, rule in (("certified", RULE), ("target", now))
        }
    )
    host = Node(id="n", kind=NodeKind.HOST, release="target", profile="p")
    certificate = Certificate(
        id="c",
        node="n",
        release="certified",
        profile="p",
        serials=(),
        versions=(),
        boot_id="",
        location="",
        ports=(),
        report_digest="",
        matrix_digest="",
        issued_at=PROVED_AT,
        expires_at=PROVED_AT + 1.0,
    )

    assert find_certified_rule(host, certificate, matrix) == RULE
    gone = certificate.model_copy(update={"release": "no more in the matrix"})
    assert find_certified_rule(host, gone, matrix) == now
