"""Routes of operations and requests: follow them, approve them, refuse them.

Whoever asked for a change is not the one who approves it: two persons, not two tokens.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.api.changes import operation_view
from provisioner.api.console_cookie import require_proof
from provisioner.api.cursor import cursor, place
from provisioner.api.operations import (
    OperationView,
    request_number,
    stored_id,
    view_of_operation,
    view_of_request,
)
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import missing, no
from provisioner.api.route import ANYBODY, APPROVERS, VIEWERS, Paging, Route
from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.ports import StaleWrite

TAG = "operations"


class OperationPage(Record):
    """A part of a list."""

    items: tuple[OperationView, ...]
    next: str = ""


class OperationQuery(Paging):
    """Which operations of nodes."""

    status: Literal["", "active", "done", "parked"] = Field("", description="In this state only.")
    node: str = Field("", max_length=128, description="Of this node only.")


class RequestQuery(Paging):
    """Which requests."""

    waiting: Literal["true", "false"] = Field("false", description="Only those to be approved.")


class Decision(Record):
    """Why, of an approval or a refusal."""

    note: str = Field("", max_length=200)


async def list_operations(ask: Ask) -> Reply:
    """Of nodes, by id."""
    started = place(ask.query.cursor, str)
    limit = ask.query.limit
    rows = await ask.parts.store.operations.list_page(
        after=str(started[0]) if started else "",
        limit=limit + 1,
        status=ask.query.status,
        node=ask.query.node,
    )
    items = tuple(view_of_operation(row) for row in rows[:limit])
    following = cursor(rows[limit - 1].id) if len(rows) > limit else ""
    return Reply(OperationPage(items=items, next=following))


async def show(ask: Ask) -> Reply:
    """One, of either kind."""
    public = ask.word("operation")
    if request_number(public):
        return Reply(await operation_view(ask.parts, await _request(ask, public), ask.now))
    found = await ask.parts.store.operations.get(stored_id(public))
    if found is None or not ask.caller.staff:
        raise missing("operation")
    return Reply(view_of_operation(found))


async def list_requests(ask: Ask) -> Reply:
    """The newest first; a tenant sees those on its own nodes that it asked for itself."""
    started = place(ask.query.cursor, int)
    limit = ask.query.limit
    rows = await ask.parts.store.requests.list_page(
        before=int(started[0]) if started else 0,
        limit=limit + 1,
        states=[RequestState.WAITING] if ask.query.waiting == "true" else [],
        tenant=None if ask.caller.staff else ask.caller.tenant,
    )
    shown = [await _shown(ask, row) for row in rows[:limit] if _may_see(ask, row)]
    following = cursor(rows[limit - 1].id) if len(rows) > limit else ""
    return Reply(OperationPage(items=tuple(shown), next=following))


async def _shown(ask: Ask, row: ChangeRequest) -> OperationView:
    limit_s = ask.parts.settings.api_approval_h * 3600
    if row.state is RequestState.UNDER_WAY:
        return await operation_view(ask.parts, row, ask.now)
    return view_of_request(row, None, ask.now, limit_s)


def _may_see(ask: Ask, row: ChangeRequest) -> bool:
    """What the staff asks for has the staff's words in it: a tenant sees what it asked itself."""
    own = row.tenant == ask.caller.tenant and row.asked_by == ask.caller.subject
    return ask.caller.staff or (bool(ask.caller.tenant) and own)


async def _request(ask: Ask, public: str) -> ChangeRequest:
    number = request_number(public)
    found = await ask.parts.store.requests.get(number)
    if found is None or not _may_see(ask, found):
        raise missing("operation")
    return found


async def approve(ask: Ask) -> Reply:
    """Yes: it is carried out now."""
    found = await _request(ask, ask.word("request"))
    if ask.dry_run:
        return await ask.parts.works.foresee(ask, found.kind, found.subject, found.arguments)
    with ask.parts.works.reserve(ask, found.kind) as place:
        decided = await _decide(ask, RequestState.RUNNING)
        return await ask.parts.works.run(ask, decided, place.pop_all())


async def refuse(ask: Ask) -> Reply:
    """No: it is never carried out."""
    decided = await _decide(ask, RequestState.REFUSED)
    return Reply(await operation_view(ask.parts, decided, ask.now))


async def _decide(ask: Ask, state: RequestState) -> ChangeRequest:
    found = await _request(ask, ask.word("request"))
    if state is RequestState.RUNNING:
        require_proof(ask, found.kind)
    if found.asked_by.casefold() == ask.caller.subject.casefold():
        unblock = "Ask another person who has the role approver."
        raise no(403, "four-eyes", "Nobody decides on what he asked for himself", unblock)
    now = await operation_view(ask.parts, found, ask.now)
    if now.state != RequestState.WAITING.value:
        unblock = "Nothing is to be decided; ask for the change anew if it is still wanted."
        raise no(409, "decided", f"It is {now.state}, not waiting", unblock)
    decided = found.model_copy(
        update={
            "state": state,
            "decided_by": ask.caller.subject,
            "decided_at": ask.now,
            "note": ask.body.note,
            "ended_at": ask.now if state is RequestState.REFUSED else 0.0,
        }
    )
    try:
        return await ask.parts.store.requests.save(decided, ask.caller.subject, ask.now)
    except StaleWrite:
        raise no(409, "decided", "Somebody was faster", "Look at what became of it.") from None


ROUTES = (
    Route("GET", "/operations", "list_operations", TAG, "Undertakings of nodes, by id.", VIEWERS,
          list_operations, {200: OperationPage}, query=OperationQuery),
    Route("GET", "/operations/{operation}", "show_operation", TAG,
          "One undertaking to follow: a request (r12), or a node's own (su0-n03:7).", ANYBODY,
          show, {200: OperationView}),
    Route("GET", "/requests", "list_requests", "requests",
          "What people asked for, the newest first.", ANYBODY, list_requests,
          {200: OperationPage}, query=RequestQuery),
    Route("POST", "/requests/{request}/approve", "approve_request", "requests",
          "Approve what another person asked for: it is carried out.", APPROVERS, approve,
          {200: OperationView, 202: OperationView}, body=Decision,
          refusals={409: "It does not wait for an approval (any more), or cannot be done."},
          example={"note": "agreed with the tenant"}),
    Route("POST", "/requests/{request}/refuse", "refuse_request", "requests",
          "Refuse what another person asked for: it is never carried out.", APPROVERS, refuse,
          {200: OperationView}, body=Decision,
          refusals={409: "It does not wait for an approval (any more)."},
          example={"note": "not this week"}),
)  # fmt: skip
