"""Routes of cases: list, show, open (of a node, or of a rack).

A tenant sees the cases of its own nodes in a short form, and may report a fault of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import (
    ANYBODY,
    OPERATORS,
    OPERATORS_AND_TENANTS,
    Counted,
    Effect,
    Paging,
    Route,
    format_etag,
)
from provisioner.control.repairs.case_service import CaseService
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, Origin, Service, Stage
from provisioner.model.node import Node
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.lifecycle.next_step import (
    Act,
    NextStep,
    describe_cause,
    describe_next_step,
    find_party,
)
from provisioner.planning.repair.case_policy import PlannedWork, Verb, list_due_verbs, list_serials

TAG = "cases"


class CaseLine(Record):
    """A case in short form."""

    id: str
    node: str
    stage: Stage
    service: Service
    tenant: str
    opened_at: Instant
    drain_at: InstantOrNone
    closed_at: InstantOrNone
    ending: Ending | None = None
    reason: str = ""
    suspect: str = Field("", description="Main suspect, for the staff.")
    confidence: float = Field(0.0, description="Confidence in the suspect, from 0 to 1.")
    note: str = Field("", description="Condition that the case waits for, for the staff.")


class CasePage(Counted):
    """A part of the list, the newest first."""

    items: tuple[CaseLine, ...]
    next: str = ""


class CaseView(Record):
    """One case; `case` is the whole record, for the staff."""

    line: CaseLine
    case: Case | None = None
    next_step: str = Field("", description="Event that moves the case on, in one sentence.")
    due: tuple[Verb, ...] = Field((), description="Requests that the case accepts now.")
    step: NextStep | None = Field(
        None, description="Cause and next step, for the staff: as the node's page has them."
    )


class CaseQuery(Paging):
    """The selection of cases."""

    node: str = Field("", max_length=128, description="Select this node.")
    open: Literal["true", "false"] = Field("false", description="Select open cases.")
    serial: str = Field(
        "", max_length=100, description="Select cases with this serial of a part; for the staff."
    )


class FaultReport(Record):
    """The body of a report."""

    reason: str = Field(
        min_length=1, max_length=300, description="Description of the fault, in a sentence."
    )
    service: Service | None = Field(
        None, description="Instead of the site's policy; the staff's to say."
    )
    maintenance: bool = Field(
        default=False, description="Planned work, no fault; the staff's to say."
    )
    tenant: bool = Field(
        default=False, description="Its tenant reports it, and the staff writes it down."
    )
    begins_at: InstantOrNone = Field(
        0.0, description="Start of planned work; null: after the site's notice."
    )
    ends_at: InstantOrNone = Field(0.0, description="Expected end of planned work; null: unknown.")


class RackReport(Record):
    """The body of a rack's."""

    reason: str = Field(min_length=1, max_length=300, description="Reason, in a sentence.")
    service: Service = Field(Service.DRAIN, description="Effect on the tenants' use.")
    begins_at: InstantOrNone = Field(
        0.0, description="Start of the work; null: after the site's notice."
    )
    ends_at: InstantOrNone = Field(0.0, description="Expected end of the work; null: unknown.")


async def list_all(ask: Ask) -> Reply:
    """List cases, the newest first."""
    if ask.query.node:
        await ask.read_node(ask.query.node)
    started = decode_cursor(ask.query.cursor, float, str)
    limit = ask.query.limit
    rows = await ask.parts.store.cases.list_page(
        before=(float(started[0]), str(started[1])) if started else None,
        limit=limit + 1,
        node=ask.query.node,
        tenant=None if ask.caller.staff else ask.caller.tenant,
        open_only=ask.query.open == "true",
    )
    serial = ask.query.serial.casefold()
    items = tuple(
        _line(case, staff=ask.caller.staff)
        for case in rows[:limit]
        if not serial or (ask.caller.staff and _has_serial(case, serial))
    )
    last = rows[limit - 1] if len(rows) > limit else None
    following = "" if last is None else encode_cursor(last.opened_at, last.id)
    total = None
    if not serial:  # else each row would have to be read for it
        tenant = None if ask.caller.staff else ask.caller.tenant
        only = ask.query.open == "true"
        total = await ask.parts.store.cases.count(ask.query.node, tenant, open_only=only)
    return Reply(CasePage(items=items, next=following, total=total))


async def read_case(ask: Ask) -> Case:
    """Return the case of the path. Raises Refused as missing if there is none for this caller."""
    case = await ask.parts.store.cases.get(ask.read_word("case"))
    if case is None or not _may_see(ask, case):
        raise refuse_missing("case")
    return case


async def show(ask: Ask) -> Reply:
    case = await read_case(ask)
    staff = ask.caller.staff
    node = await ask.parts.store.nodes.get(case.node)
    view = CaseView(
        line=_line(case, staff=staff),
        case=case if staff else None,
        next_step=describe_next_step(case) if staff or case.stage is Stage.OPENED else "",
        due=list_due_verbs(case, node, staff=staff),
        step=_find_step(ask, case) if staff else None,
    )
    return Reply(view, etag=format_etag(case.generation))


def _find_step(ask: Ask, case: Case) -> NextStep:
    return NextStep(
        cause=describe_cause(case),
        step=describe_next_step(case),
        turn=find_party(case, ask.now, ask.parts.settings.repair_confidence_min),
        case=case.id,
        act=Act.CASE if case.open else Act.NONE,
    )


def _has_serial(case: Case, serial: str) -> bool:
    return serial in {s.casefold() for s in list_serials(case)}


def _may_see(ask: Ask, case: Case) -> bool:
    """Return whether the caller may see a case; a tenant, if the node served it at its opening."""
    return ask.caller.staff or (bool(ask.caller.tenant) and case.tenant == ask.caller.tenant)


def _line(case: Case, *, staff: bool) -> CaseLine:
    own_words = staff or case.origin is Origin.TENANT
    suspect = case.suspect if staff else None
    return CaseLine(
        id=case.id,
        node=case.node,
        stage=case.stage,
        service=case.service,
        tenant=case.tenant,
        opened_at=case.opened_at,
        drain_at=case.drain_at,
        closed_at=case.closed_at,
        ending=case.ending,
        reason=case.reason if own_words else "",
        suspect=f"{suspect.kind} {suspect.part}" if suspect else "",
        confidence=suspect.confidence if suspect else 0.0,
        note=case.note if staff else "",
    )


async def report_fault(ask: Ask) -> Reply:
    """Ask to open a case for a node's fault."""
    node = await ask.read_node()
    by_tenant = ask.body.tenant or not ask.caller.staff
    origin = Origin.TENANT if by_tenant else Origin.OPERATOR
    arguments = {"reason": ask.body.reason, "origin": origin.value}
    if ask.body.maintenance:
        if ask.body.tenant:
            unblock = "Leave one of the two out."
            raise build_refusal(
                400, "service", "Planned work is the site's, not a tenant's", unblock
            )
        if not ask.caller.staff:
            unblock = "Report a fault, or ask the site's operators for maintenance."
            raise build_refusal(
                403, "service", "Planned work is not a tenant's to announce", unblock
            )
        arguments |= {"origin": Origin.MAINTENANCE.value, "begins_at": ask.body.begins_at}
        arguments["ends_at"] = ask.body.ends_at
    if ask.body.service is not None:
        if not ask.caller.staff:
            unblock = "Leave it out: the site's policy decides, and tells you."
            raise build_refusal(403, "service", "The service is not a tenant's to choose", unblock)
        arguments["service"] = ask.body.service.value
    if not ask.caller.staff:
        arguments["tenant"] = ask.caller.tenant
    return await ask.parts.works.submit_change(
        ask, ChangeKind.CASE_OPEN, node.id, node.tenant, arguments
    )


async def report_rack(ask: Ask) -> Reply:
    """Ask to open cases for a whole rack's maintenance."""
    rack = ask.read_word("rack")
    if not await _hosts(ask.parts, rack):
        raise refuse_missing("rack")
    arguments = ask.body.model_dump(mode="json")
    return await ask.parts.works.submit_change(ask, ChangeKind.CASE_OPEN_RACK, rack, "", arguments)


async def _hosts(parts: ApiParts, rack: str) -> list[Node]:
    return [n for n in await parts.store.nodes.list() if n.location.rack == rack and n.ports]


def open_case_service(parts: ApiParts) -> CaseService:
    """Return the case service for people's decisions on cases, on this store."""
    return CaseService(parts.context, parts.store.cases, parts.store.alerts)


async def change_case(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out: the tenant is notified at once, and policy decides on the node's future."""
    arguments = asked.arguments
    if asked.kind is ChangeKind.CASE_OPEN_RACK:
        return await _open_rack(parts, asked)
    node = await parts.store.nodes.get(asked.subject)
    if node is None or arguments.get("tenant", node.tenant) != node.tenant:
        return build_objection(asked.subject, "it is not yours any more", "Look at your nodes.")
    service = Service(arguments["service"]) if arguments.get("service") else None
    made = await open_case_service(parts).open(
        node,
        Origin(arguments["origin"]),
        str(arguments["reason"]),
        asked.asked_by,
        service=service,
        planned=_work_of(arguments),
    )
    if isinstance(made, str):
        return build_objection(node.id, made, "Look at its case.")
    return Outcome(RequestState.DONE, {"case": made.id})


def _work_of(told: Mapping[str, Any]) -> PlannedWork:
    begins_at = float(told.get("begins_at", 0.0))
    ends_at = float(told.get("ends_at", 0.0))
    return PlannedWork(begins_at=begins_at, ends_at=ends_at)


async def foresee_rack(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the hosts of a rack whose tenants would be notified."""
    service = asked.arguments["service"]
    return Forecast(
        tuple(
            f"{n.id}: a case is opened ({service}); tenant {n.tenant or 'none'}."
            for n in await _hosts(parts, asked.subject)
        )
    )


async def _open_rack(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    case_service = open_case_service(parts)
    arguments = asked.arguments
    service = Service(arguments["service"])
    opened = {}
    for node in await _hosts(parts, asked.subject):
        made = await case_service.open(
            node,
            Origin.MAINTENANCE,
            str(arguments["reason"]),
            asked.asked_by,
            service=service,
            planned=_work_of(arguments),
        )
        opened[node.id] = made if isinstance(made, str) else made.id
    return Outcome(RequestState.DONE, {"cases": opened})


ROUTES = (
    Route(
        "GET",
        "/cases",
        "list_cases",
        TAG,
        "List cases, the newest first.",
        ANYBODY,
        list_all,
        {200: CasePage},
        query=CaseQuery,
        refusals={404: "There is no such node, or not yours."},
    ),
    Route(
        "GET",
        "/cases/{case}",
        "show_case",
        TAG,
        "Show one case: stages, suspects, remedies tried, parts, ticket.",
        ANYBODY,
        show,
        {200: CaseView},
    ),
    Route(
        "POST",
        "/nodes/{node}/cases",
        "open_case",
        TAG,
        "Report a fault: its tenant is notified, and policy decides on the node.",
        OPERATORS_AND_TENANTS,
        report_fault,
        {200: OperationView, 202: OperationView},
        effect=Effect.MOMENTARY,
        # the rest is the site's policy, and ends with the case
        lasting_with=frozenset({"service", "maintenance", "tenant"}),
        body=FaultReport,
        example={"reason": "GPU 5 fell off the bus"},
    ),
    Route(
        "POST",
        "/racks/{rack}/cases",
        "open_rack",
        TAG,
        "Give a whole rack back for maintenance: each host without a case gets one.",
        OPERATORS,
        report_rack,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=RackReport,
        example={"reason": "water below"},
    ),
)
