"""Why a certificate may not be issued."""

from __future__ import annotations

from typing import Any

import pytest
from certified_node import (
    BLOCKER,
    DAY,
    INVENTORY,
    NODE,
    NOW,
    PLAN,
    STEP,
    changed,
    ends,
    issued,
    report,
    with_result,
)

from provisioner import checks
from provisioner.model.cohort import CheckResult, Finding, Gate, Severity, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification import certification


def reasons(**changes: Any) -> list[tuple[Reason, str]]:
    given: dict[str, Any] = {
        "node": NODE,
        "inventory": INVENTORY,
        "plan": PLAN,
        "report": report(),
        "now": NOW,
    }
    return [(b.reason, b.subject) for b in certification.find_blockers(**given | changes)]


def test_a_node_at_its_pins_with_every_check_passed_has_no_blocker() -> None:
    assert reasons() == []


def test_every_single_check_that_is_not_a_pass_is_named() -> None:
    finding = Finding(part="GPU 3", severity=Severity.ISOLATE, detail="is dead")
    for name in checks.list_required_results(NodeKind.HOST):
        assert reasons(report=with_result(name, Verdict.FAIL, finding)) == [
            (Reason.CHECK_FAILED, name)
        ]
        assert reasons(report=with_result(name, Verdict.SKIPPED)) == [(Reason.CHECK_SKIPPED, name)]


def test_every_single_check_that_is_missing_is_named() -> None:
    for name in checks.list_required_results(NodeKind.HOST):
        results = tuple(r for r in report().results if r.check != name)

        assert reasons(report=report(results=results)) == [(Reason.CHECK_SKIPPED, name)]


def test_evidence_that_the_profile_requires_is_missing_whatever_changed() -> None:
    wanted = checks.list_required_results(NodeKind.HOST)[0]
    others = tuple(r for r in report().results if r.check != wanted)

    changed_little = {"report": report(results=others, selected=()), "demanded": ()}
    assert reasons(**changed_little) == []
    assert reasons(**changed_little, proofs=(wanted,)) == [(Reason.CHECK_SKIPPED, wanted)]


def test_the_worst_finding_speaks_and_says_what_to_do() -> None:
    findings = (
        Finding(part="host", severity=Severity.CONFIG, detail="a setting"),
        Finding(
            part="GPU 3", severity=Severity.ISOLATE, detail="slow", measured="1 GB/s", wanted="2"
        ),
    )
    (blocker,) = certification.find_blockers(
        node=NODE,
        inventory=INVENTORY,
        plan=PLAN,
        report=with_result("ecc", Verdict.FAIL, *findings),
        now=NOW,
    )

    assert blocker.detail == "GPU 3: slow: 1 GB/s (wanted: 2); and 1 more"
    assert "repair case" in blocker.unblock


def test_failures_come_before_what_was_skipped_because_of_them() -> None:
    failed = with_result("pcie_link", Verdict.FAIL)
    results = tuple(
        r.model_copy(update={"verdict": Verdict.SKIPPED}) if r.check == "gpu_inventory" else r
        for r in failed.results
    )

    assert reasons(report=report(results=results))[0] == (Reason.CHECK_FAILED, "pcie_link")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"plan": PLAN.model_copy(update={"steps": (STEP,)})}, Reason.DRIFT),
        ({"plan": PLAN.model_copy(update={"in_flight": ("copy",)})}, Reason.DRIFT),
        ({"plan": PLAN.model_copy(update={"blockers": (BLOCKER,)})}, Reason.NO_PATH),
        ({"report": report(ended_at=NOW - 2 * DAY)}, Reason.CHECK_SKIPPED),
        ({"report": report(ended_at=NOW + 61)}, Reason.CHECK_SKIPPED),
        ({"report": report(node="n2")}, Reason.DRIFT),
        ({"inventory": changed(system_serial="SYS2")}, Reason.DRIFT),
        ({"node": NODE.model_copy(update={"placement": Placement.MIXED})}, Reason.ISOLATION),
        ({"node": NODE.model_copy(update={"placement": Placement.CUSTOMER})}, Reason.ISOLATION),
        ({"node": NODE.model_copy(update={"served": "blue"})}, Reason.NOT_SANITIZED),
        (
            {"node": NODE.model_copy(update={"served": "blue", "tenant": "red"})},
            Reason.NOT_SANITIZED,
        ),
    ],
)
def test_anything_else_in_the_way_is_named(changes: dict[str, Any], reason: Reason) -> None:
    assert [r for r, _ in reasons(**changes)] == [reason]


@pytest.mark.parametrize(
    "changes",
    [
        {"report": report(ended_at=NOW)},
        {"report": report(ended_at=NOW - DAY)},
        {"report": report(ended_at=NOW + 60)},
        {"node": NODE.model_copy(update={"served": "red", "tenant": "red"})},
        {"node": NODE.model_copy(update={"tenant": "red"})},
    ],
    ids=[
        "fresh checks",
        "checks of a day",
        "a clock set back",
        "it comes back to its tenant",
        "it was nobody's",
    ],
)
def test_this_is_not_in_the_way(changes: dict[str, Any]) -> None:
    assert reasons(**changes) == []


def test_what_was_chosen_for_a_report_must_have_a_result() -> None:
    assert reasons(demanded=()) == []
    assert reasons(report=report(results=()), demanded=()) == []
    assert reasons(report=report(results=()), demanded=("ecc",)) == [(Reason.CHECK_SKIPPED, "ecc")]
    assert reasons(report=report(results=(), selected=("ecc",)), demanded=()) == [
        (Reason.CHECK_SKIPPED, "ecc")
    ]


def test_a_switch_has_no_boot_tenant_or_fence_to_be_judged() -> None:
    switch = NODE.model_copy(update={"kind": NodeKind.SWITCH, "placement": Placement.NONE})
    parts = changed(boot_id=None)
    results = tuple(
        CheckResult(check=name, gate=Gate.A, verdict=Verdict.PASS)
        for name in checks.list_required_results(NodeKind.SWITCH)
    )
    judged = report(results=results, inventory_digest=certification.identify_installation(parts))
    certificate = issued(node=switch, inventory=parts)

    assert reasons(node=switch, inventory=parts, report=judged) == []
    assert certificate.boot_id == ""
    assert ends(certificate=certificate, node=switch, inventory=parts) == []


@pytest.mark.parametrize(
    ("severity", "words"),
    [
        (Severity.CONFIG, "Repair the host's configuration"),
        (Severity.MONITOR, "Look at it"),
        (Severity.RESET_GPU, "Reset the GPU"),
        (Severity.RESTART, "Restart the host"),
        (Severity.POWER_CYCLE, "Cycle the node's power"),
        (Severity.ISOLATE, "Open a repair case"),
    ],
)
def test_each_severity_has_its_remedy(severity: Severity, words: str) -> None:
    finding = Finding(part="GPU 3", severity=severity, detail="is dead")
    (blocker,) = certification.find_blockers(
        node=NODE,
        inventory=INVENTORY,
        plan=PLAN,
        report=with_result("ecc", Verdict.FAIL, finding),
        now=NOW,
    )

    assert blocker.unblock.startswith(words)


def test_a_finding_is_told_with_no_more_than_it_has() -> None:
    finding = Finding(part="GPU 3", severity=Severity.ISOLATE, detail="is dead")
    (blocker,) = certification.find_blockers(
        node=NODE,
        inventory=INVENTORY,
        plan=PLAN,
        report=with_result("ecc", Verdict.FAIL, finding),
        now=NOW,
    )

    assert blocker.detail == "GPU 3: is dead"


def test_a_host_whose_boot_or_serials_are_unknown_is_not_certified() -> None:
    hidden = changed(boot_id=None, system_serial=None, devices=())
    judged = report(inventory_digest=certification.identify_installation(hidden))

    assert [r for r, _ in reasons(inventory=hidden, report=judged)] == [
        Reason.VERSION_MISSING,
        Reason.VERSION_MISSING,
    ]


@pytest.mark.parametrize(
    ("inventory", "node", "judged"),
    [
        (INVENTORY, NODE, True),
        (changed(boot_id="boot-2"), NODE, False),
        (changed(components=INVENTORY.components[:1]), NODE, False),
        (INVENTORY, NODE.model_copy(update={"id": "n2"}), False),
        (INVENTORY, NODE.model_copy(update={"entered_at": NOW}), False),
        (INVENTORY, NODE.model_copy(update={"entered_at": NOW - 500}), True),
        (INVENTORY, NODE.model_copy(update={"entered_at": NOW, "state": State.CERTIFIED}), True),
    ],
)
def test_a_report_judges_this_inventory_this_boot_and_this_stay(
    inventory: Inventory, node: Node, *, judged: bool
) -> None:
    assert certification.is_current_report(report(), inventory, node) is judged


def test_checks_from_the_future_are_said_to_be_that_and_a_small_step_of_the_clock_is_borne():
    def of(ended_at: float) -> tuple[str, ...]:
        found = certification.find_blockers(
            node=NODE, inventory=INVENTORY, plan=PLAN, report=report(ended_at=ended_at), now=NOW
        )
        return tuple(b.detail for b in found if b.reason is Reason.CHECK_SKIPPED)

    assert of(NOW + 40.0) == ()
    assert of(NOW + 90.0) == ("the checks are dated 90 s in the future: a clock was wrong",)


def test_people_read_the_cause_and_not_that_the_certificate_was_revoked_for_it() -> None:
    revoked = BLOCKER.model_copy(update={"reason": Reason.CERTIFICATE_INVALID})
    cause = BLOCKER.model_copy(update={"reason": Reason.DRIFT})

    assert certification.list_causes([revoked, cause]) == (cause,)
    assert certification.list_causes([revoked]) == (revoked,)
    assert certification.list_causes([]) == ()
