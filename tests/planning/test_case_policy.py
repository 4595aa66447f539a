"""Policy of a case: what becomes of its tenant, how long it may wait, what is evidence."""

from __future__ import annotations

import pytest

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.model.alert import Alert, Classification
from provisioner.model.case import Case, Fault, Origin, Service
from provisioner.model.cohort import Evidence, HealthReport, Verdict
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.destruction import is_confirmed
from provisioner.planning.repair import case_policy
from provisioner.planning.repair.case_policy import CasePolicy

NOW, DAY_S = 1_000_000.0, 86400.0


def case(**more: object) -> Case:
    fields = {"id": "n-c0001", "node": "n", "origin": Origin.CHECK, "reason": "broken",
              "service": Service.CUT_OFF, "opened_at": NOW, **more}  # fmt: skip
    return Case.model_validate(fields)


ALERTS = {
    "a fatal event cuts off": ([Classification.FATAL_EVENT], Origin.EVENT, Service.CUT_OFF),
    "hardware drains": ([Classification.HARDWARE], Origin.EVENT, Service.DRAIN),
    "a link is kept": ([Classification.LINK], Origin.EVENT, Service.KEEP),
    "a tenant's word drains": ([], Origin.TENANT, Service.DRAIN),
    "a person's word is kept": ([], Origin.OPERATOR, Service.KEEP),
}


@pytest.mark.parametrize("sentence", ALERTS)
def test_policy_decides_what_becomes_of_the_tenant(sentence: str) -> None:
    classes, origin, service = ALERTS[sentence]

    assert case_policy.service_for(classes, origin, CasePolicy()) is service
    assert case_policy.service_for(classes, origin, CasePolicy(service="keep")) is Service.KEEP


def quarantined(*reasons: Reason) -> Node:
    found = tuple(Blocker(reason=r, subject="n", detail="d", unblock="u") for r in reasons)
    return Node(id="n", kind=NodeKind.HOST, state=State.QUARANTINED, blockers=found)


def test_only_what_a_matrix_refuses_is_beyond_every_remedy() -> None:
    refused = quarantined(Reason.DOWNGRADE, Reason.MISSING_ARTIFACT)
    assert case_policy.is_incurable(case(), refused)
    for blocked in (quarantined(Reason.DOWNGRADE, Reason.CHECK_FAILED), quarantined()):
        assert not case_policy.is_incurable(case(), blocked)
    back = refused.model_copy(update={"state": State.CONVERGING})
    assert not case_policy.is_incurable(case(), back)
    assert not case_policy.is_incurable(case(retire_at=NOW), refused)  # its retirement goes on


def test_a_tenant_may_put_a_drain_off_for_two_weeks_and_no_more() -> None:
    waiting = case(service=Service.DRAIN, drain_at=NOW + DAY_S)

    good = case_policy.defer_drain(waiting, NOW + 13 * DAY_S, CasePolicy(), NOW)
    late = case_policy.defer_drain(waiting, NOW + 15 * DAY_S, CasePolicy(), NOW)
    cut = case_policy.defer_drain(case(drain_at=NOW), NOW + DAY_S, CasePolicy(), NOW)

    assert isinstance(good, Case)
    assert good.drain_at == NOW + 13 * DAY_S
    assert isinstance(late, str)
    assert isinstance(cut, str)


def test_what_a_person_said_is_evidence_and_not_measured() -> None:
    told = case(origin=Origin.TENANT, reason="jobs hang")
    node = Node(id="n", kind=NodeKind.HOST)
    alert = Alert(node="n", id="LinkFlap", target="p0", source="watch", since=NOW, last_at=NOW)

    seen = case_policy.faults_of(node, None, [alert], told)

    assert [f.source for f in seen] == ["report", "alert"]
    assert case_policy.list_keys(seen) == ("alert:LinkFlap:p0",)
    assert case_policy.list_keys([Fault(source="event_log", id="x")]) == ()


OUTPUTS = {
    "an uncorrectable error": ("0, Enabled, 3, 0\n", 0, True),
    "a setting of the tenant's own": ("0, Disabled, 0, 0\n", 0, False),
    "no such tool in the tenant's system": ("nvidia-smi: not found", 127, False),
    "an output that ends in the midst": ("0, Enab", 0, False),
}


@pytest.mark.parametrize("sentence", OUTPUTS)
def test_only_a_check_that_names_a_broken_part_confirms_it(sentence: str) -> None:
    text, code, confirms = OUTPUTS[sentence]
    (check,) = [c for c in checks.ALL if c.name == "ecc"]
    told = {"ecc": Evidence(source=check.commands[0].line, text=text, exit_code=code)}
    result = check.judge(told, CheckContext(gpu_model="H100", gpus=1))
    report = HealthReport(
        node="n", inventory_digest="", results=(result,), started_at=NOW, ended_at=NOW
    )
    node = Node(id="n", kind=NodeKind.HOST)

    assert result.verdict is Verdict.FAIL
    assert is_confirmed(case(faults=case_policy.faults_of(node, report, ()))) is confirms
