"""The handover model holds in small sizes, and fails without each protection of the code."""

from __future__ import annotations

import check_model
import pytest
from handover_actions import Handover
from handover_faults import PLANTED
from handover_search import Codes, Search
from handover_state import CERTIFIED, RELEASED, Node, Size, State, Turn, make_first_state

REACHED = {
    "revoke", "reclaim", "crash", "expire", "end", "hand", "reboot", "restore", "settle", "keep",
    "adopt", "apply", "begin fence", "begin release", "erase", "certify", "converge", "send",
    "finish", "prove", "record", "note", "take back", "withdraw",
}  # fmt: skip


def test_no_state_of_one_node_with_a_fault_violates_the_invariant() -> None:
    outcome = check_model.search(Size(1, 2, 2, 2, 1))

    assert outcome.violations == []
    assert outcome.states > 1_800
    assert set(outcome.actions) == REACHED


def test_no_state_of_two_nodes_without_a_fault_violates_the_invariant() -> None:
    outcome = check_model.search(Size(2, 2, 2, 2, 0))

    assert outcome.violations == []
    assert outcome.states > 8_000


@pytest.mark.long
def test_no_state_of_the_whole_size_violates_the_invariant() -> None:
    report = check_model.search_sizes(check_model.FULL)

    assert report["violations"] == 0
    assert report["states"] > 700_000


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_the_model_fails_without_a_protection(name: str) -> None:
    outcome = check_model.search_planted(name)

    assert len(outcome.violations) == 1


def test_exchanged_names_lead_to_the_same_key() -> None:
    """Both states say the same with nodes, leaves, tenants and daemons in another order."""
    idle, leaving = Turn(), Turn("r", (2, 0))
    free = Node(CERTIFIED, 0, 0, True, -1, (idle, idle), 0, (0, 0), (0, 0), (0, 0))
    going = Node("L", 1, 1, True, 0, (leaving, idle), 1, (1, 0), (1, 0), (0, 4))
    mirrored = Node(
        "L", 2, 2, True, 1, (idle, leaving._replace(steps=(0, 2))), 2, (0, 2), (0, 2), (2, 0)
    )
    one = State((free, going), ((), ((0, 1),)), ("u", "z"), (False, True), 1)
    other = State((mirrored, free), (((2, 0),), ()), ("z", "u"), (True, False), 1)
    codes = Codes(Size(2, 2, 2, 2, 1))

    assert codes.encode(one) == codes.encode(other)
    assert codes.encode(codes.decode(codes.encode(one), Size(2, 2, 2, 2, 1))) == codes.encode(one)
    assert codes.encode(one) != codes.encode(one._replace(faults=0))


def test_the_search_finds_states_that_go_in_circles() -> None:
    class Turning(Handover):
        """A daemon that takes a released node back and forth for ever."""

        def _steps(self, state: State):  # type: ignore[no-untyped-def]
            node = state.nodes[0]
            phase = CERTIFIED if node.phase == RELEASED else RELEASED
            yield ("turn", 0), state._replace(nodes=(node._replace(phase=phase, certified=True),))

    size = Size(1, 1, 1, 1, 0)
    outcome = Search(Turning(size), make_first_state(size)).run()

    assert outcome.violations == ["3 states may never come to their rest"]
