"""Journals of the code are steps of the model; spoilt journals and spoilt daemons are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from handover_journal import Recorder
from handover_search import Search
from handover_state import CERTIFIED, CONVERGING, DRAINING, LEAVING, RELEASED, Size
from handover_state import make_first_state as make_state
from handover_trace import Entry, Journal, Row, Site, Verdict, check_journal
from handover_traced import TracedHandover
from port_given import TENANTS
from port_world import PortWorld
from test_ports_soak import ask_no_standing, owe_no_erasure, watch_no_leaf
from virtual_time import run

ACTS = 20
SEEDS_MAX = 12
# steps of the model that entries of recorded journals have to be, some time
REACHED = {
    "begin release", "certify", "record", "apply", "finish", "revoke", "reclaim", "hand", "reboot",
    "crash", "note",
}  # fmt: skip
FENCED = Site((Row(CERTIFIED, 0, 0),), ((0, 0),), ((0, 0),))
WRITTEN = (  # one node that is released, revoked, taken back, erased and certified again
    Entry(0, "row", 0, Row(LEAVING, 1, 1)),
    Entry(1, "moved", 0, (1,)),
    Entry(2, "saved", 0, (1,)),
    Entry(3, "moved", 1, (1,)),
    Entry(4, "saved", 1, (1,)),
    Entry(5, "row", 0, Row(RELEASED, 1, 1)),
    Entry(6, "revoked", 0),
    Entry(7, "row", 0, Row(DRAINING, 1, 1)),
    Entry(8, "moved", 0, (0,)),
    Entry(9, "saved", 0, (0,)),
    Entry(10, "moved", 1, (0,)),
    Entry(11, "saved", 1, (0,)),
    Entry(12, "row", 0, Row(CONVERGING, 0, 1)),
    Entry(13, "row", 0, Row(CONVERGING, 0, 0)),
    Entry(14, "row", 0, Row(CERTIFIED, 0, 0)),
    Entry(15, "rests"),
)


def check_entries(*entries: Entry) -> str:
    return check_journal(Journal(FENCED, entries), len(TENANTS)).refused


def check_recorded(recorder: Recorder) -> Verdict:
    return check_journal(run(recorder.record(ACTS)), len(TENANTS))


@pytest.mark.parametrize(
    "size",
    [
        Size(1, 2, 2, 1, 1),
        Size(1, 1, 1, 2, 1),
        Size(2, 1, 1, 2, 0),
        pytest.param(Size(2, 1, 1, 1, 1), marks=pytest.mark.long),
        pytest.param(Size(2, 2, 2, 2, 0), marks=pytest.mark.long),
    ],
)
def test_no_state_of_the_finer_model_violates_the_invariant(size: Size) -> None:
    outcome = Search(TracedHandover(size), make_state(size)).run()

    assert outcome.violations == []
    assert "give up" in outcome.actions


@pytest.mark.slow
def test_every_entry_of_recorded_journals_is_a_step_of_the_model() -> None:
    taken: set[str] = set()
    for seed in range(SEEDS_MAX):  # which acts a life meets changes with every line of the product
        verdict = check_recorded(Recorder(seed))
        assert verdict.refused == ""
        taken |= verdict.taken
        if taken >= REACHED:
            break

    assert taken >= REACHED


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_entry_of_more_journals_is_a_step_of_the_model(seed: int) -> None:
    assert check_recorded(Recorder(seed)).refused == ""


@pytest.mark.parametrize(
    ("sabotage", "first"),
    [(watch_no_leaf, 60), (owe_no_erasure, 1), (ask_no_standing, 2)],
)
def test_a_journal_of_a_spoilt_daemon_is_refused(
    sabotage: Callable[[PortWorld], None], first: int
) -> None:
    seeds = range(first, first + SEEDS_MAX)

    assert any(check_recorded(Recorder(seed, sabotage)).refused for seed in seeds)


def test_a_written_journal_is_followed_to_its_rest() -> None:
    assert check_entries(*WRITTEN) == ""


# A node may be taken back without a revocation, and the last entry is followed by none.
@pytest.mark.parametrize("left_out", sorted(set(range(15)) - {6}))
def test_a_journal_without_one_of_its_entries_is_refused(left_out: int) -> None:
    refused = check_entries(*WRITTEN[:left_out], *WRITTEN[left_out + 1 :])

    assert "is no step of the model after" in refused


@pytest.mark.parametrize(
    ("position", "to"),
    [
        (0, 1),  # a port before its row
        (4, 5),  # handed over before it is saved
        (5, 6),  # handed over with a revoked certificate
        (7, 8),  # fenced while the row says released
        (11, 12),  # fenced by its row before it is saved
        (12, 13),  # erased before it is fenced
        (13, 14),  # certified before it is erased
    ],
)
def test_a_journal_with_two_entries_exchanged_is_refused(position: int, to: int) -> None:
    entries = list(WRITTEN)
    entries[position] = WRITTEN[to]
    entries[to] = WRITTEN[position]

    assert check_entries(*entries).startswith((f"entry {position}, ", f"entry {to}, "))


def test_a_foreign_hand_without_its_record_is_refused() -> None:
    hand = Entry(0, "hand", 0, (1, 2, False))
    noted = Entry(1, "row", 0, Row(CONVERGING, 0, len(TENANTS) + 1))
    fenced = Entry(2, "moved", 1, (0,))

    assert check_entries(hand, noted, fenced) == ""
    assert check_entries(hand, fenced).startswith("entry 1, moved 1")
    assert check_entries(hand, Entry(9, "rests")).startswith("entry 1, rests")
