"""Why a certificate may not be issued, and what ends one."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner import checks
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
    ],
)
def test_anything_else_in_the_way_is_named(changes: dict[str, Any], reason: Reason) -> None:
    assert [r for r, _ in reasons(**changes)] == [reason]


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
    ],
)
def test_a_report_judges_this_inventory_this_boot_and_this_stay(
    inventory: Inventory, node: Node, *, judged: bool
) -> None:
    assert certification.judges(report(), inventory, node) is judged


CERTIFICATE = certification.issue(
    certificate_id="c1",
    node=NODE,
    inventory=INVENTORY,
    report=report(),
    matrix_digest="m",
    now=NOW,
    valid_s=30 * DAY,
)
CERTIFIED = NODE.model_copy(update={"state": State.CERTIFIED})


def ends(**changes: Any) -> list[Reason]:
    given: dict[str, Any] = {
        "certificate": CERTIFICATE,
        "inventory": INVENTORY,
        "node": CERTIFIED,
        "signed": True,
        "revoked": False,
        "now": NOW + DAY,
    }
    return [b.reason for b in certification.validity(**given | changes)]


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
    released = NODE.model_copy(update={"state": State.RELEASED})

    assert ends(node=released, inventory=changed(boot_id="boot-2")) == []


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
