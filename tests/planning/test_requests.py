"""What a person may ask of a node in each state, as tables."""

from __future__ import annotations

import pytest

from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.operator_requests import reclaim_node, retry_node

NOW = 100.0


def node(
    state: State,
    placement: Placement = Placement.MAINTENANCE,
    profile: str = "hgx",
    reason: Reason = Reason.CHECK_FAILED,
) -> Node:
    blocker = Blocker(reason=reason, subject="s", detail="d", unblock="u")
    return Node(
        id="n0",
        kind=NodeKind.HOST,
        state=state,
        placement=placement,
        profile=profile,
        tenant="red",
        attempts=3,
        blockers=(blocker,),
    )


# sentence: (node, where a retry leads)
RETRIES: dict[str, tuple[Node, State]] = {
    "identified and fenced: it converges again": (node(State.QUARANTINED), State.CONVERGING),
    "never identified: a stranger": (node(State.QUARANTINED, profile=""), State.DISCOVERED),
    "not fenced: it begins anew": (node(State.QUARANTINED, Placement.NONE), State.DISCOVERED),
    "repaired: a stranger": (node(State.REPAIRING), State.DISCOVERED),
    "parked by a bug of ours: on from where it was": (
        node(State.VALIDATING, reason=Reason.OUR_BUG),
        State.VALIDATING,
    ),
    "parked by a bug of ours in quarantine: it stays there": (
        node(State.QUARANTINED, reason=Reason.OUR_BUG),
        State.QUARANTINED,
    ),
}


@pytest.mark.parametrize("sentence", RETRIES)
def test_retry(sentence: str) -> None:
    asked, state = RETRIES[sentence]

    changed = retry_node(asked, NOW)

    assert isinstance(changed, Node)
    assert (changed.state, changed.blockers, changed.attempts) == (state, (), 0)
    assert changed.entered_at == (NOW if state is not asked.state else 0.0)
    assert changed.placement is asked.placement, "a request moves no port"
    assert changed.generation == asked.generation, "raised by the store, at the write"


@pytest.mark.parametrize(
    "state", [s for s in State if s not in (State.QUARANTINED, State.REPAIRING)]
)
def test_only_what_is_quarantined_or_in_repair_is_retried(state: State) -> None:
    assert retry_node(node(state), NOW) == f"it is {state}, not quarantined"


def test_a_released_node_drains_first_and_keeps_its_place_until_it_is_fenced() -> None:
    released = node(State.RELEASED, Placement.CUSTOMER)

    changed = reclaim_node(released, NOW)

    assert isinstance(changed, Node)
    assert (changed.state, changed.tenant, changed.entered_at) == (State.DRAINING, "", NOW)
    assert changed.placement is Placement.CUSTOMER


@pytest.mark.parametrize("state", [s for s in State if s is not State.RELEASED])
def test_only_what_is_released_is_reclaimed(state: State) -> None:
    assert reclaim_node(node(state), NOW) == f"it is {state}, not released"


def test_what_a_node_served_is_kept_whoever_it_belongs_to_next() -> None:
    released = node(State.RELEASED, Placement.CUSTOMER).model_copy(update={"tenant": "red"})

    back, lent = reclaim_node(released, NOW), reclaim_node(released, NOW, for_repair=True)

    assert isinstance(back, Node)
    assert isinstance(lent, Node)
    assert [(n.tenant, n.served) for n in (back, lent)] == [("", "red"), ("red", "red")]
