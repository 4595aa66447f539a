"""Decisions about cases: when one is opened, how the tenant is treated, and its waits. Pure.

A tenant never loses its node at once for a fault that concerns only the site, and never stays on a
node whose certificate an error has invalidated; in between it gets its notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from provisioner.model.alert import Alert, Classification
from provisioner.model.base import Record
from provisioner.model.case import Case, Fault, Origin, Service, Stage, StageTime, TenantNotice
from provisioner.model.cohort import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification.regression import list_parts
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.next_step import may_wait
from provisioner.planning.watch.watch_rules import LAPSED

C = Classification
# reasons that a repair can act on; a plan without a path is the fault of the matrix, not of a part
FAULTY = frozenset(
    {
        Reason.CHECK_FAILED,
        Reason.BILL_OF_MATERIALS,
        Reason.UPDATE_FAILED,
        Reason.UPDATE_STALLED,
        Reason.NOT_ACTIVATED,
        Reason.POWER,
        Reason.UNREACHABLE,
        Reason.MALFORMED,
        Reason.CABLING,
        Reason.FABRIC,
        Reason.PAIRING_FAILED,
        Reason.ATTEMPTS_EXHAUSTED,
    }
)
# reasons that no remedy on a node changes: people change the matrix or its files, or exchange a
# part
_OF_THE_MATRIX = frozenset(
    {
        Reason.UNKNOWN_PIN,
        Reason.NO_PATH,
        Reason.DOWNGRADE,
        Reason.ANTI_ROLLBACK,
        Reason.CONSTRAINT,
        Reason.MISSING_ARTIFACT,
        Reason.MISSING_DIGEST,
        Reason.MISSING_EVIDENCE,
        Reason.METHOD_FORBIDDEN,
        Reason.DIGEST_MISMATCH,
    }
)
_ISOLATION = frozenset({Reason.CABLING, Reason.FABRIC})
# alerts that open a case; the others are for people to examine
_OPENING = frozenset(
    {
        C.HARDWARE,
        C.SENSOR_CRITICAL,
        C.SENSOR_FAILURE,
        C.FATAL_EVENT,
        C.PART_SWAP,
        C.LINK,
        C.UNOBSERVED,
    }
)
FAULTS_MAX = 64
# the first words of a check's finding when its output was unreadable
UNREADABLE = "cannot be judged"
WORDS_MAX = 500  # of a person's or a tenant's report


class CasePolicy(Record):
    """Policy of cases; the settings of the same names document the fields."""

    service: str = "auto"  # or one of `Service`
    notice_s: float = 86400.0
    defer_max_s: float = 14 * 86400.0
    quiet_s: float = 3600.0  # a node kept in service without faults for so long: its case is closed


class PlannedWork(Record):
    """Begin and end of planned maintenance, in Unix seconds; 0: not specified."""

    begins_at: float = 0.0
    ends_at: float = 0.0


def service_for(classes: Iterable[Classification], origin: Origin, policy: CasePolicy) -> Service:
    """Return how a tenant's use of the node is treated."""
    if policy.service != "auto":
        return Service(policy.service)
    classifications = set(classes)
    if classifications & {C.FATAL_EVENT, C.PART_SWAP}:
        return Service.CUT_OFF  # its results, or its identity, cannot be trusted
    if classifications & {C.HARDWARE, C.SENSOR_CRITICAL, C.SENSOR_FAILURE}:
        return Service.DRAIN
    if origin in (Origin.TENANT, Origin.CHECK, Origin.MAINTENANCE):
        return Service.DRAIN
    return Service.KEEP  # one link of several, or a silent BMC: the tenant's work continues


def open_case(
    node: Node,
    *,
    number: int,
    origin: Origin,
    reason: str,
    by: str,
    service: Service,
    inventory: Inventory | None,
    policy: CasePolicy,
    now: float,
    faults: Sequence[Fault] = (),
    planned: PlannedWork | None = None,
) -> Case:
    """Return a new case of a node, with its present parts. `planned`: times of maintenance."""
    serves = node.state is State.RELEASED
    drain_at = now if service is Service.CUT_OFF else now + policy.notice_s
    if planned is not None and planned.begins_at and service is Service.DRAIN:
        drain_at = max(now, planned.begins_at)
    return Case(
        id=f"{node.id}-c{number:04d}",
        node=node.id,
        origin=origin,
        reason=reason[:WORDS_MAX],
        by=by[:120],
        service=service,
        tenant=node.tenant,
        stages=(StageTime(stage=Stage.OPENED, at=now),),
        faults=tuple(faults)[:FAULTS_MAX],
        parts_before=list_parts(inventory),
        system_before=(inventory.system_serial or "") if inventory else "",
        vendor=inventory.vendor if inventory else "",
        profile=node.profile,
        drain_at=drain_at if serves and service is not Service.KEEP else 0.0,
        work_ends_at=planned.ends_at if planned is not None else 0.0,
        opened_at=now,
    )


def is_taken_over(node: Node, case: Case | None = None) -> bool:
    """Return whether every BMC of a node has a credential of ours and its profile is stored.

    A node that comes back from repair as a stranger has no profile until its parts were read; the
    one that its case was opened with counts then.
    """
    profile = node.profile or (case.profile if case is not None else "")
    return bool(profile) and all(b.rotated for b in node.bmcs)


def describe_take_over(node: Node) -> str:
    """Return the instruction to people for a node that was not taken over."""
    strange = [b.name for b in node.bmcs if not b.rotated]
    lacking = [f"no credential of ours for {', '.join(strange)}"] if strange else []
    lacking += ["no profile is stored"] if not node.profile else []
    reason = f" ({node.blockers[0]})" if node.blockers else ""
    return (
        f"It was not taken over: {' and '.join(lacking)}{reason}. Nothing is written to it. "
        "Resolve this, then say `case returned`, or `case retire` to give the machine up."
    )[:500]


def is_repairable(node: Node, remedies_max: int) -> bool:
    """Return whether a node is quarantined for a reason that a repair can cure.

    Transient reasons are left to the automatic retries first. A node that was not taken over is
    never repaired: its profile may be another machine's, and its BMCs may belong to another owner.
    """
    if node.state is not State.QUARANTINED or node.kind is not NodeKind.HOST:
        return False
    if not is_taken_over(node):
        return False
    reasons = {b.reason for b in node.blockers}
    if not reasons & FAULTY:
        return False
    waits = all(r in PASSING for r in reasons) and node.attempts < remedies_max
    return not (waits and node.placement.value == "maintenance")


def is_incurable(case: Case, node: Node) -> bool:
    """Whether only the matrix and its files keep a node, not to be retired, in quarantine."""
    if case.retire_at or node.state is not State.QUARANTINED:
        return False
    reasons = {b.reason for b in node.blockers}
    return bool(reasons) and reasons <= _OF_THE_MATRIX


def opening_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return the alerts that open a case, gravest first; `alerts` are those that have an effect."""
    opening = [a for a in alerts if a.active and set(a.classifications) & _OPENING]
    return tuple(sorted(opening, key=lambda a: (C.FATAL_EVENT not in a.classifications, a.id)))


def lapsed_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return the alerts that a serving node has no valid certificate any more."""
    return tuple(
        a
        for a in alerts
        if a.active and C.CERTIFICATE_AGE in a.classifications and a.message in LAPSED
    )


def faults_of(
    node: Node, report: HealthReport | None, alerts: Iterable[Alert], case: Case | None = None
) -> tuple[Fault, ...]:
    faults = [
        Fault(source="report", id="reported", detail=case.reason, at=case.opened_at)
        for case in (case,)
        if case is not None and case.origin in (Origin.TENANT, Origin.OPERATOR)
    ]
    faults += [
        Fault(source="report", id=f"reported {number}", detail=r.reason, at=r.at)
        for number, r in enumerate(case.reports if case is not None else (), 2)
        if r.origin in (Origin.TENANT, Origin.OPERATOR)
    ]
    faults += [
        Fault(
            source="alert",
            id=a.id,
            part=a.target,
            detail=f"{a.message} [{' '.join(a.classifications)}]"[:300],
            at=a.last_at,
            count=a.count,
        )
        for a in alerts
        if a.active
    ]
    if report is not None:
        for result in report.results:
            if result.verdict is not Verdict.FAIL:
                continue
            check = result.check.split(" after ")[0]
            faults += [
                Fault(
                    source="check",
                    id="unreadable" if f.detail.startswith(UNREADABLE) else check,
                    part=f.part[:80],
                    detail=f"{f.detail} {f.measured}".strip()[:300],
                    at=report.ended_at,
                    severity=f.severity,
                )
                for f in result.findings or (_without_finding(result),)
            ]
    for blocker in node.blockers:
        source = "isolation" if blocker.reason in _ISOLATION else "work"
        if blocker.reason is Reason.CHECK_FAILED:
            if not blocker.subject.endswith("/fabric"):
                continue  # its report says more
            source = "isolation"
        if blocker.reason not in FAULTY:
            continue
        faults.append(
            Fault(
                source=source,
                id=blocker.reason.value,
                part=blocker.subject[:80],
                detail=blocker.detail[:300],
            )
        )
    unique = {(f.key, f.detail): f for f in faults}
    return tuple(unique.values())[:FAULTS_MAX]


def _without_finding(result: CheckResult) -> Finding:
    detail = f"{UNREADABLE}: {result.check} failed and accuses nothing"
    return Finding(part="host", severity=Severity.CONFIG, detail=detail)


def list_keys(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return the keys of faults that are compared before and after a remedy.

    Reports of people are not measured, and an event log keeps its old entries.
    """
    return tuple(sorted({f.key for f in faults if f.source not in ("report", "event_log")}))


def waits_for(case: Case, now: float) -> str:
    """Return the condition that a case of a node in `repairing` waits for; "": it can go on now."""
    if case.stage is Stage.RETIRING or 0 < case.retire_at <= now:
        return ""
    if case.stage is Stage.HARDWARE:
        return case.note or "people work on it"
    if case.stage is Stage.DIAGNOSIS and case.next_at > now:
        return case.note or "the next remedy is not due yet"
    return ""


def has_to_wait(case: Case, now: float) -> bool:
    """Return whether a case of a node in `repairing` has to wait now."""
    return bool(waits_for(case, now))


def defer_drain(case: Case, until: float, policy: CasePolicy, now: float) -> Case | str:
    """Return the case with its drain deferred at the tenant's request, or why it cannot be.

    A drain can be deferred by `defer_max_s` from the opening at most.
    """
    if case.stage is not Stage.OPENED or not case.drain_at:
        return "it is not waiting to be drained"
    if case.service is Service.CUT_OFF:
        return "it is cut off: its certificate is gone"
    latest = case.opened_at + policy.defer_max_s
    if not now < until <= latest:
        return f"it can be put off until {policy.defer_max_s / 86400:.0f} days after the opening"
    return case.model_copy(update={"drain_at": until, "note": "put off by its tenant"})


def make_notice(
    case: Case, kind: str, text: str, now: float, effective_at: float = 0.0
) -> TenantNotice:
    """Return a notice to the case's tenant; the same notice again has the same id."""
    return TenantNotice(
        id=f"{case.id}/{kind}/{int(now)}",
        tenant=case.tenant,
        node=case.node,
        case=case.id,
        kind=kind,
        text=text,
        at=now,
        effective_at=effective_at,
    )


def is_planned(case: Case) -> bool:
    """Return whether a case is about planned maintenance alone: nothing is diagnosed then."""
    unplanned = (r for r in case.reports if r.origin is not Origin.MAINTENANCE)
    return case.origin is Origin.MAINTENANCE and next(unplanned, None) is None


def _describe_work(case: Case) -> str:
    """Return the notice of planned maintenance, with its times."""
    sentences = {
        Service.KEEP: "It goes on serving you meanwhile.",
        Service.DRAIN: f"It is taken back at {_moment(case.drain_at)}; move your work before that, "
        "agree to less notice, or ask for another time. It comes back to you afterwards.",
        Service.CUT_OFF: "It is taken back now. It comes back to you afterwards.",
    }
    ends = f" The work is expected to end at {_moment(case.work_ends_at)}."
    planned = f"Planned maintenance of node {case.node}: {case.reason}. {sentences[case.service]}"
    return planned + (ends if case.work_ends_at else "")


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def first_notice(case: Case, now: float) -> TenantNotice:
    if case.origin is Origin.MAINTENANCE:
        return make_notice(case, "maintenance", _describe_work(case), now, case.drain_at)
    sentences = {
        Service.KEEP: "It goes on serving you; nothing is done to it without another notice.",
        Service.DRAIN: "It is taken back when the notice ends; move your work, or agree to less.",
        Service.CUT_OFF: "It is taken back now: its results cannot be trusted.",
    }
    text = f"Node {case.node} has a fault: {case.reason}. {sentences[case.service]}"
    return make_notice(case, "failure", text, now, case.drain_at)


# ------------------------------------------------------------------------------
# The next step of an open repair case, and the requests that people may make of it now. Pure.
#
# The requests are those that the case service would accept; a page shows a button for each.


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
        Verb.DEFER: opened and may_wait(case),
        Verb.RETURNED: case.stage is Stage.HARDWARE or incurable,
        Verb.SPARE: case.stage is Stage.HARDWARE,
        Verb.RMA: ticket is not None,
        Verb.TELL: ticket is not None and ticket.asked != ticket.told,
        Verb.REPLACE: node is not None and node.state in OUT_OF_SERVICE,
        Verb.RETIRE: not case.retire_at,
        Verb.CLOSE: True,
    }
    return tuple(v for v, is_due in due.items() if is_due and (staff or v in TENANT_VERBS))


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


# ------------------------------------------------------------------------------
# The effects of people's requests on a repair case, in sentences for the person who asks. Pure.


NOT_TOUCHED = "The node is not touched."


def describe_request(verb: Verb, case: Case, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the request does to the case, its node and its tenant; () for other requests."""
    node = case.node
    match verb:
        case Verb.ACCEPT:
            away = "is out of service already" if _is_cut_off(case) else "is drained now"
            return (f"{node} {away}; it returns once it is repaired and certified again.",)
        case Verb.DEFER:
            until = datetime.fromtimestamp(float(arguments["until"]), UTC)
            return (f"{node} serves on, until {until:%Y-%m-%d %H:%M} UTC at the latest.",)
        case Verb.RETURNED:
            first = f"{node} is taken in as unknown hardware: its parts are compared with those "
            lines = (first + "before, then it is certified anew.",)
            cards = ", ".join(arguments.get("cards", ()))
            return (*lines, f"Factory logins are used for: {cards}.") if cards else lines
        case Verb.SPARE:
            return (f"The part is recorded with the case. {NOT_TOUCHED}",)
        case Verb.RMA:
            return (f"The number is recorded with the case and its ticket. {NOT_TOUCHED}",)
        case Verb.TELL:
            return (f"The ticket is sent to its system again. {NOT_TOUCHED}",)
        case Verb.CLOSE:
            ending = str(arguments["ending"]).replace("_", " ")
            lines = (f"The case ends as: {ending}. Nothing proves that {node} is well.",)
            return (*lines, f"{case.tenant} gets a notice.") if case.tenant else lines
    return ()


def _is_cut_off(case: Case) -> bool:
    return case.service is Service.CUT_OFF
