"""Why a certificate may not be issued, and what ends one."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner import checks
from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.health import CheckResult, Finding, Gate, HealthReport, Severity, Verdict
from provisioner.model.inventory import Activation, Component, Device, DeviceKind, Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.planning import certification

NOW = 1_750_000_000.0
DAY = 86400.0
NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    state=State.VALIDATING,
    entered_at=NOW - 600,
    placement=Placement.MAINTENANCE,
    vrf="MAINT",
    release="r",
    profile="p",
    ports=(Port(switch="leaf0", interface="swp1s0", rail=0, nic_slot="NIC_0"),),
)
INVENTORY = Inventory(
    node="n1",
    vendor="x",
    system_serial="SYS1",
    boot_id="boot-1",
    components=(
        Component(kind="host.driver", slot="host", version="550.144.03", source="s"),
        Component(kind="hgx.gpu", slot="GPU_SXM_1", version="96.00.99.00.01", source="s"),
    ),
    devices=(Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="G1"),),
)
PLAN = Plan(node="n1", release="r", profile="p")
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.COLD_BOOT,
    disruption=Disruption.HOST,
    duration_s=1,
    expected=(),
    reason="x",
)


def report(**changes: Any) -> HealthReport:
    good = HealthReport(
        node="n1",
        inventory_digest=certification.identity(INVENTORY),
        started_at=NOW - 500,
        ended_at=NOW - 100,
        results=tuple(
            CheckResult(check=name, gate=Gate.A, verdict=Verdict.PASS)
            for name in checks.required(NodeKind.HOST)
        ),
    )
    return good.model_copy(update=changes)


def with_result(name: str, verdict: Verdict, *findings: Finding) -> HealthReport:
    results = tuple(
        r.model_copy(update={"verdict": verdict, "findings": findings}) if r.check == name else r
        for r in report().results
    )
    return report(results=results)


def changed(**changes: Any) -> Inventory:
    return INVENTORY.model_copy(update=changes)


def reasons(**changes: Any) -> list[tuple[Reason, str]]:
    given: dict[str, Any] = {
        "node": NODE,
        "inventory": INVENTORY,
        "plan": PLAN,
        "report": report(),
        "now": NOW,
    }
    return [(b.reason, b.subject) for b in certification.blockers(**given | changes)]


def test_a_node_at_its_pins_with_every_check_passed_has_no_blocker() -> None:
    assert reasons() == []


def test_every_single_check_that_is_not_a_pass_is_named() -> None:
    finding = Finding(part="GPU 3", severity=Severity.ISOLATE, detail="is dead")
    for name in checks.required(NodeKind.HOST):
        assert reasons(report=with_result(name, Verdict.FAIL, finding)) == [
            (Reason.CHECK_FAILED, name)
        ]
        assert reasons(report=with_result(name, Verdict.SKIPPED)) == [(Reason.CHECK_SKIPPED, name)]


def test_every_single_check_that_is_missing_is_named() -> None:
    for name in checks.required(NodeKind.HOST):
        results = tuple(r for r in report().results if r.check != name)

        assert reasons(report=report(results=results)) == [(Reason.CHECK_SKIPPED, name)]


def test_the_worst_finding_speaks_and_says_what_to_do() -> None:
    findings = (
        Finding(part="host", severity=Severity.CONFIG, detail="a setting"),
        Finding(
            part="GPU 3", severity=Severity.ISOLATE, detail="slow", measured="1 GB/s", wanted="2"
        ),
    )
    (blocker,) = certification.blockers(
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


BLOCKER = Blocker(reason=Reason.NO_PATH, subject="x", detail="x", unblock="x")


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
        for name in checks.required(NodeKind.SWITCH)
    )
    judged = report(results=results, inventory_digest=certification.identity(parts))
    certificate = issued(node=switch, inventory=parts)

    assert reasons(node=switch, inventory=parts, report=judged) == []
    assert certificate.boot_id == ""
    assert ends(certificate=certificate, node=switch, inventory=parts) == []


def test_a_finding_is_told_with_no_more_than_it_has() -> None:
    finding = Finding(part="GPU 3", severity=Severity.ISOLATE, detail="is dead")
    (blocker,) = certification.blockers(
        node=NODE,
        inventory=INVENTORY,
        plan=PLAN,
        report=with_result("ecc", Verdict.FAIL, finding),
        now=NOW,
    )

    assert blocker.detail == "GPU 3: is dead"


def test_a_host_whose_boot_or_serials_are_unknown_is_not_certified() -> None:
    hidden = changed(boot_id=None, system_serial=None, devices=())
    judged = report(inventory_digest=certification.identity(hidden))

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
    assert certification.judges(report(), inventory, node) is judged


def issued(**changes: Any) -> Certificate:
    given: dict[str, Any] = {
        "certificate_id": "c1",
        "node": NODE,
        "inventory": INVENTORY,
        "report": report(),
        "matrix_digest": "m",
        "now": NOW,
        "valid_s": 30 * DAY,
    }
    return certification.issue(**given | changes)


CERTIFICATE = issued()
CERTIFIED = NODE.model_copy(update={"state": State.CERTIFIED})


def validity(**changes: Any) -> tuple[Blocker, ...]:
    given: dict[str, Any] = {
        "certificate": CERTIFICATE,
        "inventory": INVENTORY,
        "node": CERTIFIED,
        "signed": True,
        "revoked": False,
        "now": NOW + DAY,
    }
    return certification.validity(**given | changes)


def ends(**changes: Any) -> list[Reason]:
    return [b.reason for b in validity(**changes)]


def test_a_certificate_names_what_was_proved_and_by_what() -> None:
    evidence = [r.model_copy(update={"evidence": "e2"}) for r in report().results[:2]]
    results = (*report().results[2:], *evidence)
    proof = GateProof(gate=Gate.A, certificate="c1", proved_at=NOW)
    certificate = issued(report=report(results=results), gates=(proof,), now=NOW + 0.7)

    assert certificate.checks == tuple(sorted(checks.required(NodeKind.HOST)))
    assert certificate.evidence == ("e2",)
    assert certificate.gates == (proof,)
    assert certificate.boot_id == "boot-1"
    assert (certificate.issued_at, certificate.expires_at) == (NOW, NOW + 30 * DAY)


def test_what_gives_no_serial_and_no_version_is_certified_as_such() -> None:
    hidden = changed(
        components=(Component(kind="hgx.gpu", slot="GPU_SXM_1", version=None, source="s"),),
        devices=(*INVENTORY.devices, Device(kind=DeviceKind.NIC, slot="NIC_1", serial=None)),
    )
    certificate = issued(inventory=hidden)

    assert certificate.serials == CERTIFICATE.serials
    assert certificate.versions == (("hgx.gpu/GPU_SXM_1", ""),)


def test_a_certificate_is_bound_to_what_was_judged() -> None:
    assert CERTIFICATE.serials == ("gpu/GPU_SXM_1=G1", "system=SYS1")
    assert CERTIFICATE.versions == (
        ("hgx.gpu/GPU_SXM_1", "96.00.99.00.01"),
        ("host.driver/host", "550.144.03"),
    )
    assert CERTIFICATE.ports == ("leaf0/swp1s0",)
    assert CERTIFICATE.report_digest == report().digest()
    assert CERTIFICATE.expires_at == NOW + 30 * DAY
    assert ends() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"signed": False}, [Reason.CERTIFICATE_INVALID]),
        ({"revoked": True}, [Reason.CERTIFICATE_INVALID]),
        ({"now": NOW + 30 * DAY}, [Reason.CERTIFICATE_EXPIRED]),
        ({"now": NOW - 1}, [Reason.CERTIFICATE_INVALID]),
        ({"now": NOW}, []),
        ({"inventory": changed(boot_id="boot-2")}, [Reason.DRIFT]),
        ({"inventory": changed(components=INVENTORY.components[:1])}, [Reason.DRIFT]),
        ({"inventory": changed(system_serial="SYS2")}, [Reason.DRIFT, Reason.DRIFT]),
        ({"inventory": changed(devices=())}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"ports": ()})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"location": Location(rack="z")})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"release": "s"})}, [Reason.DRIFT]),
        ({"node": CERTIFIED.model_copy(update={"id": "n2"})}, [Reason.CERTIFICATE_INVALID]),
    ],
)
def test_whatever_differs_ends_a_certificate(
    changes: dict[str, Any], expected: list[Reason]
) -> None:
    assert ends(**changes) == expected


def test_a_tenant_may_reboot_what_it_was_given() -> None:
    for state in State:
        held = NODE.model_copy(update={"state": state})
        free = state in (State.RELEASED, State.DRAINING)

        reasons_now = ends(node=held, inventory=changed(boot_id="boot-2"))
        assert reasons_now == ([] if free else [Reason.DRIFT])


@pytest.mark.parametrize("reason", list(Reason))
def test_a_certificate_is_lost_by_drift_by_a_failed_check_and_by_time(reason: Reason) -> None:
    losing = {Reason.DRIFT, Reason.CHECK_FAILED, Reason.CERTIFICATE_EXPIRED}
    blocker = BLOCKER.model_copy(update={"reason": reason})

    assert certification.lost([BLOCKER, blocker]) is (reason in losing)
    assert certification.lost([]) is False


def test_drift_says_what_was_and_what_is() -> None:
    driver, gpu = INVENTORY.components
    now = changed(
        components=(
            driver.model_copy(update={"version": "560.28"}),
            gpu.model_copy(update={"version": None}),
            gpu.model_copy(update={"slot": "GPU_SXM_2"}),
        )
    )
    details = {b.subject: b.detail for b in validity(inventory=now)}

    assert details == {
        "host.driver/host": "550.144.03 was certified, now it is 560.28",
        "hgx.gpu/GPU_SXM_1": "96.00.99.00.01 was certified, now it is nothing",
        "hgx.gpu/GPU_SXM_2": "nothing was certified, now it is 96.00.99.00.01",
    }


def test_what_is_not_shown_may_be_left_to_the_watch() -> None:
    driver = INVENTORY.components[0].model_copy(update={"version": "560.28"})
    less = changed(components=(driver,), devices=())

    assert [b.subject for b in validity(inventory=less)] == [
        "hgx.gpu/GPU_SXM_1",
        "host.driver/host",
        "gpu/GPU_SXM_1=G1",
    ]
    assert [b.subject for b in validity(inventory=less, absence_counts=False)] == [
        "host.driver/host"
    ]


def test_a_boot_that_is_not_readable_is_one_boot_however_it_is_put() -> None:
    assert certification.identity(changed(boot_id=None)) == certification.identity(
        changed(boot_id="")
    )


def test_power_and_gaps_are_no_drift() -> None:
    assert ends(inventory=changed(power="Off")) == []


def test_checks_from_the_future_are_said_to_be_that_and_a_small_step_of_the_clock_is_borne():
    def of(ended_at: float) -> tuple[str, ...]:
        found = certification.blockers(
            node=NODE, inventory=INVENTORY, plan=PLAN, report=report(ended_at=ended_at), now=NOW
        )
        return tuple(b.detail for b in found if b.reason is Reason.CHECK_SKIPPED)

    assert of(NOW + 40.0) == ()
    assert of(NOW + 90.0) == ("the checks are dated 90 s in the future: a clock was wrong",)
