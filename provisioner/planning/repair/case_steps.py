"""The next step of an open repair case, and the requests that people may make of it now. Pure.

The requests are those that the case desk would accept; a page shows one button for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from provisioner.model.case import Case, Service, Stage
from provisioner.model.node import Node, State
from provisioner.planning.repair.case_policy import is_incurable

# states in which another host may be put into a node's place
OUT_OF_SERVICE = frozenset({State.REPAIRING, State.QUARANTINED, State.DISCOVERED})


class Verb(StrEnum):
    """A request of a person on a case, by the word of its path."""

    ACCEPT = "accept"
    DEFER = "defer"
    RETURNED = "returned"
    SPARE = "spare"
    RMA = "rma"
    TELL = "tell"
    REPLACE = "replace"
    RETIRE = "retire"
    CLOSE = "close"


TENANT_VERBS = frozenset({Verb.ACCEPT, Verb.DEFER})


def list_due_verbs(case: Case, node: Node | None, *, staff: bool) -> tuple[Verb, ...]:
    """Return the requests that the case accepts now, the likeliest first."""
    if not case.open:
        return ()
    opened = case.stage is Stage.OPENED
    incurable = case.stage is Stage.RETURNING and node is not None and is_incurable(case, node)
    ticket = case.ticket
    due = {
        Verb.ACCEPT: opened,
        Verb.DEFER: opened and _may_wait(case),
        Verb.RETURNED: case.stage is Stage.HARDWARE or incurable,
        Verb.SPARE: case.stage is Stage.HARDWARE,
        Verb.RMA: ticket is not None,
        Verb.TELL: ticket is not None and ticket.asked != ticket.told,
        Verb.REPLACE: node is not None and node.state in OUT_OF_SERVICE,
        Verb.RETIRE: not case.retire_at,
        Verb.CLOSE: True,
    }
    return tuple(v for v, is_due in due.items() if is_due and (staff or v in TENANT_VERBS))


def _may_wait(case: Case) -> bool:
    """Return whether its tenant may defer the drain: a node that is cut off serves no more."""
    return bool(case.drain_at) and case.service is not Service.CUT_OFF


def describe_next_step(case: Case) -> str:
    """Return in one sentence the event that moves the case on, and who causes it."""
    match case.stage:
        case Stage.CLOSED:
            return "The case is closed: nothing follows."
        case Stage.OPENED if case.tenant and _may_wait(case):
            return f"Tenant {case.tenant} accepts or defers; without an answer it is drained then."
        case Stage.OPENED:
            return "The node leaves service, then its evidence is collected."
        case Stage.EVIDENCE:
            return "Evidence is collected, then suspects are chosen."
        case Stage.DIAGNOSIS:
            return "The suspects are weighed, then the mildest remedy is tried."
        case Stage.REMEDY | Stage.MEASURING:
            return "The remedy's effect is measured; the next remedy follows if the fault stays."
        case Stage.HARDWARE:
            work = case.ticket.work.rstrip(".") if case.ticket and case.ticket.work else "the work"
            return f"A technician does it: {work}; then reports the node as returned."
        case Stage.RETURNING:
            return "The node is taken in as unknown hardware, and certified anew."
    return "The node is drained and erased, its ports are closed, and it is removed for good."


def list_serials(case: Case) -> tuple[str, ...]:
    """Return the serials that a person may read on a part of the case's node."""
    changes = () if case.difference is None else case.difference.changes
    serials: Iterable[str | None] = (
        case.system_before,
        *(s.serial for s in case.suspects),
        *(serial for _, _, serial, _ in case.parts_before),
        *(serial for change in changes for serial in (change.before, change.after)),
        case.spare.serial if case.spare is not None else "",
    )
    return tuple(dict.fromkeys(s for s in serials if s))
