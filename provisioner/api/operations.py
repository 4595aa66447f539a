"""The view of an operation for its followers: a request of a person, or a node's own operation.

A request on a node is done when the node rests again, which may be hours after it was recorded;
the store ends it then.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.access import APPROVED_KINDS, ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.model.operation import Operation, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Detail, InstantOrNone
from provisioner.planning.lifecycle.requested_ends import end_request


class OperationState(StrEnum):
    """The progress of an operation."""

    WAITING = "waiting"  # another person has to approve it
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNFINISHED = "unfinished"  # recorded, not yet in effect on every device
    REFUSED = "refused"  # an approver refused it
    EXPIRED = "expired"  # not approved in time
    LOST = "lost"  # the daemon ended while it was under way
    PARKED = "parked"  # an operation of a node needs a person
    DRY_RUN = "dry_run"  # nothing was done


_OWN = {
    OperationStatus.ACTIVE: OperationState.RUNNING,
    OperationStatus.DONE: OperationState.DONE,
    OperationStatus.PARKED: OperationState.PARKED,
}
_CARRIED = {**_OWN, OperationStatus.PARKED: OperationState.FAILED}


class OperationView(Record):
    """An operation to follow at /v1/operations/{id}."""

    id: str  # "r12": a request; "su0-n03:7": the seventh operation of a node; "": a dry run
    kind: str
    subject: str
    state: OperationState
    phase: str = ""
    note: str = ""
    asked_by: str = ""
    opened_at: InstantOrNone = 0.0
    ended_at: InstantOrNone = 0.0
    decided_by: str = ""
    arguments: Detail = Field(default_factory=dict)
    result: Detail | None = None
    blockers: tuple[Blocker, ...] = ()

    @property
    def over(self) -> bool:
        """Return whether it has ended, so that following it is of no use."""
        return self.state not in (OperationState.WAITING, OperationState.RUNNING)


def build_request_view(
    asked: ChangeRequest, node: Node | None, now: float, limit_s: float
) -> OperationView:
    """Return the present state of a request; `node`: its subject, if that is one."""
    note = asked.note
    blockers = asked.blockers
    ended = asked.ended_at
    if asked.state is RequestState.WAITING and now - asked.asked_at > limit_s:
        state = OperationState.EXPIRED
    elif asked.state is RequestState.UNDER_WAY:
        state, note, blockers, ended = _on_its_way(asked, node)
    else:
        state = OperationState(asked.state.value)
    return OperationView(
        id=f"r{asked.id}" if asked.id else "",
        kind=asked.kind.value,
        subject=asked.subject,
        state=state,
        note=note,
        asked_by=asked.asked_by,
        opened_at=asked.asked_at,
        ended_at=ended,
        decided_by=asked.decided_by,
        arguments=asked.arguments,
        result=asked.result,
        blockers=blockers,
    )


def _on_its_way(
    asked: ChangeRequest, node: Node | None
) -> tuple[OperationState, str, tuple[Blocker, ...], float]:
    if node is None:
        return OperationState.FAILED, "the node is gone", (), asked.ended_at
    if (ended := end_request(asked, node)) is not None:
        return OperationState(ended.state.value), ended.note, ended.blockers, ended.ended_at
    return OperationState.RUNNING, f"{node.state.value}: {node.note}", node.blockers, 0.0


def build_carried_view(
    asked: ChangeRequest, operation: Operation | None, now: float, limit_s: float
) -> OperationView:
    """Return the present state of a request that an operation of the node carries out."""
    ended = asked.model_copy(update={"state": RequestState.DONE, "ended_at": 0.0})
    view = build_request_view(ended, None, now, limit_s)
    if operation is None:
        return view.model_copy(
            update={"state": OperationState.FAILED, "note": "its operation is gone"}
        )
    state = _CARRIED[operation.status]
    return view.model_copy(
        update={"state": state, "phase": operation.phase, "note": operation.note}
    )


def withhold_staff_text(view: OperationView) -> OperationView:
    """Return a request that is under way, or was, as its tenant may see it.

    Phases, notes and blockers of a node may have addresses of BMCs and remarks of the staff.
    """
    match view.state:
        case OperationState.DONE:
            note = view.note
        case OperationState.RUNNING:
            note = view.note.partition(":")[0]  # the state of the node
        case _:
            note = "it did not succeed: ask the operators of the site"
    return view.model_copy(update={"phase": "", "note": note, "blockers": ()})


def build_operation_view(operation: Operation) -> OperationView:
    """Return the present state of a node's own operation."""
    return OperationView(
        id=operation.public_id,
        kind=operation.want,
        subject=operation.node,
        state=_OWN[operation.status],
        phase=operation.phase,
        note=operation.note,
        asked_by="provisioner",
        opened_at=operation.opened_at,
    )


def parse_number(public: str) -> int:
    """Return 12 for "r12"; 0 for an id of another form."""
    digits = public[1:]
    good = public.startswith("r") and digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if good else 0


def needs_approval(kind: ChangeKind, policy: tuple[ChangeKind, ...]) -> bool:
    """Return whether this kind of change needs a second person, by the site's wish or always."""
    return kind in policy or kind in APPROVED_KINDS
