"""Routes of cases: list, show, open. A tenant sees the cases of its own nodes in short, and may
report a fault of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from provisioner.api.changes import Outcome, objection
from provisioner.api.operations import OperationView
from provisioner.api.problem import missing
from provisioner.api.route import (
    ANYBODY,
    LIMIT_MAX,
    OPERATORS_AND_TENANTS,
    Ask,
    Reply,
    Route,
)
from provisioner.control.case_desk import CaseDesk
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.case import Case, Origin
from provisioner.store.alert_rows import AlertRows
from provisioner.store.case_rows import CaseRows

if TYPE_CHECKING:
    from provisioner.api.parts import ApiParts

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
    reason: str = ""


class CaseList(Record):
    """The newest cases; there is no second page."""

    items: tuple[CaseLine, ...]


class CaseView(Record):
    """One case; `case` is all of it, for the staff."""

    line: CaseLine
    case: Case | None = None


class CaseQuery(Record):
    """Which cases."""

    limit: int = Field(100, ge=1, le=LIMIT_MAX, description="At most so many.")
    node: str = Field("", max_length=128, description="Of this node only.")


class FaultReport(Record):
    """The body of a report."""

    reason: str = Field(min_length=1, max_length=300, description="What is wrong, in a sentence.")


async def list_all(ask: Ask) -> Reply:
    """The newest."""
    if ask.query.node:
        await ask.node(ask.query.node)
    rows = await CaseRows(ask.parts.store).cases(ask.query.node, 10 * LIMIT_MAX)
    own = [case for case in rows if _may_see(ask, case)]
    items = tuple(_line(case, staff=ask.caller.staff) for case in own[: ask.query.limit])
    return Reply(CaseList(items=items))


async def show(ask: Ask) -> Reply:
    """One."""
    found = await CaseRows(ask.parts.store).case(ask.word("case"))
    if found is None or not _may_see(ask, found):
        raise missing("case")
    line = _line(found, staff=ask.caller.staff)
    return Reply(CaseView(line=line, case=found if ask.caller.staff else None))


def _may_see(ask: Ask, case: Case) -> bool:
    """A tenant sees the cases of nodes that served it when they were opened."""
    return ask.caller.staff or (bool(ask.caller.tenant) and case.tenant == ask.caller.tenant)


def _line(case: Case, *, staff: bool) -> CaseLine:
    own_words = staff or case.origin is Origin.TENANT
    return CaseLine(
        id=case.id,
        node=case.node,
        stage=case.stage.value,
        service=case.service.value,
        tenant=case.tenant,
        opened_at=case.opened_at,
        drain_at=case.drain_at,
        closed_at=case.closed_at,
        reason=case.reason if own_words else "",
    )


async def report(ask: Ask) -> Reply:
    """A fault of a node."""
    node = await ask.node()
    origin = Origin.OPERATOR if ask.caller.staff else Origin.TENANT
    told = {"reason": ask.body.reason, "origin": origin.value}
    if not ask.caller.staff:
        told["tenant"] = ask.caller.tenant
    return await ask.parts.works.ask(ask, ChangeKind.CASE_OPEN, node.id, node.tenant, told)


async def change_case(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out: the tenant is told at once, and policy decides what becomes of the node."""
    node, told = await parts.store.node(asked.subject), asked.arguments
    if node is None or told.get("tenant", node.tenant) != node.tenant:
        return objection(asked.subject, "it is not yours any more", "Look at your nodes.")
    book, alerts = CaseRows(parts.store), AlertRows(parts.store)
    desk = CaseDesk(parts.store, book, alerts, parts.clock, parts.settings)
    made = await desk.open(node, Origin(told["origin"]), str(told["reason"]), asked.asked_by)
    if isinstance(made, str):
        return objection(node.id, made, "Look at its case.")
    return Outcome(RequestState.DONE, {"case": made.id})


ROUTES = (
    Route("GET", "/cases", "list_cases", TAG, "The newest cases.", ANYBODY, list_all,
          {200: CaseList}, query=CaseQuery, refusals={404: "There is no such node, or not yours."}),
    Route("GET", "/cases/{case}", "show_case", TAG,
          "One case: stages, suspects, remedies tried, parts, ticket.", ANYBODY, show,
          {200: CaseView}),
    Route("POST", "/nodes/{node}/cases", "open_case", TAG,
          "Report a fault: its tenant is told, policy decides what becomes of it.",
          OPERATORS_AND_TENANTS, report, {200: OperationView, 202: OperationView}, body=FaultReport,
          example={"reason": "GPU 5 fell off the bus"}),
)  # fmt: skip
