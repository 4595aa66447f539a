"""The history of a node, read from the ledger: staged versions, failures and open entries.

Devices often do not show a staged version before it runs (docs/sources/redfish.md#staged), so the
ledger is the only evidence that an update was written and waits for its activation.
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.model.inventory import Activation
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import History, StagedFact, Step, StepKind
from provisioner.planning.path.activation import covers_activation

OPEN = frozenset({ActionStatus.INTENDED, ActionStatus.SENT})
# Transfers of one slot, one after the other, that may break with our own daemon and do not count
# against the device. A daemon that dies more often may well die of this very transfer.
BROKEN_MAX = 3
COMPLETED_MAX = 2  # complete updates of a slot to one version, in a row; a third would be as idle
Slot = tuple[str, str]  # kind of component, slot


def read_step(entry: LedgerEntry) -> Step:
    return Step.model_validate(entry.before["step"])


def read_slots(entry: LedgerEntry) -> tuple[str, ...]:
    """Return the slots that an update's row concerns; () for an activation."""
    return tuple(entry.before.get("slots", ()))


def find_open_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return the rows without a recorded outcome, which must be examined before any new action.

    Rows of a visit to the maintenance image (`visit`) are left out: the same decision starts that
    visit again, and the visit resumes them. So are those of a person's power request (`power`),
    which its own operation resumes.
    """
    apart = {"visit", "power"}
    return tuple(e for e in entries if e.status in OPEN and not apart & e.before.keys())


def is_broken_off(entry: LedgerEntry) -> bool:
    """Return whether a failed transfer was begun by one driver and settled by another.

    The transfer went through the process of the first driver, which died or lost its seat, so its
    failure says nothing about the device. Rows of older versions do not have their epochs.
    """
    epochs = (entry.epoch, entry.settled_epoch)
    return entry.status is ActionStatus.FAILED and None not in epochs and epochs[0] != epochs[1]


def build_history(entries: Iterable[LedgerEntry], operation: str) -> History:
    """Return the staged versions of the node's whole life and the failures of this operation.

    Failures of earlier operations do not count: an operator opens a new operation after looking
    into them. Transfers that broke off because their driver was replaced count only beyond
    `BROKEN_MAX` in a row. Updates that ended well are counted too: one without an effect would be
    planned again without end.
    """
    staged: dict[Slot, StagedFact] = {}
    failures: dict[tuple[str, str, str], int] = {}
    broken: dict[Slot, int] = {}
    completed = CompletedUpdates()
    for entry in sorted(entries, key=lambda e: e.intended_at):
        if "step" not in entry.before:
            continue  # a boot or an erasure stages nothing
        step = read_step(entry)
        if entry.operation == operation:
            completed.add(step, read_slots(entry), entry.status)
        if step.kind is StepKind.UPDATE:
            own = entry.operation == operation
            for slot in read_slots(entry):
                _count_staged(entry, step, slot, staged)
                if own and _is_failure(entry, (step.component, slot), broken):
                    _add_failure(failures, step.component, slot, step.to_version)
        else:
            _count_activation(entry, step, staged, failures, operation)
    return History(
        staged=tuple(staged[key] for key in sorted(staged)),
        failures=tuple((*key, count) for key, count in sorted(failures.items())),
        completed=completed.list_repeated(),
    )


class CompletedUpdates:
    """Counts updates that were written and, where they need a reset, activated by one.

    An update that another version of its slot followed begins anew: a person may pin one version
    after the other.
    """

    def __init__(self) -> None:
        self._written: dict[Slot, tuple[str, Activation]] = {}
        self._times: dict[Slot, tuple[str, int]] = {}

    def add(self, step: Step, slots: Iterable[str], status: ActionStatus) -> None:
        """Take note of a step's end; steps are added in the order of time."""
        done = status is ActionStatus.CONFIRMED
        if step.kind is StepKind.ACTIVATE and (done or status is ActionStatus.FAILED):
            for key, (version, activation) in list(self._written.items()):
                if covers_activation(step.activation, activation):
                    del self._written[key]
                    if done:  # a reset that failed is counted as a failure
                        self._count(key, version)
        if step.kind is StepKind.ACTIVATE or not done:
            return
        for slot in slots:
            self._written.pop((step.component, slot), None)
            if step.activation in (Activation.NONE, Activation.SERVICE_RESTART):
                self._count((step.component, slot), step.to_version)
            else:
                self._written[step.component, slot] = (step.to_version, step.activation)

    def list_repeated(self) -> tuple[tuple[str, str, str], ...]:
        """Return kind, slot and version of the updates completed `COMPLETED_MAX` times in a row."""
        return tuple(
            (kind, slot, version)
            for (kind, slot), (version, times) in sorted(self._times.items())
            if times >= COMPLETED_MAX
        )

    def _count(self, slot: Slot, version: str) -> None:
        last, times = self._times.get(slot, (version, 0))
        self._times[slot] = (version, times + 1 if last == version else 1)


def _count_staged(
    entry: LedgerEntry, step: Step, slot: str, staged: dict[Slot, StagedFact]
) -> None:
    takes_effect_later = step.activation not in (Activation.NONE, Activation.SERVICE_RESTART)
    if entry.status is ActionStatus.CONFIRMED and takes_effect_later:
        staged[step.component, slot] = StagedFact(
            kind=step.component, slot=slot, version=step.to_version, activation=step.activation
        )


def _is_failure(entry: LedgerEntry, slot: Slot, broken: dict[Slot, int]) -> bool:
    """Return whether an entry counts against its slot; `broken` counts those in a row that do not.

    An action that provably did not happen, or is under way, neither counts nor ends the row.
    """
    if is_broken_off(entry):
        broken[slot] = broken.get(slot, 0) + 1
        return broken[slot] > BROKEN_MAX
    if entry.status in (ActionStatus.CONFIRMED, ActionStatus.FAILED):
        broken.pop(slot, None)
    return entry.status is ActionStatus.FAILED


def _add_failure(
    failures: dict[tuple[str, str, str], int], kind: str, slot: str, version: str
) -> None:
    key = (kind, slot, version)
    failures[key] = failures.get(key, 0) + 1


def _count_activation(
    entry: LedgerEntry,
    step: Step,
    staged: dict[Slot, StagedFact],
    failures: dict[tuple[str, str, str], int],
    operation: str,
) -> None:
    if entry.status not in (ActionStatus.CONFIRMED, ActionStatus.FAILED):
        return
    # A completed reset ends the wait of every version it covers, even if the version does not run.
    for key, fact in list(staged.items()):
        if covers_activation(step.activation, fact.activation):
            del staged[key]
    if entry.status is ActionStatus.FAILED and entry.operation == operation:
        for name, version in step.activates:
            kind, _, slot = name.partition("/")
            _add_failure(failures, kind, slot, version)
