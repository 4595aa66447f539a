"""What a node does next when gate C is demanded of it: a table of views and turns."""

from __future__ import annotations

import pytest

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.model.fabric_session import FabricOutcome
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan
from provisioner.planning.certification.check_selection import Selection
from provisioner.planning.lifecycle.decide import (
    Certify,
    Enter,
    Prove,
    Release,
    Turn,
    View,
    Wait,
    decide,
)

LINK = Blocker(reason=Reason.CABLING, subject="n/rail5", detail="bad", unblock="exchange it")
FAILED = Blocker(reason=Reason.CHECK_FAILED, subject="rdma_pair", detail="bad", unblock="look")
LATE = Blocker(reason=Reason.TIME_LIMIT, subject="n/gate C", detail="late", unblock="bring more")


def report(*gates: Gate) -> HealthReport:
    results = tuple(
        CheckResult(check=f"check {gate}", gate=gate, verdict=Verdict.PASS) for gate in gates
    )
    return HealthReport(
        node="n", inventory_digest="d", started_at=1.0, ended_at=2.0, results=results, fabric=True
    )


def outcome(*blockers: Blocker) -> FabricOutcome:
    return FabricOutcome(
        node="n", session="s", bound="d", began_at=3.0, ended_at=4.0, blockers=blockers
    )


def view(**more: object) -> View:
    chosen = Selection(checks=(), fabric=True, reasons={}, left_out={}, seconds=1.0)
    plan = Plan(node="n", release="r", profile="p")
    return View(plan=plan, selection=chosen).model_copy(update=more)


def turn(seen: View, state: State = State.VALIDATING) -> Turn:
    node = Node(id="n", kind=NodeKind.HOST, state=state, placement=Placement.MAINTENANCE)
    return decide(node, seen, 20.0)


def test_who_waits_for_partners_is_not_looked_at() -> None:
    assert turn(View(fabric_wait="partners")) == Wait(after_s=20.0, why="partners")


def test_who_waits_for_partners_gives_way_to_a_switch_that_is_upgraded() -> None:
    found = turn(View(fabric_wait="partners", neighbours_busy=("leaf-1",)))

    assert found == Enter(state=State.CONVERGING, why="leaf-1 is being upgraded")


def test_who_is_tested_now_stays() -> None:
    seen = View(fabric_wait="round 1", in_session=True, neighbours_busy=("leaf-1",))

    assert turn(seen) == Wait(after_s=20.0, why="round 1")


def test_a_wait_that_is_too_long_ends_in_quarantine() -> None:
    found = turn(View(fabric_wait="partners", fabric_late=(LATE,)))

    assert found == Enter(state=State.QUARANTINED, why=str(LATE), blockers=(LATE,))


@pytest.mark.parametrize("blockers", [(), (LINK,)])
def test_an_outcome_is_first_taken_into_the_report(blockers: tuple[Blocker, ...]) -> None:
    assert turn(view(report=report(Gate.A), fabric=outcome(*blockers))) == Prove()


def test_the_culprit_is_named_before_the_check_that_it_failed() -> None:
    seen = view(report=report(Gate.A, Gate.C), fabric=outcome(LINK), report_blockers=(FAILED,))

    assert turn(seen) == Enter(state=State.QUARANTINED, why=str(LINK), blockers=(LINK,))


def test_who_passed_is_certified() -> None:
    assert turn(view(report=report(Gate.A, Gate.C), fabric=outcome())) == Certify()


def test_nobody_is_certified_without_gate_c_where_it_is_demanded() -> None:
    found = turn(view(report=report(Gate.A, Gate.B)))

    assert isinstance(found, Enter)
    assert found.state is State.CONVERGING


@pytest.mark.parametrize(("in_session", "expected"), [(True, Wait), (False, Release)])
def test_a_lent_node_is_released_when_its_tests_have_ended(
    in_session: bool, expected: type[object]
) -> None:
    certificate = Certificate(
        id="c",
        node="n",
        release="r",
        profile="p",
        serials=(),
        versions=(),
        boot_id="b",
        location="l",
        ports=(),
        report_digest="d",
        matrix_digest="m",
        issued_at=0,
        expires_at=1,
    )
    seen = View(certificate=certificate, tenant_vrf="RED", in_session=in_session)

    assert isinstance(turn(seen, State.CERTIFIED), expected)
