"""What the ledger tells the planner: what is staged, and what failed how often, as sentences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import pytest

from provisioner.model.inventory import Activation
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.planning.path.history import (
    OPEN,
    build_history,
    find_open_entries,
    read_slots,
    read_step,
)

NOW, BEFORE = "n0#2", "n0#1"  # the operation under way, and one that is over
CONFIRMED, FAILED = ActionStatus.CONFIRMED, ActionStatus.FAILED
COLD, AC, BMC = Activation.COLD_BOOT, Activation.AC_CYCLE, Activation.BMC_RESET


@dataclass(frozen=True)
class Row:
    """A row of the ledger in short."""

    step: Step
    status: ActionStatus = CONFIRMED
    operation: str = NOW
    slots: tuple[str, ...] = ("0",)
    epochs: tuple[int | None, int | None] = (4, 4)  # at the intent and at the settlement


def broken(version: str = "2", **more: object) -> Row:
    """A transfer that failed after its driver was replaced."""
    return Row(update(version), FAILED, epochs=(4, 5), **more)


def update(version: str = "2", waits: Activation = COLD, kind: str = "bluefield.nic") -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=kind,
        slots=("0", "1"),
        from_version="1",
        to_version=version,
        activation=waits,
        disruption=Disruption.NONE,
        duration_s=1,
        expected=(),
        reason="test",
    )


def reset(by: Activation, *activates: tuple[str, str]) -> Step:
    return Step(
        kind=StepKind.ACTIVATE,
        activation=by,
        activates=activates,
        disruption=Disruption.HOST,
        duration_s=1,
        expected=(),
        reason="test",
    )


def entries(rows: list[Row]) -> list[LedgerEntry]:
    return [
        LedgerEntry(
            operation=row.operation,
            node="n0",
            action=f"{row.step.title} {row.slots}",
            attempt=1,
            status=row.status,
            intended_at=float(at),
            epoch=row.epochs[0],
            settled_epoch=row.epochs[1],
            before={"step": row.step.model_dump(mode="json"), "slots": list(row.slots)},
        )
        for at, row in enumerate(rows)
    ]


# sentence: (rows in the order of time, "slot version" that is staged)
STAGED: dict[str, tuple[list[Row], list[str]]] = {
    "nothing was done": ([], []),
    "what was written and confirmed waits": ([Row(update())], ["0 2"]),
    "each slot of a row waits": ([Row(update(), slots=("0", "1"))], ["0 2", "1 2"]),
    "what was only intended does not": ([Row(update(), ActionStatus.INTENDED)], []),
    "what failed does not": ([Row(update(), FAILED)], []),
    "what provably did not happen does not": ([Row(update(), ActionStatus.ABSENT)], []),
    "what cannot be told does not": ([Row(update(), ActionStatus.UNCLEAR)], []),
    "what runs at once does not": ([Row(update(waits=Activation.NONE))], []),
    "what its own playbook restarts does not": (
        [Row(update(waits=Activation.SERVICE_RESTART))],
        [],
    ),
    "the newer of two writes to one slot waits": ([Row(update("2")), Row(update("3"))], ["0 3"]),
    "a write of an operation that is over waits still": (
        [Row(update(), operation=BEFORE)],
        ["0 2"],
    ),
    "the reset it waits for uses it up": ([Row(update()), Row(reset(COLD))], []),
    "a stronger reset uses it up": ([Row(update()), Row(reset(AC))], []),
    "a reset of another kind does not": ([Row(update()), Row(reset(BMC))], ["0 2"]),
    "a weaker reset does not": ([Row(update(waits=AC)), Row(reset(COLD))], ["0 2"]),
    "a reset that was done uses it up, though the version does not run": (
        [Row(update()), Row(reset(COLD), FAILED)],
        [],
    ),
    "a reset that was only intended does not": (
        [Row(update()), Row(reset(COLD), ActionStatus.INTENDED)],
        ["0 2"],
    ),
    "a reset before the write does not": ([Row(reset(COLD)), Row(update())], ["0 2"]),
}


@pytest.mark.parametrize("sentence", STAGED)
def test_what_is_staged(sentence: str) -> None:
    rows, staged = STAGED[sentence]

    found = build_history(entries(rows), NOW)

    assert [f"{fact.slot} {fact.version}" for fact in found.staged] == staged


# sentence: (rows, failures as (slot, version, count))
FAILURES: dict[str, tuple[list[Row], list[tuple[str, str, int]]]] = {
    "nothing failed": ([Row(update())], []),
    "a write that failed counts": ([Row(update(), FAILED)], [("0", "2", 1)]),
    "each time counts": ([Row(update(), FAILED)] * 3, [("0", "2", 3)]),
    "each version counts for itself": (
        [Row(update("2"), FAILED), Row(update("3"), FAILED)],
        [("0", "2", 1), ("0", "3", 1)],
    ),
    "each slot of the row counts": (
        [Row(update(), FAILED, slots=("0", "1"))],
        [("0", "2", 1), ("1", "2", 1)],
    ),
    "one that another driver settled than began it does not": ([broken()], []),
    "three of them in a row do not": ([broken()] * 3, []),
    "from the fourth in a row each counts": ([broken()] * 5, [("0", "2", 2)]),
    "they are in a row whatever their versions": (
        [broken("2")] * 3 + [broken("3")],
        [("0", "3", 1)],
    ),
    "they are counted slot by slot": ([broken(), broken(slots=("1",))] * 3, []),
    "a failure of one driver ends the row": (
        [*[broken()] * 3, Row(update(), FAILED), *[broken()] * 3],
        [("0", "2", 1)],
    ),
    "a success ends the row": ([*[broken()] * 3, Row(update()), *[broken()] * 3], []),
    "what provably did not happen does not end the row": (
        [*[broken()] * 3, Row(update(), ActionStatus.ABSENT), broken()],
        [("0", "2", 1)],
    ),
    "what earlier operations broke off is in no row of this one": (
        [*[broken(operation=BEFORE)] * 3, *[broken()] * 3],
        [],
    ),
    "rows of older versions count": (
        [Row(update(), FAILED, epochs=e) for e in ((None, None), (4, None), (None, 5))],
        [("0", "2", 3)],
    ),
    "a failure of an operation that is over is forgiven": (
        [Row(update(), FAILED, BEFORE)],
        [],
    ),
    "what provably did not happen is no failure": ([Row(update(), ActionStatus.ABSENT)], []),
    "a version that does not run after its reset counts": (
        [Row(update()), Row(reset(COLD, ("bluefield.nic/0", "2")), FAILED, slots=())],
        [("0", "2", 1)],
    ),
    "that of an operation that is over is forgiven too": (
        [Row(update()), Row(reset(COLD, ("bluefield.nic/0", "2")), FAILED, BEFORE, ())],
        [],
    ),
}


@pytest.mark.parametrize("sentence", FAILURES)
def test_what_failed(sentence: str) -> None:
    rows, failures = FAILURES[sentence]

    found = build_history(entries(rows), NOW)

    assert list(found.failures) == [("bluefield.nic", *failure) for failure in failures]


AT_ONCE = Activation.NONE
# sentence: (rows, slots and versions whose update is not repeated)
COMPLETED: dict[str, tuple[list[Row], list[str]]] = {
    "once is tried again: the reading may have come too early": ([Row(update(waits=AT_ONCE))], []),
    "twice is not": ([Row(update(waits=AT_ONCE))] * 2, ["0 2"]),
    "each slot counts for itself": (
        [Row(update(waits=AT_ONCE), slots=("0", "1")), Row(update(waits=AT_ONCE), slots=("1",))],
        ["1 2"],
    ),
    "a write without its reset is not complete": ([Row(update())] * 2, []),
    "with its reset it is": ([Row(update()), Row(reset(COLD))] * 2, ["0 2"]),
    "a reset that failed completes nothing": ([Row(update()), Row(reset(COLD), FAILED)] * 2, []),
    "a reset after one that failed completes nothing either": (
        [Row(update()), Row(reset(COLD)), Row(update()), Row(reset(COLD), FAILED), Row(reset(AC))],
        [],
    ),
    "a reset that was only intended completes nothing": (
        [Row(update()), Row(reset(COLD), ActionStatus.INTENDED)] * 2,
        [],
    ),
    "another version between them begins anew": (
        [Row(update(v, waits=AT_ONCE)) for v in ("2", "3", "2")],
        [],
    ),
    "an operation that is over does not count": (
        [Row(update(waits=AT_ONCE), operation=BEFORE), Row(update(waits=AT_ONCE))],
        [],
    ),
}


@pytest.mark.parametrize("sentence", COMPLETED)
def test_which_updates_are_not_repeated(sentence: str) -> None:
    rows, repeated = COMPLETED[sentence]

    made = build_history(entries(rows), NOW)

    assert [f"{slot} {version}" for _, slot, version in made.completed] == repeated


def test_rows_may_be_given_in_any_order() -> None:
    rows = entries([Row(update("2")), Row(reset(COLD)), Row(update("3"))])

    found = {build_history(order, NOW) for order in permutations(rows)}

    assert [[f.version for f in one.staged] for one in found] == [["3"]]


@pytest.mark.parametrize("status", list(ActionStatus))
def test_a_row_is_open_until_its_end_is_known(status: ActionStatus) -> None:
    rows = entries([Row(update(), status)])

    assert find_open_entries(rows) == (tuple(rows) if status in OPEN else ())
    assert {ActionStatus.INTENDED, ActionStatus.SENT} == OPEN


def test_a_row_gives_back_its_step_and_its_slots() -> None:
    (row,) = entries([Row(update(), slots=("0", "1"))])

    assert read_step(row) == update()
    assert read_slots(row) == ("0", "1")
