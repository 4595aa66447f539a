"""Nodes in every state and in every kind of trouble, for the golden texts of `explain`."""

from __future__ import annotations

from provisioner.model.alert import Alert
from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Progress,
)
from provisioner.model.case import (
    Case,
    Origin,
    PartClass,
    RemedyKind,
    RemedyOutcome,
    RemedyTry,
    Service,
    Stage,
    Suspect,
    Ticket,
)
from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.cohort import Finding, Gate, Severity
from provisioner.model.inventory import Activation
from provisioner.model.location import Location
from provisioner.model.node import Boots, Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.planning.lifecycle.explain import Situation

NOW = 1_700_000_000.0
HOUR_S, DAY_S = 3600.0, 86400.0
GPU = Blocker(
    reason=Reason.CHECK_FAILED,
    subject="gpu_inventory/GPU_SXM_5",
    detail="7 of 8 GPUs answer",
    unblock="Reseat or replace GPU_SXM_5.",
)
SILENT = Blocker(
    reason=Reason.UNREACHABLE,
    subject="n07/host",
    detail="no answer within 30 s",
    unblock="Check the BMC's cable and power.",
)


def node(state: State, hours: float = 2.0, **more: object) -> Node:
    given = {
        "id": "n07",
        "kind": NodeKind.HOST,
        "state": state,
        "entered_at": NOW - hours * HOUR_S,
        "placement": Placement.MAINTENANCE,
        "vrf": "MAINT",
        "release": "spectrum-x-1.3.0",
        "profile": "hgx-h100-bf3",
        "location": Location(rack="r03", index=4),
    }
    return Node.model_validate(given | more)


def moved(to: State, why: str, hours: float = 2.0, came: str = "converging") -> dict[str, object]:
    detail = {"from": came, "to": to.value, "why": why, "blockers": []}
    return {"kind": "state", "node": "n07", "at": NOW - hours * HOUR_S, "detail": detail}


def row(kind: str, minutes: float, **detail: object) -> dict[str, object]:
    return {"kind": kind, "node": "n07", "at": NOW - minutes * 60, "detail": detail}


def certificate(days_left: float) -> Certificate:
    return Certificate(
        id="cert-n07",
        node="n07",
        release="spectrum-x-1.3.0",
        profile="hgx-h100-bf3",
        serials=(),
        versions=(),
        boot_id="b",
        location="r03/4",
        ports=(),
        report_digest="0" * 64,
        matrix_digest="0" * 64,
        gates=tuple(
            GateProof(gate=g, certificate="cert-n07", proved_at=NOW - DAY_S)
            for g in (Gate.A, Gate.B)
        ),
        issued_at=NOW - DAY_S,
        expires_at=NOW + days_left * DAY_S,
    )


def step(component: str, to: str, reason: str) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=component,
        slots=("DPU_1",),
        from_version="1.0",
        to_version=to,
        method="redfish_push",
        activation=Activation.COLD_BOOT,
        disruption=Disruption.NONE,
        duration_s=600,
        expected=(),
        reason=reason,
    )


def plan(count: int, *blockers: Blocker, in_flight: tuple[str, ...] = ()) -> Plan:
    steps = [step(f"part.{i}", "2.0", f"it runs 1.0, 2.0 is pinned ({i})") for i in range(count)]
    return Plan(
        node="n07",
        release="spectrum-x-1.3.0",
        profile="hgx-h100-bf3",
        steps=tuple(steps),
        blockers=blockers,
        in_flight=in_flight,
        resets=min(1, count),
        duration_s=600 * count,
    )


def case(**more: object) -> Case:
    given = {
        "id": "n07-0003",
        "node": "n07",
        "origin": Origin.EVENT,
        "reason": "Xid 79: the GPU has fallen off the bus",
        "service": Service.CUT_OFF,
        "stage": Stage.HARDWARE,
        "opened_at": NOW - 5 * HOUR_S,
        "suspects": (
            Suspect(
                part="GPU_SXM_5",
                kind=PartClass.GPU,
                confidence=0.85,
                rule="xid-79",
                why="Xid 79 names it and it is missing from the inventory",
            ),
        ),
        "tries": (
            RemedyTry(
                remedy=RemedyKind.COLD_BOOT,
                part="GPU_SXM_5",
                kind=PartClass.GPU,
                attempt=1,
                started_at=NOW - 4 * HOUR_S,
                done_at=NOW - 3.9 * HOUR_S,
                outcome=RemedyOutcome.SAME,
            ),
        ),
        "ticket": Ticket(id="INC-77", work="Replace GPU_SXM_5 of n07"),
        "note": "a person who replaces it",
    }
    return Case.model_validate(given | more)


def campaign(state: CampaignState, progress: Progress, **more: object) -> dict[str, object]:
    given = {"id": "c0002", "release": "spectrum-x-2.1.2", "select": "all", "state": state}
    return {
        "campaign": Campaign.model_validate(
            given | {"reason": more.pop("why", "")}  # of the campaign
        ),
        "row": CampaignRow(
            campaign="c0002",
            progress=NodeProgress.model_validate({"node": "n07", "state": progress, **more}),
            facts=CampaignNode(name="n07"),
        ),
    }


BUG = GPU.model_copy(update={"reason": Reason.OUR_BUG, "unblock": "Report it; then retry."})
EXPIRED = "its certificate expired"
SITUATIONS: dict[str, Situation] = {
    "a_stranger": Situation(
        node=node(State.DISCOVERED, profile="", release="", placement=Placement.NONE), now=NOW
    ),
    "waits_for_ssh": Situation(
        node=node(State.DISCOVERED, profile="", placement=Placement.NONE, note=str(SILENT)),
        now=NOW,
        history=(row("waits", 3, blockers=[SILENT.model_dump(mode="json")]),),
    ),
    "intake": Situation(node=node(State.INTAKE, placement=Placement.NONE), now=NOW),
    "other_measurement": Situation(
        node=node(State.CERTIFIED),
        now=NOW,
        certificate=certificate(20),
        evidence=(
            Finding(
                part="HGX_ERoT_GPU_SXM_5",
                severity=Severity.ISOLATE,
                detail="measurement 3 is not the one that su0-n01, 2026-11-22 admits",
                measured="1f0c7a31",
                wanted="6d9f8d6c",
            ),
            Finding(part="db", severity=Severity.CONFIG, detail="its entries are not shown"),
        ),
    ),
    "converging": Situation(
        node=node(State.CONVERGING, note="part.0 1.0 → 2.0: it runs 1.0"),
        now=NOW,
        plan=plan(7),
        history=(
            row("step", 12, step="host.bmc 1 → 2", problems=[]),
            moved(State.CONVERGING, "fenced, parts and place as planned", came="intake"),
        ),
    ),
    "converging_but_not_fenced": Situation(
        node=node(State.CONVERGING, placement=Placement.MIXED, boots=Boots.RAMDISK),
        now=NOW,
        plan=plan(0, in_flight=("bluefield.bundle DPU_1",)),
    ),
    "no_path": Situation(node=node(State.CONVERGING), now=NOW, plan=plan(0, GPU)),
    "nothing_left_to_do": Situation(node=node(State.CONVERGING), now=NOW, plan=plan(0)),
    "validating_for_too_long": Situation(
        node=node(State.VALIDATING, hours=9, note="waits for partners"), now=NOW, plan=plan(0)
    ),
    "waits_for_a_tenant": Situation(
        node=node(State.CERTIFIED), now=NOW, certificate=certificate(29.5)
    ),
    "allocated": Situation(
        node=node(State.CERTIFIED, tenant="red"), now=NOW, certificate=certificate(29.5)
    ),
    "released": Situation(
        node=node(
            State.RELEASED,
            hours=60,
            placement=Placement.CUSTOMER,
            vrf="RED",
            tenant="red",
            served="red",
        ),
        now=NOW,
        certificate=certificate(-0.5),
        alerts=tuple(
            Alert(node="n07", id=f"Fan{i}", target="FAN_1", source="watch", since=NOW, last_at=NOW)
            for i in range(7)
        ),
        history=(moved(State.RELEASED, "released to red", 60, "certified"),),
    ),
    "quarantined_by_a_check": Situation(
        node=node(State.QUARANTINED, blockers=(GPU,), attempts=2),
        now=NOW,
        plan=plan(0),
        revoked=EXPIRED,
        certificate=certificate(3),
        history=(
            row("request", 300, request="retry"),
            row("step", 400, step="host.bmc 1 → 2", problems=["refused: host.bmc: it said no"]),
            moved(State.QUARANTINED, str(GPU), came="validating"),
        ),
    ),
    "quarantined_by_silence": Situation(
        node=node(State.QUARANTINED, blockers=(SILENT,)), now=NOW, plan=plan(0)
    ),
    "being_repaired": Situation(
        node=node(State.REPAIRING, blockers=(GPU,)), now=NOW, case=case(), plan=plan(0, GPU)
    ),
    "kept_by_its_tenant": Situation(
        node=node(State.RELEASED, tenant="red", placement=Placement.CUSTOMER, vrf="RED"),
        now=NOW,
        case=case(
            service=Service.DRAIN,
            stage=Stage.OPENED,
            drain_at=NOW + 3 * HOUR_S,
            ticket=None,
            tries=(),
            note="",
        ),
        certificate=certificate(2),
    ),
    "in_a_stopped_campaign": Situation(
        node=node(State.RELEASED, tenant="red", placement=Placement.CUSTOMER, vrf="RED"),
        now=NOW,
        certificate=certificate(2),
        **campaign(CampaignState.STOPPED, Progress.PENDING, why="3 of the last 10 failed"),
    ),
    "told_of_a_campaign": Situation(
        node=node(State.RELEASED, tenant="red", placement=Placement.CUSTOMER, vrf="RED"),
        now=NOW,
        certificate=certificate(2),
        **campaign(CampaignState.STARTED, Progress.NOTIFIED, earliest_at=NOW + DAY_S, wave=1),
    ),
    "draining": Situation(
        node=node(State.DRAINING, served="red", placement=Placement.CUSTOMER, vrf="RED"), now=NOW
    ),
    "parked": Situation(
        node=node(State.CONVERGING, blockers=(BUG,)),
        now=NOW,
        plan=plan(2),
        under_way=(
            LedgerEntry(
                operation="op-1",
                node="n07",
                action="cold_boot #3",
                attempt=1,
                status=ActionStatus.UNCLEAR,
                intended_at=NOW - 60,
                before={},
            ),
        ),
    ),
    "a_switch": Situation(
        node=node(State.CERTIFIED, kind=NodeKind.SWITCH, profile="sn5600"), now=NOW
    ),
    "retired": Situation(
        node=node(State.RETIRED, placement=Placement.NONE, boots=Boots.NOTHING), now=NOW
    ),
}
