"""Routes of cases: list, show, open (of a node, or of a rack).

A tenant sees the cases of its own nodes in short, and may report a fault of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, objection
from provisioner.api.cursor import cursor, place
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing, no
from provisioner.api.route import ANYBODY, OPERATORS, OPERATORS_AND_TENANTS, Paging, Route, tag_of
from provisioner.control.context import Context
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.case import Case, Origin, Service
from provisioner.model.node import Node
from provisioner.planning.repair.case_policy import PlannedWork

TAG = "cases"


class CaseLine(Record):
    """A case in short."""

    id: str
    node: str
    stage: str
    service: str
    tenant: str
    opened_at: float
    drain_at: float
    closed_at: float
    ending: str = ""
    reason: str = ""
    suspect: str = Field("", description="What the evidence blames most, for the staff.")
    confidence: float = Field(0.0, description="How sure that is, from 0 to 1.")
    note: str = Field("", description="What it waits for, for the staff.")


class CasePage(Record):
    """A part of the list, the newest first."""

    items: tuple[CaseLine, ...]
    next: str = ""


class CaseView(Record):
    """One case; `case` is all of it, for the staff."""

    line: CaseLine
    case: Case | None = None


class CaseQuery(Paging):
    """Which cases."""

    node: str = Field("", max_length=128, description="Of this node only.")
    open: Literal["true", "false"] = Field("false", description="Only those that are open.")


class FaultReport(Record):
    """The body of a report."""

    reason: str = Field(min_length=1, max_length=300, description="What is wrong, in a sentence.")
    service: Service | None = Field(
        None, description="Instead of the site's policy; the staff's to say."
    )
    maintenance: bool = Field(
        default=False, description="Planned work, no fault; the staff's to say."
    )
    tenant: bool = Field(
        default=False, description="Its tenant reports it, and the staff writes it down."
    )
    begins_at: float = Field(0.0, ge=0, description="Of planned work; 0: after the site's notice.")
    ends_at: float = Field(0.0, ge=0, description="Of planned work, as expected; 0: not known.")


class RackReport(Record):
    """The body of a rack's."""

    reason: str = Field(min_length=1, max_length=300, description="Why, in a sentence.")
    service: Service = Field(Service.DRAIN, description="What becomes of its tenants' use.")
    begins_at: float = Field(0.0, ge=0, description="Of the work; 0: after the site's notice.")
    ends_at: float = Field(0.0, ge=0, description="Of the work, as expected; 0: not known.")


async def list_all(ask: Ask) -> Reply:
    """From the newest on."""
    if ask.query.node:
        await ask.node(ask.query.node)
    started = place(ask.query.cursor, float, str)
    limit = ask.query.limit
    rows = await ask.parts.store.cases.list_page(
        before=(float(started[0]), str(started[1])) if started else None,
        limit=limit + 1,
        node=ask.query.node,
        tenant=None if ask.caller.staff else ask.caller.tenant,
        open_only=ask.query.open == "true",
    )
    items = tuple(_line(case, staff=ask.caller.staff) for case in rows[:limit])
    last = items[-1] if len(rows) > limit else None
    following = "" if last is None else cursor(last.opened_at, last.id)
    return Reply(CasePage(items=items, next=following))


async def case_of(ask: Ask) -> Case:
    """The case of the path; Refused as missing if there is none, or it is somebody else's."""
    found = await ask.parts.store.cases.get(ask.word("case"))
    if found is None or not _may_see(ask, found):
        raise missing("case")
    return found


async def show(ask: Ask) -> Reply:
    """One."""
    found = await case_of(ask)
    line = _line(found, staff=ask.caller.staff)
    view = CaseView(line=line, case=found if ask.caller.staff else None)
    return Reply(view, etag=tag_of(found.generation))


def _may_see(ask: Ask, case: Case) -> bool:
    """A tenant sees the cases of nodes that served it when they were opened."""
    return ask.caller.staff or (bool(ask.caller.tenant) and case.tenant == ask.caller.tenant)


def _line(case: Case, *, staff: bool) -> CaseLine:
    own_words = staff or case.origin is Origin.TENANT
    suspect = case.suspect if staff else None
    return CaseLine(
        id=case.id,
        node=case.node,
        stage=case.stage.value,
        service=case.service.value,
        tenant=case.tenant,
        opened_at=case.opened_at,
        drain_at=case.drain_at,
        closed_at=case.closed_at,
        ending=case.ending.value if case.ending is not None else "",
        reason=case.reason if own_words else "",
        suspect=f"{suspect.kind} {suspect.part}" if suspect else "",
        confidence=suspect.confidence if suspect else 0.0,
        note=case.note if staff else "",
    )


async def report(ask: Ask) -> Reply:
    """A fault of a node."""
    node = await ask.node()
    by_tenant = ask.body.tenant or not ask.caller.staff
    origin = Origin.TENANT if by_tenant else Origin.OPERATOR
    told = {"reason": ask.body.reason, "origin": origin.value}
    if ask.body.maintenance:
        if ask.body.tenant:
            unblock = "Leave one of the two out."
            raise no(400, "service", "Planned work is the site's, not a tenant's", unblock)
        if not ask.caller.staff:
            unblock = "Report a fault, or ask the site's operators for maintenance."
            raise no(403, "service", "Planned work is not a tenant's to announce", unblock)
        told |= {"origin": Origin.MAINTENANCE.value, "begins_at": ask.body.begins_at}
        told["ends_at"] = ask.body.ends_at
    if ask.body.service is not None:
        if not ask.caller.staff:
            unblock = "Leave it out: the site's policy decides, and tells you."
            raise no(403, "service", "The service is not a tenant's to choose", unblock)
        told["service"] = ask.body.service.value
    if not ask.caller.staff:
        told["tenant"] = ask.caller.tenant
    return await ask.parts.works.ask(ask, ChangeKind.CASE_OPEN, node.id, node.tenant, told)


async def report_rack(ask: Ask) -> Reply:
    """A whole rack is given back for maintenance."""
    rack = ask.word("rack")
    if not await _hosts(ask.parts, rack):
        raise missing("rack")
    told = ask.body.model_dump(mode="json")
    return await ask.parts.works.ask(ask, ChangeKind.CASE_OPEN_RACK, rack, "", told)


async def _hosts(parts: ApiParts, rack: str) -> list[Node]:
    return [n for n in await parts.store.nodes.list() if n.location.rack == rack and n.ports]


def desk_of(parts: ApiParts) -> CaseDesk:
    """What people ask of cases, on this store."""
    book, alerts = parts.store.cases, parts.store.alerts
    return CaseDesk(Context(parts.store, parts.clock, parts.settings), book, alerts)


async def change_case(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out: the tenant is told at once, and policy decides what becomes of the node."""
    told = asked.arguments
    if asked.kind is ChangeKind.CASE_OPEN_RACK:
        return await _open_rack(parts, asked)
    node = await parts.store.nodes.get(asked.subject)
    if node is None or told.get("tenant", node.tenant) != node.tenant:
        return objection(asked.subject, "it is not yours any more", "Look at your nodes.")
    service = Service(told["service"]) if told.get("service") else None
    made = await desk_of(parts).open(
        node,
        Origin(told["origin"]),
        str(told["reason"]),
        asked.asked_by,
        service=service,
        planned=_work_of(told),
    )
    if isinstance(made, str):
        return objection(node.id, made, "Look at its case.")
    return Outcome(RequestState.DONE, {"case": made.id})


def _work_of(told: Mapping[str, Any]) -> PlannedWork:
    begins_at, ends_at = float(told.get("begins_at", 0.0)), float(told.get("ends_at", 0.0))
    return PlannedWork(begins_at=begins_at, ends_at=ends_at)


async def foresee_rack(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the hosts of a rack whose tenants would be told."""
    service = asked.arguments["service"]
    return Forecast(
        tuple(
            f"{n.id}: a case is opened ({service}); tenant {n.tenant or 'none'}."
            for n in await _hosts(parts, asked.subject)
        )
    )


async def _open_rack(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    desk, told = desk_of(parts), asked.arguments
    service, found = Service(told["service"]), {}
    for node in await _hosts(parts, asked.subject):
        made = await desk.open(
            node,
            Origin.MAINTENANCE,
            str(told["reason"]),
            asked.asked_by,
            service=service,
            planned=_work_of(told),
        )
        found[node.id] = made if isinstance(made, str) else made.id
    return Outcome(RequestState.DONE, {"cases": found})


ROUTES = (
    Route("GET", "/cases", "list_cases", TAG, "Cases, the newest first.", ANYBODY, list_all,
          {200: CasePage}, query=CaseQuery, refusals={404: "There is no such node, or not yours."}),
    Route("GET", "/cases/{case}", "show_case", TAG,
          "One case: stages, suspects, remedies tried, parts, ticket.", ANYBODY, show,
          {200: CaseView}),
    Route("POST", "/nodes/{node}/cases", "open_case", TAG,
          "Report a fault: its tenant is told, policy decides what becomes of it.",
          OPERATORS_AND_TENANTS, report, {200: OperationView, 202: OperationView}, body=FaultReport,
          example={"reason": "GPU 5 fell off the bus"}),
    Route("POST", "/racks/{rack}/cases", "open_rack", TAG,
          "Give a whole rack back for maintenance: a case for each of its hosts without one.",
          OPERATORS, report_rack, {200: OperationView, 202: OperationView}, body=RackReport,
          example={"reason": "water below"}),
)  # fmt: skip
