"""The journey as a table, and what `decide` answers in each situation."""

from __future__ import annotations

import pytest

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.model.tenant import PortPlacement
from provisioner.planning.lifecycle.decide import (
    PASSING,
    PASSING_FAILURES_MAX,
    Certify,
    Enter,
    Execute,
    Fence,
    Identify,
    Mend,
    Release,
    Rest,
    Sanitize,
    Validate,
    View,
    Wait,
    decide,
    decide_after_failure,
)
from provisioner.planning.lifecycle.journey import JOURNEY, may_enter

POLL_S = 20.0
INVENTORY = Inventory(node="n", vendor="generic")
STEP = Step(
    kind=StepKind.UPDATE,
    component="host.bmc",
    slots=("host",),
    from_version="1",
    to_version="2",
    activation=Activation.BMC_RESET,
    disruption=Disruption.NONE,
    duration_s=60,
    expected=(),
    reason="test",
)
DONE = Plan(node="n", release="r", profile="p")
TODO = Plan(node="n", release="r", profile="p", steps=(STEP,))
REPORT = HealthReport(
    node="n",
    inventory_digest=INVENTORY.digest(),
    started_at=0,
    ended_at=1,
    results=(CheckResult(check="c", gate=Gate.A, verdict=Verdict.PASS),),
)


def blocker(reason: Reason = Reason.CHECK_FAILED) -> Blocker:
    return Blocker(reason=reason, subject="s", detail="d", unblock="u")


def node(state: State, placement: Placement = Placement.MAINTENANCE, **more: object) -> Node:
    fields = {"id": "n", "kind": NodeKind.HOST, "state": state, "placement": placement, **more}
    return Node.model_validate(fields)


FENCED = {"placement": Placement.MAINTENANCE, "vrf": "MAINT"}

SENTENCES = {
    "a discovered node is identified first": (State.DISCOVERED, View(), Identify),
    "an identified node is taken in": (State.DISCOVERED, View(identified=True), State.INTAKE),
    "a node in intake is fenced": (State.INTAKE, View(placement=Placement.NONE), Fence),
    "a fenced node converges": (State.INTAKE, View(**FENCED), State.CONVERGING),
    "a node out of the fence is fenced before any step": (
        State.CONVERGING,
        View(placement=Placement.CUSTOMER, plan=TODO, inventory=INVENTORY),
        Fence,
    ),
    "a plan's first step is carried out": (
        State.CONVERGING,
        View(**FENCED, plan=TODO, inventory=INVENTORY),
        Execute,
    ),
    "what is in flight is waited for": (
        State.CONVERGING,
        View(**FENCED, plan=DONE.model_copy(update={"in_flight": ("copy",)}), inventory=INVENTORY),
        Wait,
    ),
    "a blocked plan quarantines": (
        State.CONVERGING,
        View(**FENCED, plan=DONE.model_copy(update={"blockers": (blocker(),)})),
        State.QUARANTINED,
    ),
    "a node at its pins is validated": (
        State.CONVERGING,
        View(**FENCED, plan=DONE, inventory=INVENTORY),
        State.VALIDATING,
    ),
    "a node without a report is checked": (
        State.VALIDATING,
        View(plan=DONE, inventory=INVENTORY),
        Validate,
    ),
    "nobody is checked across a switch that is being upgraded": (
        State.CONVERGING,
        View(**FENCED, plan=DONE, inventory=INVENTORY, neighbours_busy=("leaf-0",)),
        Wait,
    ),
    "a node makes way for a switch that waits to be upgraded": (
        State.VALIDATING,
        View(plan=DONE, inventory=INVENTORY, neighbours_busy=("leaf-0",)),
        State.CONVERGING,
    ),
    "drift during validation goes back": (
        State.VALIDATING,
        View(plan=TODO, inventory=INVENTORY, report=REPORT),
        State.CONVERGING,
    ),
    "a failed check quarantines": (
        State.VALIDATING,
        View(plan=DONE, inventory=INVENTORY, report=REPORT, report_blockers=(blocker(),)),
        State.QUARANTINED,
    ),
    "a passed node is certified": (
        State.VALIDATING,
        View(plan=DONE, inventory=INVENTORY, report=REPORT),
        Certify,
    ),
    "a node without a certificate is never released": (
        State.CERTIFIED,
        View(inventory=INVENTORY, tenant_vrf="RED"),
        State.CONVERGING,
    ),
    "a release that was cut short is taken back first": (
        State.CERTIFIED,
        View(placement=Placement.MIXED),
        Fence,
    ),
    "a fence whose answer was lost is carried out again before the node rests": (
        State.CERTIFIED,
        View(**FENCED, unrecorded=True, certificate_blockers=(blocker(),)),
        Fence,
    ),
    "the same before it is released again": (
        State.CERTIFIED,
        View(**FENCED, unrecorded=True, tenant_vrf="RED"),
        Fence,
    ),
    "the same before anything is done to a node in repair": (
        State.REPAIRING,
        View(**FENCED, unrecorded=True, repair=""),
        Fence,
    ),
    "a node in repair is mended where its ports cannot be read": (
        State.REPAIRING,
        View(repair=""),
        Mend,
    ),
    "a returned node is fenced before it is erased": (
        State.DRAINING,
        View(placement=Placement.CUSTOMER, owed=(blocker(Reason.NOT_SANITIZED),)),
        Fence,
    ),
    "a fenced node that served a tenant is erased": (
        State.DRAINING,
        View(**FENCED, owed=(blocker(Reason.NOT_SANITIZED),)),
        Sanitize,
    ),
    "a fence that its row does not know of begins a stay anew before anything is erased": (
        State.DRAINING,
        View(**FENCED, owed=(blocker(Reason.NOT_SANITIZED),), unrecorded=True),
        Fence,
    ),
    "the same where a release was cut short": (
        State.CONVERGING,
        View(**FENCED, owed=(blocker(Reason.NOT_SANITIZED),), unrecorded=True),
        Fence,
    ),
    "a returned node that owes nothing converges": (
        State.DRAINING,
        View(**FENCED),
        State.CONVERGING,
    ),
    "a node that was retried is erased before anything is planned": (
        State.CONVERGING,
        View(**FENCED, owed=(blocker(Reason.NOT_SANITIZED),)),
        Sanitize,
    ),
    "a node that is not clean is not checked": (
        State.VALIDATING,
        View(owed=(blocker(Reason.NOT_SANITIZED),)),
        State.CONVERGING,
    ),
    "a quarantined node rests": (State.QUARANTINED, View(), Rest),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_decide(sentence: str) -> None:
    state, view, expected = SENTENCES[sentence]
    turn = decide(node(state), view, POLL_S)

    if isinstance(expected, State):
        assert isinstance(turn, Enter)
        assert turn.state is expected
    else:
        assert isinstance(turn, expected)


ASKED = (State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.CERTIFIED)


@pytest.mark.parametrize("state", ASKED)
def test_a_trespass_that_was_recorded_is_a_question_for_a_person_once_it_is_fenced(
    state: State,
) -> None:
    asked = {"blockers": (blocker(), blocker(Reason.TRESPASS))}
    ready = View(placement=Placement.MAINTENANCE, identified=True, inventory=INVENTORY)

    turn = decide(node(state, **asked), ready, POLL_S)

    assert isinstance(turn, Enter)
    assert (turn.state, turn.blockers) == (State.QUARANTINED, (blocker(Reason.TRESPASS),))


@pytest.mark.parametrize("state", ASKED[1:])
def test_a_port_that_still_trespasses_is_fenced_before_a_person_is_asked(state: State) -> None:
    port = PortPlacement(switch="leaf", interface="swp1", vrf="RED")
    there = View(placement=Placement.MIXED, violations=(port,))

    turn = decide(node(state, blockers=(blocker(Reason.TRESPASS),)), there, POLL_S)

    assert turn == Fence(violations=(port,))


def test_a_node_whose_ports_may_be_anywhere_is_fenced_before_a_person_is_asked() -> None:
    asked = node(State.CONVERGING, Placement.MIXED, blockers=(blocker(Reason.TRESPASS),))

    assert decide(asked, View(placement=Placement.MIXED), POLL_S) == Fence()


@pytest.mark.parametrize(
    ("state", "more"), [(State.DRAINING, {}), (State.CONVERGING, {"taken": True})]
)
def test_nobody_is_asked_about_a_node_that_people_know_of(
    state: State, more: dict[str, object]
) -> None:
    noted = node(state, blockers=(blocker(Reason.TRESPASS),), **more)

    fenced = View(placement=Placement.MAINTENANCE, owed=(blocker(Reason.NOT_SANITIZED),))
    turn = decide(noted, fenced, POLL_S)

    assert turn == Sanitize()


def test_every_way_out_of_the_table_can_be_entered_from_some_placement() -> None:
    for state, stage in JOURNEY.items():
        for target in stage.leaves_to:
            assert any(may_enter(node(state), target, p) for p in JOURNEY[target].placements)


def test_nothing_enters_released_without_a_proved_customer_placement() -> None:
    for placement in Placement:
        allowed = may_enter(node(State.CERTIFIED), State.RELEASED, placement)

        assert allowed == (placement is Placement.CUSTOMER)


def test_released_is_entered_from_certified_only() -> None:
    sources = [s for s, stage in JOURNEY.items() if State.RELEASED in stage.leaves_to]

    assert sources == [State.CERTIFIED]


def test_a_node_in_a_customer_vrf_is_not_quarantined_before_it_is_fenced() -> None:
    released = node(State.CONVERGING, Placement.CUSTOMER)

    assert not may_enter(released, State.QUARANTINED, Placement.CUSTOMER)
    assert isinstance(decide_after_failure(released, (blocker(),), failures=1, retry_s=1), Wait)


@pytest.mark.parametrize("reason", sorted(PASSING))
def test_a_passing_failure_is_waited_out_but_not_for_ever(reason: Reason) -> None:
    converging = node(State.CONVERGING)
    waits = [
        decide_after_failure(converging, (blocker(reason),), failures=n, retry_s=1)
        for n in range(1, PASSING_FAILURES_MAX + 1)
    ]
    last = decide_after_failure(
        converging, (blocker(reason),), failures=PASSING_FAILURES_MAX + 1, retry_s=1
    )

    pauses = [w.after_s for w in waits if isinstance(w, Wait)]
    assert len(pauses) == PASSING_FAILURES_MAX
    assert pauses == sorted(pauses)
    assert isinstance(last, Enter)
    assert last.state is State.QUARANTINED


def test_a_node_never_goes_to_quarantine_because_we_are_too_slow() -> None:
    turn = decide_after_failure(
        node(State.CONVERGING), (blocker(Reason.OVERLOADED),), failures=10_000, retry_s=1
    )

    assert isinstance(turn, Wait)


def test_an_unseen_node_is_never_decided_upon() -> None:
    view = View(unseen=(blocker(Reason.UNREACHABLE),), plan=DONE, inventory=INVENTORY)

    for state in (State.CONVERGING, State.VALIDATING, State.CERTIFIED):
        assert isinstance(decide(node(state), view, POLL_S), Wait)


def test_a_certified_node_with_a_tenant_is_released() -> None:
    valid = Certificate(
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
    view = View(inventory=INVENTORY, certificate=valid, tenant_vrf="RED")

    assert decide(node(State.CERTIFIED), view, POLL_S) == Release(vrf="RED")
    spoiled = view.model_copy(update={"certificate_blockers": (blocker(Reason.DRIFT),)})
    turn = decide(node(State.CERTIFIED), spoiled, POLL_S)
    assert isinstance(turn, Enter)
    assert turn.state is State.CONVERGING


def test_a_node_that_served_another_tenant_is_not_released_though_it_has_a_certificate() -> None:
    view = View(placement=Placement.MAINTENANCE, inventory=INVENTORY, tenant_vrf="RED")
    served = node(State.CERTIFIED, tenant="red", served="blue")

    turn = decide(served, view, POLL_S)

    assert isinstance(turn, Enter)
    assert (turn.state, turn.why) == (State.CONVERGING, "it served blue")


def test_a_node_that_cannot_be_erased_may_leave_draining_only_for_quarantine() -> None:
    draining = node(State.DRAINING, served="blue")
    problem = blocker(Reason.NOT_SANITIZED)

    turn = decide_after_failure(draining, (problem,), failures=1, retry_s=1)

    assert isinstance(turn, Enter)
    assert (turn.state, turn.blockers) == (State.QUARANTINED, (problem,))
