"""Routes of operations and requests: follow them, approve them, refuse them.

The person who asked for a change cannot approve it: that takes two persons, not two tokens.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.api.changes import decode_cursor, encode_cursor, read_operation_view
from provisioner.api.operations import (
    OperationState,
    OperationView,
    build_operation_view,
    parse_number,
)
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, APPROVERS, VIEWERS, Effect, Paging, Route
from provisioner.api.scopes import require_scope
from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.operation import parse_public_id
from provisioner.ports import StaleWrite

TAG = "operations"


class OperationPage(Record):
    """A part of a list."""

    items: tuple[OperationView, ...]
    next: str = ""


class OperationQuery(Paging):
    """The selection of nodes' operations."""

    status: Literal["", "active", "done", "parked"] = Field("", description="Select this state.")
    node: str = Field("", max_length=128, description="Select this node.")


class RequestQuery(Paging):
    """The selection of requests."""

    waiting: Literal["true", "false"] = Field(
        "false", description="Select requests that wait for approval."
    )


class Decision(Record):
    """The reason of an approval or a refusal."""

    note: str = Field("", max_length=200, description="The reason, in a sentence.")


async def list_operations(ask: Ask) -> Reply:
    started = decode_cursor(ask.query.cursor, str)
    limit = ask.query.limit
    rows = await ask.parts.store.operations.list_page(
        after=str(started[0]) if started else "",
        limit=limit + 1,
        status=ask.query.status,
        node=ask.query.node,
    )
    items = tuple(build_operation_view(row) for row in rows[:limit])
    following = encode_cursor(rows[limit - 1].id) if len(rows) > limit else ""
    return Reply(OperationPage(items=items, next=following))


async def show(ask: Ask) -> Reply:
    public = ask.read_word("operation")
    if parse_number(public):
        return Reply(await _shown(ask, await _request(ask, public)))
    operation = await ask.parts.store.operations.get(parse_public_id(public))
    if operation is None or not ask.caller.staff:
        raise refuse_missing("operation")
    return Reply(build_operation_view(operation))


async def list_requests(ask: Ask) -> Reply:
    """List requests, the newest first; a tenant sees its own requests on its own nodes."""
    started = decode_cursor(ask.query.cursor, int)
    limit = ask.query.limit
    rows = await ask.parts.store.requests.list_page(
        before=int(started[0]) if started else 0,
        limit=limit + 1,
        states=[RequestState.WAITING] if ask.query.waiting == "true" else [],
        tenant=None if ask.caller.staff else ask.caller.tenant,
    )
    shown = [await _shown(ask, row) for row in rows[:limit] if _may_see(ask, row)]
    following = encode_cursor(rows[limit - 1].id) if len(rows) > limit else ""
    return Reply(OperationPage(items=tuple(shown), next=following))


async def _shown(ask: Ask, row: ChangeRequest) -> OperationView:
    return await read_operation_view(ask.parts, row, ask.now, staff=ask.caller.staff)


def _may_see(ask: Ask, row: ChangeRequest) -> bool:
    """Return whether the caller may see a request; those of the staff hold internal text."""
    own = row.tenant == ask.caller.tenant and row.asked_by == ask.caller.subject
    return ask.caller.staff or (bool(ask.caller.tenant) and own)


async def _request(ask: Ask, public: str) -> ChangeRequest:
    number = parse_number(public)
    request = await ask.parts.store.requests.get(number)
    if request is None or not _may_see(ask, request):
        raise refuse_missing("operation")
    return request


async def approve_request(ask: Ask) -> Reply:
    """Approve a request: it is carried out now."""
    request = await _request(ask, ask.read_word("request"))
    if ask.dry_run:
        await require_scope(ask, request)
        return await ask.parts.works.forecast_change(ask, request)
    with ask.parts.works.reserve_place(ask, request.kind) as place:
        decided = await _decide(ask, RequestState.RUNNING)
        return await ask.parts.works.run(ask, decided, place.pop_all())


async def refuse_request(ask: Ask) -> Reply:
    """Refuse a request: it is never carried out."""
    decided = await _decide(ask, RequestState.REFUSED)
    return Reply(await _shown(ask, decided))


async def _decide(ask: Ask, state: RequestState) -> ChangeRequest:
    request = await _request(ask, ask.read_word("request"))
    await require_scope(ask, request)
    if request.asked_by.casefold() == ask.caller.subject.casefold():
        unblock = "Ask another person who has the role approver."
        raise build_refusal(
            403, "four-eyes", "Nobody decides on what he asked for himself", unblock
        )
    now = await _shown(ask, request)
    if now.state is not OperationState.WAITING:
        unblock = "Nothing is to be decided; ask for the change anew if it is still wanted."
        raise build_refusal(409, "decided", f"It is {now.state}, not waiting", unblock)
    decided = request.model_copy(
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
        raise build_refusal(
            409, "decided", "Somebody was faster", "Look at what became of it."
        ) from None


ROUTES = (
    Route(
        "GET",
        "/operations",
        "list_operations",
        TAG,
        "List operations of nodes, by id.",
        VIEWERS,
        list_operations,
        {200: OperationPage},
        query=OperationQuery,
    ),
    Route(
        "GET",
        "/operations/{operation}",
        "show_operation",
        TAG,
        "Show one operation: a request (r12), or a node's own (su0-n03:7).",
        ANYBODY,
        show,
        {200: OperationView},
    ),
    Route(
        "GET",
        "/requests",
        "list_requests",
        "requests",
        "List requests of people, the newest first.",
        ANYBODY,
        list_requests,
        {200: OperationPage},
        query=RequestQuery,
    ),
    Route(
        "POST",
        "/requests/{request}/approve",
        "approve_request",
        "requests",
        "Approve another person's request: it is carried out.",
        APPROVERS,
        approve_request,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Decision,
        refusals={409: "It does not wait for an approval (any more), or cannot be done."},
        example={"note": "agreed with the tenant"},
    ),
    Route(
        "POST",
        "/requests/{request}/refuse",
        "refuse_request",
        "requests",
        "Refuse another person's request: it is never carried out.",
        APPROVERS,
        refuse_request,
        {200: OperationView},
        effect=Effect.LASTING,
        body=Decision,
        refusals={409: "It does not wait for an approval (any more)."},
        example={"note": "not this week"},
    ),
)
