"""Journals of two daemons at once are steps of the model; spoilt ones are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from handover_pair import DAEMONS, HeardStore, Member, PairRecorder
from handover_search import Search
from handover_state import CERTIFIED, CONVERGING, DRAINING, LEAVING, NOBODY, RELEASED, Size
from handover_state import make_first_state as make_state
from handover_trace import Entry, Journal, Row, Site, Verdict, check_journal
from handover_traced import TracedHandover
from port_given import TENANTS
from virtual_time import run

from provisioner.model.operation import Operation

ACTS = 20
SEEDS_MAX = 12
REACHED = {"expire", "crash", "begin release", "record", "apply", "finish", "certify"}
FENCED = Site((Row(CERTIFIED, 0, 0),), ((0,),), ((0,),))
A = 0
B = 1
WRITTEN = (  # A begins a release and loses its lease; B takes the node over and fences it
    Entry(0, "started", A),
    Entry(0, "started", B),
    Entry(0, "leads", B),
    Entry(1, "taken", 0, by=A),
    Entry(2, "row", 0, Row(LEAVING, 1, 1), A),
    Entry(3, "moved", 0, (1,)),
    Entry(14, "expired", A),
    Entry(15, "taken", 0, by=B),
    Entry(16, "moved", 0, (0,)),
    Entry(17, "saved", 0, (0,)),
    Entry(18, "row", 0, Row(CERTIFIED, 0, 1), B),
    Entry(19, "crashed", A),
    Entry(20, "row", 0, Row(LEAVING, 1, 1), B),
    Entry(21, "moved", 0, (1,)),
    Entry(22, "saved", 0, (1,)),
    Entry(23, "row", 0, Row(RELEASED, 1, 1), B),
    Entry(23, "ended", 0),
    Entry(24, "row", 0, Row(DRAINING, 1, 1), NOBODY),
    Entry(25, "started", A),
    Entry(26, "taken", 0, by=A),
    Entry(27, "moved", 0, (0,)),
    Entry(28, "saved", 0, (0,)),
    Entry(29, "row", 0, Row(CONVERGING, 0, 1), A),
)


def check_entries(entries: Sequence[Entry]) -> str:
    return check_journal(Journal(FENCED, tuple(entries), DAEMONS), len(TENANTS)).refused


def check_recorded(recorder: PairRecorder) -> Verdict:
    return check_journal(run(recorder.record(ACTS)), len(TENANTS))


@pytest.mark.slow
def test_every_entry_of_journals_of_two_daemons_is_a_step_of_the_model() -> None:
    taken: set[str] = set()
    for seed in range(SEEDS_MAX):
        verdict = check_recorded(PairRecorder(seed))
        assert verdict.refused == ""
        taken |= verdict.taken
        if taken >= REACHED:
            break

    assert taken >= REACHED


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_entry_of_more_journals_of_two_is_a_step_of_the_model(seed: int) -> None:
    assert check_recorded(PairRecorder(seed)).refused == ""


def test_a_written_journal_of_two_daemons_is_followed() -> None:
    assert check_entries(WRITTEN) == ""


@pytest.mark.parametrize(
    "left_out",
    [
        3,  # a release by a daemon that took nothing
        6,  # a takeover from a daemon whose lease lasts
        7,  # a release goes on in the hands of a daemon that took nothing
        16,  # a takeover from a daemon that is not at its end
        18,  # a turn of a daemon that is not there
        19,  # a turn of a daemon that took nothing, once more
    ],
)
def test_a_journal_without_a_change_of_drivers_is_refused(left_out: int) -> None:
    refused = check_entries([*WRITTEN[:left_out], *WRITTEN[left_out + 1 :]])

    assert "is no step of the model after" in refused


@pytest.mark.parametrize("position", [4, 10, 12, 15, 17, 22])
def test_a_row_of_the_other_daemon_is_refused(position: int) -> None:
    entries = list(WRITTEN)
    other = {A: B, B: A, NOBODY: A}[entries[position].by or A]
    entries[position] = entries[position]._replace(by=other)

    assert check_entries(entries).startswith(f"entry {position}, row 0")


def write_without_epoch(member: Member) -> None:
    """Rows are written whatever epoch the operation has."""
    stored = member.store.operations.record
    store: HeardStore = member.store

    async def record(operation: Operation, **parts: Any) -> Any:
        newest = await store.operations.get(operation.id)
        assert newest is not None
        fresh = operation.model_copy(update={"epoch": newest.epoch, "version": newest.version})
        return await stored(fresh, **parts)

    member.store.operations.record = record  # type: ignore[method-assign]


@pytest.mark.long
def test_a_journal_of_daemons_that_write_without_their_epoch_is_refused() -> None:
    seeds = range(1, 1 + SEEDS_MAX)

    assert any(check_recorded(PairRecorder(seed, write_without_epoch)).refused for seed in seeds)


@pytest.mark.parametrize(
    "size",
    [Size(1, 1, 1, 2, 2), pytest.param(Size(1, 2, 1, 2, 2), marks=pytest.mark.long)],
)
def test_a_fence_beside_the_driver_violates_nothing(size: Size) -> None:
    outcome = Search(TracedHandover(size), make_state(size)).run()

    assert outcome.violations == []
    assert "fence beside" in outcome.actions
