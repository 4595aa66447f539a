"""A node at its pins with a good report, and the certificate that it gets for it."""

from __future__ import annotations

from typing import Any

from provisioner import checks
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import CheckResult, Finding, Gate, HealthReport, Verdict
from provisioner.model.inventory import Activation, Component, Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.planning.certification import certification

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
        inventory_digest=certification.identify_installation(INVENTORY),
        started_at=NOW - 500,
        ended_at=NOW - 100,
        results=tuple(
            CheckResult(check=name, gate=Gate.A, verdict=Verdict.PASS)
            for name in checks.list_required_results(NodeKind.HOST)
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


BLOCKER = Blocker(reason=Reason.NO_PATH, subject="x", detail="x", unblock="x")


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
    return certification.issue_certificate(**given | changes)


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
    return certification.find_invalidity(**given | changes)


def ends(**changes: Any) -> list[Reason]:
    return [b.reason for b in validity(**changes)]
