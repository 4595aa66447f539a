"""Routes of tenants: list, show, put (create or change), shrink, settle, delete; `dry_run` on each.

A PUT has the tenant's desired state; sent again it changes nothing. An operation that is
`unfinished` is recorded and not yet applied everywhere: its blockers give the reasons, and the same
request continues it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Set
from typing import Annotated, Any

from pydantic import Field

from provisioner.api.changes import Outcome, build_failure, decode_cursor, encode_cursor
from provisioner.api.operations import OperationState, OperationView, needs_approval
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_blocked, refuse_missing
from provisioner.api.route import (
    ANYBODY,
    OPERATORS,
    PREFIX,
    VIEWERS,
    Counted,
    Effect,
    Paging,
    Route,
)
from provisioner.api.scopes import require_scope
from provisioner.control.fabric.tenant_keeper import Answer
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import FileStorage
from provisioner.model.tenant import Outside, Phase, Quota, Tenant
from provisioner.model.tenant_network import SecurityGroup, TenantFilters
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.reclaiming import find_return_obstacles
from provisioner.planning.tenancy.allocation import Usage, count_usage, find_area, is_coming
from provisioner.planning.tenancy.placement import RACK, UNIT
from provisioner.planning.tenancy.spares import Exchange, propose_exchanges
from provisioner.planning.tenancy.tenants import Request

# ------------------------------------------------------------------------------
# Routes of the places of tenants: units and racks, exchanges to offer, InfiniBand partitions.


class TenantPlaces(Record):
    """The places of one tenant's nodes."""

    tenant: str
    nodes: int
    units: int = Field(description="Scalable units in which it stands.")
    racks: int = Field(description="Racks in which it stands.")
    wanted: int = Field(description="Nodes that it waits for or has.")


class UnitPlaces(Record):
    """The nodes of one scalable unit that no tenant has."""

    pod: int
    unit: int
    nodes: int
    free: int = Field(description="Certified nodes without a tenant.")
    coming: int = Field(description="Nodes without a tenant on their way to a certificate.")


class Placements(Record):
    """Where tenants stand, what is free, and exchanges that tenants may be offered."""

    tenants: tuple[TenantPlaces, ...]
    units: tuple[UnitPlaces, ...]
    exchanges: tuple[Exchange, ...]


async def show_placement(ask: Ask) -> Reply:
    """Return the places of all tenants, with the exchanges that would bring them together."""
    nodes = await ask.parts.store.nodes.list()
    tenants = await ask.parts.store.tenants.list()
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    rows = []
    for tenant in tenants:
        areas = [find_area(n) for n in hosts if n.tenant == tenant.name]
        rows.append(
            TenantPlaces(
                tenant=tenant.name,
                nodes=len(areas),
                units=len({a[:UNIT] for a in areas}),
                racks=len({a[:RACK] for a in areas}),
                wanted=tenant.nodes_wanted,
            )
        )
    units = _count_units(hosts, ask.parts.clock.now())
    exchanges = propose_exchanges(hosts, tenants)
    return Reply(Placements(tenants=tuple(rows), units=units, exchanges=exchanges))


def _count_units(hosts: list[Node], now: float) -> tuple[UnitPlaces, ...]:
    def count(chosen: list[Node]) -> Counter[tuple[int, int]]:
        return Counter((n.location.pod, n.location.scalable_unit) for n in chosen)

    total = count(hosts)
    free = count([n for n in hosts if n.state is State.CERTIFIED and not n.tenant])
    coming = count([n for n in hosts if is_coming(n, now)])
    return tuple(
        UnitPlaces(pod=pod, unit=unit, nodes=n, free=free[pod, unit], coming=coming[pod, unit])
        for (pod, unit), n in sorted(total.items())
    )


async def list_partitions(ask: Ask) -> Reply:
    listed = await ask.parts.keeper.list_partitions()
    if listed is None:
        raise refuse_missing("fabric with partitions")
    return Reply(listed)


async def show_filters(ask: Ask) -> Reply:
    """Read the filters of security groups on the tenant's ports from every leaf of it."""
    return Reply(await ask.parts.keeper.read_filters(await ask.read_tenant()))


PLACEMENTS_ROUTES = (
    Route(
        "GET",
        "/tenants/{tenant}/filters",
        "show_tenant_filters",
        "tenants",
        "Read the filters of a tenant's security groups on the ports of its nodes.",
        ANYBODY,
        show_filters,
        {200: TenantFilters},
        heavy=True,
    ),
    Route(
        "GET",
        "/placement",
        "show_placement",
        "tenants",
        "Show where tenants stand, what is free, and exchanges that would bring nodes together.",
        VIEWERS,
        show_placement,
        {200: Placements},
        heavy=True,
    ),
    Route(
        "GET",
        "/fabric/partitions",
        "list_partitions",
        "tenants",
        "List InfiniBand partitions with their tenants, and the keys of the subnet manager.",
        VIEWERS,
        list_partitions,
        {200: FabricPartitions},
        refusals={404: "This site has no InfiniBand fabric."},
        heavy=True,
    ),
)


TAG = "tenants"
PATH = "/tenants"
# of a new tenant, besides its VRF
DEFAULTS: Mapping[str, Any] = {
    "nodes": 0,
    "units": [],
    "picked": [],
    "spread": False,
    "outside": [],
    "storage": [],
    "file_storage": {},
    "security_groups": [],
    "quota": {},
}


class Wanted(Record):
    """The fields of a tenant that a person decides.

    Of a PUT, an omitted field gets the default of a new tenant; of a PATCH it stays, and null gives
    it the default. The VRF of a tenant never changes.
    """

    vrf: str | None = Field(
        default=None, max_length=64, description="Its VRF on every leaf, chosen at its creation."
    )
    nodes: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Certified nodes that it has or waits for."
    )
    units: tuple[tuple[int, int], ...] | None = Field(
        default=None, description="Its nodes are in these scalable units alone: [pod, unit]."
    )
    picked: tuple[Annotated[str, Field(max_length=128)], ...] | None = Field(
        default=None,
        max_length=10_000,
        description="Nodes chosen by a person: the tenant gets these before others.",
    )
    spread: bool | None = Field(
        default=None, description="Spread its nodes over units and racks; without, keep them close."
    )
    outside: tuple[Outside, ...] | None = Field(
        default=None, description="Networks outside of the fabric that its VRF reaches."
    )
    storage: tuple[str, ...] | None = Field(
        default=None, description="Prefixes of shared storage that its nodes reach."
    )
    file_storage: FileStorage | None = Field(
        default=None, description="Its shared file storage; an empty object: none."
    )
    security_groups: tuple[SecurityGroup, ...] | None = Field(
        default=None, description="The connections that may reach its nodes' ports."
    )
    quota: Quota | None = Field(default=None, description="The most that it may have.")


class Fewer(Record):
    """The body of a shrink."""

    to: int = Field(ge=0, le=1_000_000, description="Nodes that it keeps.")
    nodes: tuple[str, ...] = Field(
        (), max_length=10_000, description="Nodes to take; by default the daemon chooses."
    )
    accept_no_return: bool = Field(
        default=False, description="Also nodes that could not serve again once they are erased."
    )


class TenantView(Record):
    """A tenant, and the part of its quota in use."""

    tenant: Tenant
    usage: Usage


class TenantRow(Tenant):
    """A tenant in a list."""

    nodes: int = Field(0, description="Nodes that are allocated to it now.")


class TenantPage(Counted):
    """A part of the list, by name."""

    items: tuple[TenantRow, ...]
    next: str = ""


async def list_all(ask: Ask) -> Reply:
    """List all tenants; a tenant sees itself."""
    started = decode_cursor(ask.query.cursor, str)
    after = str(started[0]) if started else ""
    visible = [
        t
        for t in await ask.parts.store.tenants.list()
        if ask.caller.staff or t.name == ask.caller.tenant
    ]
    rows = [t for t in visible if t.name > after]
    held = Counter(n.tenant for n in await ask.parts.store.nodes.list())
    shown = tuple(TenantRow(**dict(t), nodes=held[t.name]) for t in rows[: ask.query.limit])
    more = len(rows) > len(shown)
    following = encode_cursor(shown[-1].name) if more else ""
    return Reply(TenantPage(items=shown, next=following, total=len(visible)))


async def show(ask: Ask) -> Reply:
    """Return one tenant, with the part of its quota in use."""
    row = await ask.read_tenant()
    used = count_usage(row, await ask.parts.store.nodes.list())
    return Reply(TenantView(tenant=row, usage=used), etag=_tag(row, used))


class DeviceLines(Record):
    """The lines that one device would receive."""

    device: str
    lines: tuple[str, ...]


class TenantAudit(Record):
    """The differences between tenants' networks and the records, device by device."""

    steps: tuple[DeviceLines, ...]
    blockers: tuple[Blocker, ...]


async def audit_networks(ask: Ask) -> Reply:
    """Compare every tenant's network with every device."""
    answer = await ask.parts.keeper.audit()
    steps = tuple(DeviceLines(device=s.device, lines=tuple(s.lines)) for s in answer.steps)
    return Reply(TenantAudit(steps=steps, blockers=answer.blockers))


async def put(ask: Ask) -> Reply:
    """Ask for a tenant with these fields and the defaults of a new one for the others."""
    return await _change(ask, ChangeKind.TENANT_PUT, fill_defaults(ask.body, frozenset(DEFAULTS)))


async def merge(ask: Ask) -> Reply:
    """Ask for some fields otherwise (RFC 7396); a tenant that is not there is created."""
    named = frozenset(ask.body.model_fields_set & DEFAULTS.keys())
    return await _change(ask, ChangeKind.TENANT_PUT, fill_defaults(ask.body, named))


def fill_defaults(wanted: Wanted, named: Set[str]) -> dict[str, Any]:
    """Return the fields of a body, and for `named` ones without a value the default."""
    body = {k: v for k, v in wanted.model_dump(mode="json").items() if v is not None}
    return {**{name: DEFAULTS[name] for name in named}, **body}


async def shrink_tenant(ask: Ask) -> Reply:
    return await _change(ask, ChangeKind.TENANT_SHRINK, ask.body.model_dump(mode="json"))


async def settle_tenant(ask: Ask) -> Reply:
    """Ask to bring the fabric to the recorded state."""
    return await _change(ask, ChangeKind.TENANT_SETTLE, {})


async def delete(ask: Ask) -> Reply:
    """Ask to remove a tenant's network everywhere."""
    return await _change(ask, ChangeKind.TENANT_DELETE, {})


async def _change(ask: Ask, kind: ChangeKind, arguments: dict[str, Any]) -> Reply:
    name = ask.read_word("tenant")
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
        request = ChangeRequest(
            kind=kind, subject=name, arguments=arguments, asked_by="", asked_at=ask.now
        )
        await require_scope(ask, request)
        waits = needs_approval(kind, ask.parts.settings.api_four_eyes)
        return _dry(request, await _do(ask.parts, request, dry_run=True), tag, waits=waits)
    return await ask.parts.works.submit_change(ask, kind, name, name, arguments)


def _tag(row: Tenant, used: Usage) -> str:
    """Return the ETag: the rest of the answer follows from these two."""
    return f'"g{row.generation}-n{used.nodes}"'


def _dry(asked: ChangeRequest, answer: Answer, tag: str, *, waits: bool) -> Reply:
    if answer.blockers:
        raise refuse_blocked(answer.blockers)
    shown = OperationView(
        id="",
        kind=asked.kind.value,
        subject=asked.subject,
        state=OperationState.DRY_RUN,
        opened_at=asked.asked_at,
        result={**write_answer(answer), "approval": waits},
    )
    return Reply(shown, etag=tag, location=f"{PREFIX}{PATH}/{asked.subject}")


async def change_tenant(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a request on a tenant: its row, then its network on every device."""
    generation = asked.arguments.get("generation")
    if generation is not None:
        rows = {t.name: t.generation for t in await parts.store.tenants.list()}
        if rows.get(asked.subject) != generation:
            return build_failure(
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
        return Outcome(RequestState.FAILED, write_answer(answer), answer.blockers)
    state = RequestState.UNFINISHED if answer.blockers else RequestState.DONE
    return Outcome(state, write_answer(answer), answer.blockers)


async def _do(parts: ApiParts, asked: ChangeRequest, *, dry_run: bool) -> Answer:
    keeper = parts.keeper
    name = asked.subject
    by = asked.asked_by
    fields = {k: v for k, v in asked.arguments.items() if k != "generation"}
    match asked.kind:
        case ChangeKind.TENANT_DELETE:
            return await keeper.delete(name, by=by, dry_run=dry_run)
        case ChangeKind.TENANT_SETTLE:
            return await keeper.settle(name)
        case ChangeKind.TENANT_SHRINK:
            fewer = Fewer.model_validate_json(json.dumps(fields))
            if not fewer.accept_no_return and (objection := await _unreturning(parts, name, fewer)):
                return objection
            return await keeper.shrink(name, fewer.to, fewer.nodes, by=by, dry_run=dry_run)
    desired = Wanted.model_validate_json(json.dumps(fields))
    request = Request(name=name, **{k: getattr(desired, k) for k in desired.model_fields_set})
    exists = any(t.name == name for t in await parts.store.tenants.list())
    do = keeper.change if exists else keeper.create
    return await do(request, by=by, dry_run=dry_run)


async def _unreturning(parts: ApiParts, name: str, fewer: Fewer) -> Answer | None:
    """Return a refusal if one of the nodes that would leave could not serve again."""
    planned = await parts.keeper.shrink(name, fewer.to, fewer.nodes, dry_run=True)
    policy = policy_of(parts.settings)
    obstacles = [b for n in planned.nodes for b in find_return_obstacles(n, parts.matrix, policy)]
    return Answer(planned.tenant, blockers=tuple(obstacles)) if obstacles else None


def write_answer(answer: Answer) -> dict[str, object]:
    """Return an answer as JSON: the same from the API and from the command line."""
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
    Route(
        "GET",
        PATH,
        "list_tenants",
        TAG,
        "List all tenants, by name.",
        ANYBODY,
        list_all,
        {200: TenantPage},
        query=Paging,
    ),
    Route(
        "GET",
        PATH + "/{tenant}",
        "show_tenant",
        TAG,
        "Show one tenant, with the part of its quota in use.",
        ANYBODY,
        show,
        {200: TenantView},
    ),
    Route(
        "GET",
        "/fabric/audit",
        "audit_tenants",
        TAG,
        "Compare tenants' networks on every device with the records.",
        VIEWERS,
        audit_networks,
        {200: TenantAudit},
        heavy=True,
    ),
    Route(
        "PUT",
        PATH + "/{tenant}",
        "put_tenant",
        TAG,
        "Create a tenant, or replace its fields: those left out get their defaults.",
        OPERATORS,
        put,
        _DONE,
        effect=Effect.LASTING,
        body=Wanted,
        entity=True,
        refusals=_REFUSED,
        example={"nodes": 4, "units": [[0, 0]], "quota": {"nodes": 8}},
    ),
    Route(
        "PATCH",
        PATH + "/{tenant}",
        "merge_tenant",
        TAG,
        "Change some fields of a tenant (a merge patch, RFC 7396), or create it.",
        OPERATORS,
        merge,
        _DONE,
        effect=Effect.LASTING,
        body=Wanted,
        entity=True,
        refusals=_REFUSED,
        example={"nodes": 8},
    ),
    Route(
        "POST",
        PATH + "/{tenant}/shrink",
        "shrink_tenant",
        TAG,
        "Take nodes from a tenant: they are drained, fenced and erased.",
        OPERATORS,
        shrink_tenant,
        _DONE,
        effect=Effect.LASTING,
        body=Fewer,
        entity=True,
        refusals=_REFUSED,
        example={"to": 6, "nodes": []},
    ),
    Route(
        "POST",
        PATH + "/{tenant}/settle",
        "settle_tenant",
        TAG,
        "Bring the fabric to the recorded state, after an interruption or an unreachable device.",
        OPERATORS,
        settle_tenant,
        _DONE,
        effect=Effect.LASTING,
        entity=True,
        refusals=_REFUSED,
    ),
    Route(
        "DELETE",
        PATH + "/{tenant}",
        "delete_tenant",
        TAG,
        "Delete a tenant and its network everywhere; refused while a node is in it.",
        OPERATORS,
        delete,
        _DONE,
        effect=Effect.LASTING,
        entity=True,
        refusals=_REFUSED,
    ),
)
