"""What the ledger says about a node: what is staged, what failed, and what is still open.

Devices often do not show a staged version before it runs (facts: redfish 3.1), so the ledger is
the only witness that an update was written and waits for its activation.
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.model.inventory import Activation
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import History, StagedFact, Step, StepKind
from provisioner.planning.path.activation import covers

OPEN = frozenset({ActionStatus.INTENDED, ActionStatus.SENT})


def step_of(entry: LedgerEntry) -> Step:
    """The step that a ledger row carries out."""
    return Step.model_validate(entry.before["step"])


def slots_of(entry: LedgerEntry) -> tuple[str, ...]:
    """The slots that one row of an update is about; none for an activation."""
    return tuple(entry.before.get("slots", ()))


def open_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Rows whose outcome is not known: they are looked into before anything else is done.

    What belongs to a stay in the maintenance image (`visit`) is taken up by that stay itself,
    which is begun again by the same decision.
    """
    return tuple(e for e in entries if e.status in OPEN and "visit" not in e.before)


def history(entries: Iterable[LedgerEntry], operation: str) -> History:
    """Staged facts over the node's whole life; failures of this operation only.

    A new operation is a new chance: a person who opens one has looked into the failures.
    """
    staged: dict[tuple[str, str], StagedFact] = {}
    failures: dict[tuple[str, str, str], int] = {}
    for entry in sorted(entries, key=lambda e: e.intended_at):
        if "step" not in entry.before:
            continue  # a boot or an erasure: nothing is staged by it
        step = step_of(entry)
        if step.kind is StepKind.UPDATE:
            _count_update(entry, step, staged, failures, operation)
        else:
            _count_activation(entry, step, staged, failures, operation)
    return History(
        staged=tuple(staged[key] for key in sorted(staged)),
        failures=tuple((*key, count) for key, count in sorted(failures.items())),
    )


def _count_update(
    entry: LedgerEntry,
    step: Step,
    staged: dict[tuple[str, str], StagedFact],
    failures: dict[tuple[str, str, str], int],
    operation: str,
) -> None:
    for slot in slots_of(entry):
        _count_slot(entry, step, slot, staged, failures, operation)


def _count_slot(
    entry: LedgerEntry,
    step: Step,
    slot: str,
    staged: dict[tuple[str, str], StagedFact],
    failures: dict[tuple[str, str, str], int],
    operation: str,
) -> None:
    if entry.status is ActionStatus.CONFIRMED:
        if step.activation not in (Activation.NONE, Activation.SERVICE_RESTART):
            staged[step.component, slot] = StagedFact(
                kind=step.component,
                slot=slot,
                version=step.to_version,
                activation=step.activation,
            )
    elif entry.status is ActionStatus.FAILED and entry.operation == operation:
        key = (step.component, slot, step.to_version)
        failures[key] = failures.get(key, 0) + 1


def _count_activation(
    entry: LedgerEntry,
    step: Step,
    staged: dict[tuple[str, str], StagedFact],
    failures: dict[tuple[str, str, str], int],
    operation: str,
) -> None:
    if entry.status not in (ActionStatus.CONFIRMED, ActionStatus.FAILED):
        return
    # A reset that was carried out has used up what it covers, whether or not the version runs now.
    for key, fact in list(staged.items()):
        if covers(step.activation, fact.activation):
            del staged[key]
    if entry.status is ActionStatus.FAILED and entry.operation == operation:
        for name, version in step.activates:
            kind, _, slot = name.partition("/")
            failed = (kind, slot, version)
            failures[failed] = failures.get(failed, 0) + 1
