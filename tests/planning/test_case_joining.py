"""A report that joins an open case can only make the service stricter."""

from __future__ import annotations

from itertools import permutations

import pytest

from provisioner.model.alert import Alert, Classification
from provisioner.model.case import Case, JoinedReport, Origin, Service, Stage
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.repair import case_joining as joining
from provisioner.planning.repair.case_policy import CasePolicy, is_planned

NOW, DAY_S = 1_000_000.0, 86400.0
SERVING = Node(id="n", kind=NodeKind.HOST, state=State.RELEASED, tenant="red")
POLICY = CasePolicy(notice_s=DAY_S)


def case(**more: object) -> Case:
    fields = {"id": "n-c0001", "node": "n", "origin": Origin.EVENT, "reason": "a link flaps",
              "service": Service.KEEP, "opened_at": NOW - 60, "tenant": "red", **more}  # fmt: skip
    return Case.model_validate(fields)


def report(origin: Origin = Origin.OPERATOR, at: float = NOW) -> JoinedReport:
    return JoinedReport(origin=origin, reason="smoke", by="jane", at=at)


def join(before: Case, service: Service, node: Node = SERVING) -> Case:
    after = joining.join_report(before, node, report(), service, POLICY)
    assert isinstance(after, Case), after
    return after


# service and drain time before, service of the report, both after
JOINED = {
    "a kept node is cut off at once": (Service.KEEP, 0.0, Service.CUT_OFF, NOW),
    "a kept node is drained after a notice": (Service.KEEP, 0.0, Service.DRAIN, NOW + DAY_S),
    "a drain becomes a cut off": (Service.DRAIN, NOW + 9 * DAY_S, Service.CUT_OFF, NOW),
}


@pytest.mark.parametrize("sentence", JOINED)
def test_a_worse_report_makes_the_service_stricter_at_once(sentence: str) -> None:
    had, drain_at, service, drained_at = JOINED[sentence]
    before = case(service=had, drain_at=drain_at)

    after = join(before, service)

    assert (after.service, after.drain_at) == (service, drained_at)
    assert [r.reason for r in after.reports] == ["smoke"]
    notice = joining.write_joined_notice(before, after, NOW)
    assert notice is not None
    assert notice.effective_at == drained_at


def test_the_tenant_is_noticed_when_a_case_as_advice_takes_its_node() -> None:
    before = case(tenant="", stage=Stage.HARDWARE)

    kept = join(before, Service.KEEP)
    after = join(before, Service.DRAIN)

    assert joining.write_joined_notice(before, kept, NOW) is None
    notice = joining.write_joined_notice(before, after, NOW)
    assert notice is not None
    assert (after.stage, after.drain_at) == (Stage.OPENED, NOW + DAY_S)
    assert (notice.tenant, notice.effective_at) == ("red", NOW + DAY_S)


def test_no_order_of_reports_makes_a_service_weaker_or_later() -> None:
    for order in permutations(Service):
        before = case()
        for service in order:
            after = join(before, service)
            assert not joining.is_stricter(before.service, after.service)
            if before.drain_at:
                assert after.drain_at <= before.drain_at
            before = after
        assert (before.service, before.drain_at) == (Service.CUT_OFF, NOW)


def test_a_fault_during_planned_maintenance_is_reported_as_a_fault() -> None:
    planned = case(origin=Origin.MAINTENANCE, service=Service.DRAIN, drain_at=NOW + DAY_S)

    after = join(planned, Service.CUT_OFF)

    assert is_planned(planned)
    assert not is_planned(after)
    notice = joining.write_joined_notice(planned, after, NOW)
    assert notice is not None
    assert (notice.kind, notice.text[:26]) == ("failure", "Node n has a fault: smoke.")


def test_a_weaker_report_is_recorded_and_sends_no_notice() -> None:
    before = case(service=Service.DRAIN, drain_at=NOW + 5)

    after = join(before, Service.KEEP)

    assert (after.service, after.drain_at, len(after.reports)) == (Service.DRAIN, NOW + 5, 1)
    assert joining.write_joined_notice(before, after, NOW) is None


def test_a_report_about_a_node_that_serves_again_begins_the_case_anew() -> None:
    back = case(service=Service.CUT_OFF, drain_at=NOW - DAY_S, stage=Stage.RETURNING)

    drained = join(back, Service.DRAIN)
    leaving = join(back.model_copy(update={"retire_at": NOW + 9}), Service.KEEP)

    assert (drained.stage, drained.service) == (Stage.OPENED, Service.DRAIN)
    assert drained.drain_at == NOW + DAY_S
    assert (leaving.stage, leaving.service, leaving.drain_at) == (
        Stage.OPENED, Service.DRAIN, NOW + 9
    )  # fmt: skip


def test_a_report_in_repair_is_recorded_and_moves_no_time() -> None:
    node = SERVING.model_copy(update={"state": State.REPAIRING})
    before = case(stage=Stage.DIAGNOSIS, drain_at=5.0, service=Service.DRAIN)

    after = join(before, Service.CUT_OFF, node)

    assert (after.stage, after.service, after.drain_at) == (
        Stage.DIAGNOSIS, Service.CUT_OFF, 5.0
    )  # fmt: skip


def test_the_reports_of_a_tenant_are_bounded_and_those_of_the_staff_are_not_refused() -> None:
    before = case(service=Service.DRAIN, drain_at=NOW + 5)
    for _ in range(joining.TENANT_REPORTS_MAX):
        joined = joining.join_report(before, SERVING, report(Origin.TENANT), Service.DRAIN, POLICY)
        assert isinstance(joined, Case)
        before = joined
    refused = joining.join_report(before, SERVING, report(Origin.TENANT), Service.DRAIN, POLICY)
    assert isinstance(refused, str)
    for _ in range(2 * joining.REPORTS_MAX):
        before = join(before, Service.DRAIN)
    assert len(before.reports) == joining.REPORTS_MAX


def alert(*classes: Classification, since: float = NOW) -> Alert:
    return Alert(node="n", id="Xid79", target="GPU_0", classifications=classes, source="watch",
                 since=since, last_at=since)  # fmt: skip


def test_an_alert_is_weighed_once_and_again_when_it_becomes_fatal() -> None:
    hardware = alert(Classification.HARDWARE)
    fatal = alert(Classification.HARDWARE, Classification.FATAL_EVENT)
    weighed = joining.add_weighed(case(), [hardware])

    assert joining.find_new_alerts(weighed, [hardware]) == ()
    assert joining.find_new_alerts(weighed, [fatal]) == (fatal,)
    older = alert(Classification.FATAL_EVENT, since=NOW - DAY_S)
    assert joining.find_new_alerts(case(), [older]) == ()  # a case of an earlier release
    assert joining.find_new_alerts(case(), [fatal]) == (fatal,)
