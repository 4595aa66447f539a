"""The cause and the next step of a node, in the same words wherever they are shown. Pure.

Rule: an open repair case leads. What a blocker would have people do instead (open a case, try the
node again) is not shown beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.decide import PASSING


class Party(StrEnum):
    TECHNICIAN = "technician"  # works on the hardware
    TENANT = "tenant"  # may agree to a drain, or defer it
    PERSON = "person"  # decides where no rule does


class Act(StrEnum):
    """What a person can do about it, by the page or the request that leads on."""

    NONE = ""
    CASE = "case"  # the page of its case has the requests that are due
    RETRY = "retry"  # once its remedy is done
    ADOPT = "adopt"


class NextStep(Record):
    """Why a node stands where it does, what comes next, and whose turn it is."""

    cause: str = Field("", description="The cause in one sentence; empty: nothing is wrong.")
    step: str = Field(description="What comes next, in one sentence.")
    turn: Party | None = Field(None, description="Whose turn it is; null: the daemon's.")
    case: str = Field("", description="Its open repair case.")
    act: Act = Field(Act.NONE, description="What a person can do about it.")


_STEPS = {
    State.DISCOVERED: "It is identified, then compared with the plan.",
    State.INTAKE: "Its ports are fenced, then every component is brought to its pin.",
    State.CONVERGING: "Every component is brought to its pin.",
    State.VALIDATING: "The health checks run; it is certified if all pass.",
    State.RELEASED: "It is watched for drift, faults and the age of its certificate.",
    State.DRAINING: "It is fenced into the maintenance VRF, erased, and converges anew.",
    State.QUARANTINED: "A person, or a repair case, has to take the cause away.",
    State.REPAIRING: "A repair case names the next remedy.",
    State.RETIRED: "Nothing: it is retired.",
}


def find_next_step(
    node: Node, case: Case | None, now: float, confidence_min: float = 0.0
) -> NextStep:
    """Return the cause and the next step of a node. `case`: its open one.

    `confidence_min`: the site's, below which a person diagnoses before a part is replaced.
    """
    if case is not None and case.open:
        return NextStep(
            cause=describe_cause(case),
            step=describe_next_step(case),
            turn=find_party(case, now, confidence_min),
            case=case.id,
            act=Act.CASE,
        )
    if node.state is State.RETIRED:
        return NextStep(step=_STEPS[node.state])
    if node.blockers:
        first = node.blockers[0]
        passing = all(b.reason in PASSING for b in node.blockers)
        alone = passing and node.placement is Placement.MAINTENANCE and not node.is_parked
        stands = node.state is State.QUARANTINED or node.is_parked
        return NextStep(
            cause=f"{first.subject}: {first.detail}",
            step=first.unblock or _STEPS[node.state],
            turn=None if alone or not stands else Party.PERSON,
            act=Act.RETRY if stands else Act.NONE,
        )
    if node.state is State.CERTIFIED:
        wanted = f"It is released to {node.tenant}." if node.tenant else "It waits for a tenant."
        return NextStep(step=wanted)
    return NextStep(cause=node.note, step=_STEPS[node.state])


def settle_blockers(blockers: Sequence[Blocker], step: NextStep) -> tuple[Blocker, ...]:
    """Return blockers whose remedy is the open case's next step, where there is a case."""
    if not step.case:
        return tuple(blockers)
    unblock = f"{step.step} See case {step.case}."
    return tuple(b.model_copy(update={"unblock": unblock}) for b in blockers)


def describe_cause(case: Case) -> str:
    """Return the cause as far as the case knows it: its main suspect, else its report."""
    suspect = case.suspect
    if suspect is None:
        return case.reason
    return f"{suspect.kind} {suspect.part} ({suspect.confidence:.0%}): {suspect.why}"


def describe_next_step(case: Case) -> str:
    """Return in one sentence the event that moves the case on, and who causes it."""
    match case.stage:
        case Stage.CLOSED:
            return "The case is closed: nothing follows."
        case Stage.OPENED if case.service is Service.KEEP and not case.retire_at:
            if case.origin is Origin.EVENT:
                return "The node stays in service; the case ends when its alerts are over."
            return (
                "The node stays in service: a person has it reclaimed for repair, or closes the "
                "case."
            )
        case Stage.OPENED if case.tenant and may_wait(case):
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


def may_wait(case: Case) -> bool:
    """Return whether its tenant may defer the drain: a node that is cut off serves no more."""
    return bool(case.drain_at) and case.service is not Service.CUT_OFF


def find_party(case: Case, now: float, confidence_min: float) -> Party | None:
    """Return the party that a case waits for, or None while it goes on by itself."""
    if case.stage is Stage.HARDWARE:
        suspect = case.suspect
        clear = suspect is not None and suspect.confidence >= confidence_min
        return Party.TECHNICIAN if clear and case.ticket is not None else Party.PERSON
    if case.stage is Stage.OPENED and case.service is Service.KEEP and not case.retire_at:
        return None if case.origin is Origin.EVENT else Party.PERSON
    if case.stage is Stage.OPENED and case.service is Service.DRAIN and case.drain_at > now:
        return Party.TENANT
    difference = case.difference
    if case.stage is Stage.RETURNING and difference is not None:
        return Party.PERSON if difference.wrong or difference.missing else None
    return None


def describe_wait(case: Case) -> str:
    if case.ticket is not None and case.ticket.work:
        return case.ticket.work
    return case.note or case.reason
