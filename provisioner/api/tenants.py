"""Routes of tenants: list, show, put (create or change), shrink, settle, delete; `dry_run` on each.

A PUT says what the tenant is to be; asked again it changes nothing. An operation that is
`unfinished` is written down and not yet so everywhere: its blockers tell why, and the same request
goes on.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from provisioner.api.changes import Outcome, failed
from provisioner.api.cursor import cursor, place
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import blocked
from provisioner.api.route import ANYBODY, OPERATORS, PREFIX, VIEWERS, Paging, Route
from provisioner.control.fabric.tenant_keeper import Answer
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Outside, Phase, Quota, Tenant
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.reclaiming import find_return_obstacles
from provisioner.planning.tenancy.quotas import Usage, count_usage
from provisioner.planning.tenancy.tenants import Request

TAG = "tenants"
PATH = "/tenants"


class Wanted(Record):
    """The body of a PUT; what is not given stays, or is the default of a new tenant."""

    vrf: str | None = Field(default=None, max_length=64)
    nodes: int | None = Field(default=None, ge=0, le=1_000_000)
    units: tuple[tuple[int, int], ...] | None = None
    outside: tuple[Outside, ...] | None = None
    storage: tuple[str, ...] | None = None
    quota: Quota | None = None


class Fewer(Record):
    """The body of a shrink."""

    to: int = Field(ge=0, le=1_000_000)
    nodes: tuple[str, ...] = Field((), max_length=10_000)
    accept_no_return: bool = Field(
        default=False, description="Also nodes that could not serve again once they are erased."
    )


class TenantView(Record):
    """A tenant, and what it uses of its quota."""

    tenant: Tenant
    usage: Usage


class TenantRow(Tenant):
    """A tenant in a list."""

    nodes: int = Field(0, description="Nodes that are its own now.")


class TenantPage(Record):
    """A part of the list, by name."""

    items: tuple[TenantRow, ...]
    next: str = ""


async def list_all(ask: Ask) -> Reply:
    """All tenants; a tenant sees itself."""
    started = place(ask.query.cursor, str)
    after = str(started[0]) if started else ""
    rows = [
        t
        for t in await ask.parts.store.tenants.list()
        if (ask.caller.staff or t.name == ask.caller.tenant) and t.name > after
    ]
    nodes = await ask.parts.store.nodes.list()
    shown = tuple(
        TenantRow(**dict(t), nodes=count_usage(t, nodes).nodes) for t in rows[: ask.query.limit]
    )
    more = len(rows) > len(shown)
    return Reply(TenantPage(items=shown, next=cursor(shown[-1].name) if more else ""))


async def show(ask: Ask) -> Reply:
    """One, with what it uses."""
    row = await ask.tenant()
    used = count_usage(row, await ask.parts.store.nodes.list())
    return Reply(TenantView(tenant=row, usage=used), etag=_tag(row, used))


class DeviceLines(Record):
    """What one device would be sent."""

    device: str
    lines: tuple[str, ...]


class TenantAudit(Record):
    """What of tenants' networks is not as it is written down, device by device."""

    steps: tuple[DeviceLines, ...]
    blockers: tuple[Blocker, ...]


async def audit(ask: Ask) -> Reply:
    """Compare every tenant's network with every device."""
    answer = await ask.parts.keeper.audit()
    steps = tuple(DeviceLines(device=s.device, lines=tuple(s.lines)) for s in answer.steps)
    return Reply(TenantAudit(steps=steps, blockers=answer.blockers))


async def put(ask: Ask) -> Reply:
    """Make it, or change it."""
    given = ask.body.model_dump(mode="json", exclude_unset=True)
    return await _change(ask, ChangeKind.TENANT_PUT, given)


async def shrink(ask: Ask) -> Reply:
    """Take nodes from it."""
    return await _change(ask, ChangeKind.TENANT_SHRINK, ask.body.model_dump(mode="json"))


async def settle(ask: Ask) -> Reply:
    """Bring the fabric to what is written down."""
    return await _change(ask, ChangeKind.TENANT_SETTLE, {})


async def delete(ask: Ask) -> Reply:
    """Take its network away everywhere."""
    return await _change(ask, ChangeKind.TENANT_DELETE, {})


async def _change(ask: Ask, kind: ChangeKind, arguments: dict[str, Any]) -> Reply:
    name = ask.word("tenant")
    if ask.request.headers.get("If-Match", "*").strip() != "*":
        row = next((t for t in await ask.parts.store.tenants.list() if t.name == name), None)
        tag = (
            _tag(row, count_usage(row, await ask.parts.store.nodes.list()))
            if row is not None
            else ""
        )
        ask.check_match(tag)
        arguments["generation"] = row.generation if row is not None else -1
    if ask.dry_run and kind is not ChangeKind.TENANT_SETTLE:
        row = next((t for t in await ask.parts.store.tenants.list() if t.name == name), None)
        tag = (
            _tag(row, count_usage(row, await ask.parts.store.nodes.list()))
            if row is not None
            else ""
        )
        asked = ChangeRequest(
            kind=kind, subject=name, arguments=arguments, asked_by="", asked_at=ask.now
        )
        return _dry(asked, await _do(ask.parts, asked, dry_run=True), tag)
    return await ask.parts.works.ask(ask, kind, name, name, arguments)


def _tag(row: Tenant, used: Usage) -> str:
    """All else of what is shown follows from these two."""
    return f'"g{row.generation}-n{used.nodes}"'


def _dry(asked: ChangeRequest, answer: Answer, tag: str) -> Reply:
    if answer.blockers:
        raise blocked(answer.blockers)
    shown = OperationView(
        id="",
        kind=asked.kind.value,
        subject=asked.subject,
        state="dry_run",
        opened_at=asked.asked_at,
        result=told(answer),
    )
    return Reply(shown, etag=tag, location=f"{PREFIX}{PATH}/{asked.subject}")


async def change_tenant(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a request on a tenant: its row, then its network on every device."""
    wanted = asked.arguments.get("generation")
    if wanted is not None:
        rows = {t.name: t.generation for t in await parts.store.tenants.list()}
        if rows.get(asked.subject) != wanted:
            return failed(
                Blocker(
                    reason=Reason.PRECONDITION,
                    subject=asked.subject,
                    detail="it changed since it was asked for",
                    unblock="Look at it, then ask again.",
                )
            )
    answer = await _do(parts, asked, dry_run=False)
    waits = answer.tenant is not None and answer.tenant.phase is not Phase.READY
    if answer.blockers and not (answer.written and waits):
        return Outcome(RequestState.FAILED, told(answer), answer.blockers)
    state = RequestState.UNFINISHED if answer.blockers else RequestState.DONE
    return Outcome(state, told(answer), answer.blockers)


async def _do(parts: ApiParts, asked: ChangeRequest, *, dry_run: bool) -> Answer:
    keeper, name, by = parts.keeper, asked.subject, asked.asked_by
    given = {k: v for k, v in asked.arguments.items() if k != "generation"}
    match asked.kind:
        case ChangeKind.TENANT_DELETE:
            return await keeper.delete(name, by=by, dry_run=dry_run)
        case ChangeKind.TENANT_SETTLE:
            return await keeper.settle(name)
        case ChangeKind.TENANT_SHRINK:
            fewer = Fewer.model_validate_json(json.dumps(given))
            if not fewer.accept_no_return and (no := await _unreturning(parts, name, fewer)):
                return no
            return await keeper.shrink(name, fewer.to, fewer.nodes, by=by, dry_run=dry_run)
    wanted = Wanted.model_validate_json(json.dumps(given))
    request = Request(name=name, **{k: getattr(wanted, k) for k in wanted.model_fields_set})
    known = any(t.name == name for t in await parts.store.tenants.list())
    do = keeper.change if known else keeper.create
    return await do(request, by=by, dry_run=dry_run)


async def _unreturning(parts: ApiParts, name: str, fewer: Fewer) -> Answer | None:
    """Return a refusal if one of the nodes that would leave could not serve again."""
    planned = await parts.keeper.shrink(name, fewer.to, fewer.nodes, dry_run=True)
    policy = policy_of(parts.settings)
    found = [b for n in planned.nodes for b in find_return_obstacles(n, parts.matrix, policy)]
    return Answer(planned.tenant, blockers=tuple(found)) if found else None


def told(answer: Answer) -> dict[str, object]:
    """An answer as JSON: the same from the API and from the command line."""
    return {
        "tenant": answer.tenant.model_dump(mode="json") if answer.tenant else None,
        "leaving": [n.id for n in answer.nodes],
        "steps": [{"device": s.device, "lines": list(s.lines)} for s in answer.steps],
        "blockers": [b.model_dump(mode="json") for b in answer.blockers],
        "written": answer.written,
    }


_DONE = {200: OperationView, 202: OperationView}
_REFUSED = {
    409: "Something stands in the way; each blocker has its remedy.",
    503: "A device does not answer.",
}
ROUTES = (
    Route("GET", PATH, "list_tenants", TAG, "All tenants, by name.", ANYBODY, list_all,
          {200: TenantPage}, query=Paging),
    Route("GET", PATH + "/{tenant}", "show_tenant", TAG, "One, with what it uses of its quota.",
          ANYBODY, show, {200: TenantView}),
    Route("GET", "/fabric/audit", "audit_tenants", TAG,
          "What of tenants' networks is not as it is written down; every device is read.",
          VIEWERS, audit, {200: TenantAudit}, heavy=True),
    Route("PUT", PATH + "/{tenant}", "put_tenant", TAG,
          "What the tenant is to be: it is made, or changed.", OPERATORS, put, _DONE,
          body=Wanted, entity=True, refusals=_REFUSED,
          example={"nodes": 4, "units": [[0, 0]], "quota": {"nodes": 8}}),
    Route("POST", PATH + "/{tenant}/shrink", "shrink_tenant", TAG,
          "Take nodes from it: they are drained, fenced and erased.", OPERATORS, shrink, _DONE,
          body=Fewer, entity=True, refusals=_REFUSED, example={"to": 6, "nodes": []}),
    Route("POST", PATH + "/{tenant}/settle", "settle_tenant", TAG,
          "Bring the fabric to what is written down, after an interruption or a silence.",
          OPERATORS, settle, _DONE, entity=True, refusals=_REFUSED),
    Route("DELETE", PATH + "/{tenant}", "delete_tenant", TAG,
          "Take its network away everywhere; refused while a node is in it.", OPERATORS, delete,
          _DONE, entity=True, refusals=_REFUSED),
)  # fmt: skip
