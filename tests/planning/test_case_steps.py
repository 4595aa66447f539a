"""The requests that are due on a case, and its next step, stage by stage."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.case import (
    Case,
    Origin,
    PartClass,
    Service,
    Spare,
    Stage,
    Suspect,
    Ticket,
)
from provisioner.model.inventory import DeviceKind
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.lifecycle.next_step import describe_next_step
from provisioner.planning.repair.case_policy import (
    Verb,
    list_due_verbs,
    list_serials,
)

V = Verb
ALWAYS = (V.RETIRE, V.CLOSE)


def case(stage: Stage, **more: Any) -> Case:
    return Case(
        id="n1-c0001",
        node="n1",
        origin=Origin.CHECK,
        reason="GPU 5 is gone",
        stage=stage,
        opened_at=100.0,
        **{"service": Service.DRAIN, "tenant": "red", **more},
    )


def node(state: State) -> Node:
    return Node(id="n1", kind=NodeKind.HOST, state=state)


TICKET = Ticket(id="HW-1", work="Replace GPU 5.")

# sentence: (case, state of its node, verbs of the staff)
CASES: dict[str, tuple[Case, State, tuple[Verb, ...]]] = {
    "a case that waits for its tenant is accepted or deferred": (
        case(Stage.OPENED, drain_at=200.0),
        State.RELEASED,
        (V.ACCEPT, V.DEFER, *ALWAYS),
    ),
    "a node that is cut off is not deferred": (
        case(Stage.OPENED, drain_at=200.0, service=Service.CUT_OFF),
        State.RELEASED,
        (V.ACCEPT, *ALWAYS),
    ),
    "work at the rack is reported, with its spare, its return number and another host": (
        case(Stage.HARDWARE, ticket=TICKET),
        State.REPAIRING,
        (V.RETURNED, V.SPARE, V.RMA, V.REPLACE, *ALWAYS),
    ),
    "a ticket whose system did not hear it is sent again": (
        case(Stage.HARDWARE, ticket=TICKET.model_copy(update={"asked": "m1"})),
        State.REPAIRING,
        (V.RETURNED, V.SPARE, V.RMA, V.TELL, V.REPLACE, *ALWAYS),
    ),
    "nobody retires twice": (
        case(Stage.REMEDY, retire_at=300.0),
        State.VALIDATING,
        (V.CLOSE,),
    ),
    "a closed case takes no request": (case(Stage.CLOSED), State.CERTIFIED, ()),
}


@pytest.mark.parametrize("sentence", CASES)
def test_a_button_stands_where_its_request_is_due(sentence: str) -> None:
    row, state, verbs = CASES[sentence]
    due = list_due_verbs(row, node(state), staff=True)

    assert due == verbs


def test_a_tenant_accepts_and_defers_and_nothing_else() -> None:
    waits = case(Stage.OPENED, drain_at=200.0)
    hardware = case(Stage.HARDWARE, ticket=TICKET)

    assert list_due_verbs(waits, node(State.RELEASED), staff=False) == (V.ACCEPT, V.DEFER)
    assert list_due_verbs(hardware, node(State.REPAIRING), staff=False) == ()


def test_each_stage_has_a_next_step_of_its_own() -> None:
    steps = {stage: describe_next_step(case(stage, drain_at=200.0)) for stage in Stage}

    assert "Replace GPU 5;" in describe_next_step(case(Stage.HARDWARE, ticket=TICKET))
    assert "red accepts or defers" in steps[Stage.OPENED]
    assert len(set(steps.values())) == len(Stage) - 1  # remedy and measuring share theirs


def test_a_serial_of_any_part_leads_to_the_case() -> None:
    suspect = Suspect(
        part="GPU_5", kind=PartClass.GPU, confidence=0.8, rule="r", why="w", serial="S1"
    )
    row = case(
        Stage.HARDWARE,
        suspects=(suspect,),
        system_before="S0",
        parts_before=(("gpu", "GPU_5", "S1", "H100"), ("gpu", "GPU_6", "S2", "H100")),
        spare=Spare(kind=DeviceKind.GPU, serial="S3"),
    )

    assert list_serials(row) == ("S0", "S1", "S2", "S3")
