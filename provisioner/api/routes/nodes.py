"""Routes of nodes and switches: lists, one node, its parts, plan, history, and requests on it.

A tenant sees its own nodes, without the addresses of their BMCs and without the staff's text about
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator

from provisioner.api.changes import (
    Forecast,
    Outcome,
    build_failure,
    build_objection,
    decode_cursor,
    encode_cursor,
    find_node,
)
from provisioner.api.fleet_atlas import Picked, select_nodes
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import (
    ANYBODY,
    OPERATORS,
    OPERATORS_AND_TENANTS,
    VIEWERS,
    Counted,
    Effect,
    Paging,
    Reclaim,
    Retry,
    Route,
    format_etag,
)
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.adoption.capability import Capability
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.location import Location, Port
from provisioner.model.node import (
    BmcRef,
    BoardTpm,
    Boots,
    Node,
    NodeKind,
    Origin,
    Placement,
    State,
    TenantData,
)
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.lifecycle.next_step import NextStep, find_next_step, settle_blockers
from provisioner.planning.lifecycle.operator_requests import reclaim_node, retry_node
from provisioner.planning.lifecycle.reclaiming import describe_reclaim, find_return_obstacles
from provisioner.planning.lifecycle.timeline import find_failed, name_action
from provisioner.planning.release.adoption import GRANT_REMEDY
from provisioner.store.repositories.nodes import COLUMNS

# ------------------------------------------------------------------------------
# Routes of a node's tags: words that people search by. No decision of the daemon reads them.
#
# PUT replaces all tags. PATCH is a merge patch (RFC 7396) of an object whose members are the tags:
# true adds one, null removes one.


NODE_TAGS_TAG = "nodes"
TAGS_MAX = 32
PATTERN = r"^[a-z0-9][a-z0-9._:/-]{0,62}$"
_TAG = re.compile(PATTERN, re.ASCII)


class TagList(Record):
    """The tags of a node."""

    tags: tuple[str, ...] = Field(
        (),
        max_length=TAGS_MAX,
        description="Small letters, digits and . _ : / -, at most 63 each: loan, team:vision.",
    )

    @field_validator("tags")
    @classmethod
    def _check(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"{tag[:63]!r} is no tag: it has to match {PATTERN}")
        return tuple(sorted(set(tags)))


class TagPatch(Record):
    """A merge patch of a node's tags."""

    tags: dict[str, bool | None] = Field(
        max_length=TAGS_MAX, description="true adds a tag; null or false removes it."
    )

    @field_validator("tags")
    @classmethod
    def _check(cls, tags: dict[str, bool | None]) -> dict[str, bool | None]:
        TagList(tags=tuple(tags))
        return tags


async def show_tags(ask: Ask) -> Reply:
    node = await ask.read_node()
    return Reply(TagList(tags=node.tags), etag=format_etag(node.generation))


async def replace_tags(ask: Ask) -> Reply:
    """Ask for these tags instead of the present ones."""
    return await _ask(ask, {"replace": list(ask.body.tags)})


async def merge_tags(ask: Ask) -> Reply:
    return await _ask(ask, {"merge": ask.body.tags})


async def _ask(ask: Ask, arguments: dict[str, object]) -> Reply:
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    return await ask.parts.works.submit_change(ask, ChangeKind.NODE_TAG, node.id, "", arguments)


async def change_tags(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    tags = merge(node, asked)
    if len(tags) > TAGS_MAX:
        detail = f"it would have {len(tags)} tags, more than {TAGS_MAX}"
        return build_objection(node.id, detail, "Remove some in the same request.")
    if tags != node.tags:
        event = RequestCarriedOut(
            request="tag", by=asked.asked_by, id=asked.id, approved=asked.decided_by
        )
        changed = node.model_copy(update={"tags": tags})
        await parts.store.nodes.save_requested([changed], event, parts.clock.now())
    return Outcome(RequestState.DONE, {"tags": list(tags)})


async def foresee_tags(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    node = await parts.store.nodes.get(asked.subject)
    tags = () if node is None else merge(node, asked)
    return Forecast((f"{asked.subject} has the tags: {', '.join(tags) or 'none'}.",))


def merge(node: Node, asked: ChangeRequest) -> tuple[str, ...]:
    """Return the tags after a request."""
    arguments = asked.arguments
    if "replace" in arguments:
        return tuple(arguments["replace"])
    patch = arguments["merge"]
    others = {tag for tag in node.tags if tag not in patch}
    return tuple(sorted(others | {tag for tag, there in patch.items() if there}))


NODE_TAGS_ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/tags",
        "show_node_tags",
        NODE_TAGS_TAG,
        "Show a node's tags.",
        VIEWERS,
        show_tags,
        {200: TagList},
        entity=True,
    ),
    Route(
        "PUT",
        "/nodes/{node}/tags",
        "replace_node_tags",
        NODE_TAGS_TAG,
        "Replace a node's tags; nodes are searched by `where=tag=...`.",
        OPERATORS,
        replace_tags,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=TagList,
        entity=True,
        example={"tags": ["loan", "team:vision"]},
    ),
    Route(
        "PATCH",
        "/nodes/{node}/tags",
        "merge_node_tags",
        NODE_TAGS_TAG,
        "Add and remove tags of a node (a merge patch, RFC 7396).",
        OPERATORS,
        merge_tags,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=TagPatch,
        entity=True,
        example={"tags": {"loan": True, "burn-in": None}},
    ),
)


TAG = "nodes"


class NodeView(Record):
    """A node in the form that its caller may see."""

    id: str
    kind: NodeKind
    generation: int
    state: State
    entered_at: Instant
    placement: Placement
    vrf: str
    release: str
    profile: str
    tenant: str
    certificate: str
    location: Location
    ports: tuple[Port, ...]
    origin: Origin = Origin.TAKEN_IN
    boots: Boots
    blockers: tuple[Blocker, ...] = ()
    note: str = ""
    attempts: int = 0
    address: str = ""
    bmcs: tuple[BmcRef, ...] = ()
    tags: tuple[str, ...] = ()
    tpm: BoardTpm | None = None
    failed_action: str = Field(
        "", description="Action that failed last, of a blocked node: `actions/ID` opens it."
    )
    power_actions: tuple[str, ...] = Field(
        (), description="What the caller may do with its power: on, off, cycle. Not in lists."
    )
    next_step: NextStep | None = Field(
        None, description="Cause and next step, for the staff; null in lists without a blocker."
    )


class NodePage(Counted):
    """A page of a list, by id."""

    items: tuple[NodeView, ...]
    next: str = Field("", description="Cursor of the next page; empty: this is the last one.")


class NodeQuery(Paging):
    """The selection of nodes."""

    where: str = Field(
        "", max_length=2000, description="An expression: `state=released and not tenant=red`."
    )


class Count(Record):
    """The number of nodes with these values in common."""

    kind: NodeKind
    state: State
    release: str
    tenant: str
    nodes: int


class Summary(Record):
    """Show the fleet in numbers."""

    nodes: int
    counts: tuple[Count, ...]


class Fleet(Record):
    """Every node in one line each, without its body: for a map of the whole fleet."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def build_view(node: Node, *, staff: bool, step: NextStep | None = None) -> NodeView:
    """Return a node in the form that the caller may see."""
    blockers = node.blockers if step is None else settle_blockers(node.blockers, step)
    return NodeView.model_construct(  # a stored node was validated when it was read
        id=node.id,
        kind=node.kind,
        generation=node.generation,
        state=node.state,
        entered_at=node.entered_at,
        placement=node.placement,
        vrf=node.vrf,
        release=node.release,
        profile=node.profile,
        tenant=node.tenant,
        certificate=node.certificate,
        location=node.location,
        ports=node.ports,
        origin=node.origin,
        boots=node.boots,
        blockers=blockers if staff else (),
        note=node.note if staff else "",
        attempts=node.attempts if staff else 0,
        address=node.address if staff else "",
        bmcs=node.bmcs if staff else (),
        tags=node.tags if staff else (),
        tpm=node.tpm if staff else None,
        next_step=step if staff else None,
    )


async def find_steps(ask: Ask, nodes: Sequence[Node]) -> dict[str, NextStep]:
    if not ask.caller.staff or not nodes:
        return {}
    book = ask.parts.store.cases
    if len(nodes) == 1:
        cases = {nodes[0].id: await book.get_open(nodes[0].id)}
    else:
        cases = {case.node: case for case in await book.list_open()}
    least = ask.parts.settings.repair_confidence_min
    return {n.id: find_next_step(n, cases.get(n.id), ask.now, least) for n in nodes}


async def _page(ask: Ask, kind: NodeKind | None) -> Reply:
    started = decode_cursor(ask.query.cursor, str)
    selection = Picked(ask.query.where, kind, "" if ask.caller.staff else ask.caller.tenant)
    after = str(started[0]) if started else ""
    selected, last = await select_nodes(
        ask.parts.store, ask.parts.matrix, ask.now, selection, after, ask.query.limit
    )
    steps = await find_steps(ask, [n for n in selected if n.blockers])
    shown = tuple(build_view(n, staff=ask.caller.staff, step=steps.get(n.id)) for n in selected)
    following = encode_cursor(last) if last else ""
    total = await _count(ask, kind, None if started or last else len(shown))
    return Reply(NodePage.model_construct(items=shown, next=following, total=total))


async def _count(ask: Ask, kind: NodeKind | None, shown: int | None) -> int | None:
    """Return the nodes of the whole list; `shown`: those of a first page that is the only one."""
    if ask.query.where.strip():
        return shown
    groups = await ask.parts.store.nodes.count_groups(
        None if ask.caller.staff else ask.caller.tenant
    )
    return sum(row[-1] for row in groups if kind is None or row[0] == kind)


async def list_nodes(ask: Ask) -> Reply:
    return await _page(ask, None)


async def list_switches(ask: Ask) -> Reply:
    return await _page(ask, NodeKind.SWITCH)


async def show(ask: Ask) -> Reply:
    node = await ask.read_node()
    step = (await find_steps(ask, [node])).get(node.id)
    changes: dict[str, object] = {"power_actions": ask.list_power_actions(node)}
    if ask.caller.staff and node.blockers:
        failed = find_failed(await ask.parts.store.operations.list_entries(node.id))
        changes["failed_action"] = "" if failed is None else name_action(failed)
    view = build_view(node, staff=ask.caller.staff, step=step).model_copy(update=changes)
    return Reply(view, etag=format_etag(node.generation))


async def show_switch(ask: Ask) -> Reply:
    node = await ask.read_node(ask.read_word("switch"))
    if node.kind is not NodeKind.SWITCH:
        raise refuse_missing("switch")
    return Reply(build_view(node, staff=ask.caller.staff), etag=format_etag(node.generation))


async def show_summary(ask: Ask) -> Reply:
    """Return the numbers of the fleet, or of the tenant's part of it."""
    tenant = None if ask.caller.staff else ask.caller.tenant
    rows = await ask.parts.store.nodes.count_groups(tenant)
    names = ("kind", "state", "release", "tenant", "nodes")
    read = [r for r in rows if r[0] in set(NodeKind) and r[1] in set(State)]  # others are damaged
    counts = tuple(Count(**dict[str, Any](zip(names, row, strict=True))) for row in read)
    return Reply(Summary(nodes=sum(row[-1] for row in rows), counts=counts))


async def show_fleet(ask: Ask) -> Reply:
    tenant = None if ask.caller.staff else ask.caller.tenant
    rows = await ask.parts.store.nodes.list_columns(tenant)
    return Reply(Fleet.model_construct(columns=COLUMNS, rows=tuple(rows)))


async def ask_retry(ask: Ask) -> Reply:
    """Ask to take a node out of quarantine."""
    return await _ask_nodes(ask, ChangeKind.NODE_RETRY, ask.body.model_dump(exclude_defaults=True))


async def ask_reclaim(ask: Ask) -> Reply:
    """Ask to take a node back from its tenant; a tenant gives back its own."""
    return await _ask_nodes(ask, ChangeKind.NODE_RECLAIM, ask.body.model_dump(mode="json"))


async def _ask_nodes(ask: Ask, kind: ChangeKind, arguments: dict[str, object]) -> Reply:
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    if ask.request.headers.get("If-Match", "*").strip() != "*":
        arguments["generation"] = node.generation
    if ask.caller.roles == {Role.TENANT}:
        arguments["tenant"] = ask.caller.tenant
    return await ask.parts.works.submit_change(ask, kind, node.id, node.tenant, arguments)


async def change_node(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a request on a node: one transaction with the journal's row of it."""
    now = parts.clock.now()
    planned = await _plan(parts, asked, now)
    if isinstance(planned, Outcome):
        return planned
    _node, changed, obstacles = planned
    # a tenant's data is erased at its request, whether or not the host can serve again
    agreed = asked.arguments.get("accept_no_return") or "tenant" in asked.arguments
    if obstacles and not agreed:
        return build_failure(*obstacles)
    word = asked.kind.value.partition(".")[2]
    event = RequestCarriedOut(
        request=word, by=asked.asked_by, id=asked.id, approved=asked.decided_by
    )
    await parts.store.nodes.save_requested([changed], event, now)
    return Outcome(RequestState.UNDER_WAY, {"state": changed.state.value})


async def foresee_node(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    now = parts.clock.now()
    planned = await _plan(parts, asked, now)
    if isinstance(planned, Outcome):
        return Forecast(blockers=planned.blockers)
    node, changed, obstacles = planned
    if asked.kind is ChangeKind.NODE_RETRY:
        more = " The TPM that is read next is enrolled." if node.tpm and not changed.tpm else ""
        if changed.tenant_data is TenantData.ERASE:
            more += f" The data of {node.served} on it is erased."
        if changed.tenant_data is TenantData.KEEP:
            more += f" It is not erased: it is certified again and returns to {changed.tenant}."
        line = f"{node.id} leaves {node.state} and goes on as {changed.state}.{more}"
        return Forecast((line,))
    lines = describe_reclaim(node, changed, policy_of(parts.settings), now)
    if asked.arguments.get("accept_no_return"):
        return Forecast((*lines, *(f"{b.subject}: {b.detail}" for b in obstacles)))
    return Forecast(lines, obstacles)


async def _plan(
    parts: ApiParts, asked: ChangeRequest, now: float
) -> tuple[Node, Node, tuple[Blocker, ...]] | Outcome:
    """Return the node, its state after the request, and why it could not serve again then.

    An outcome is the reason why the request cannot be carried out at all.
    """
    node = await find_node(parts, asked)
    arguments = asked.arguments
    if isinstance(node, Outcome):
        return node
    if arguments.get("generation", node.generation) != node.generation:
        return build_objection(
            node.id, "it changed since it was asked for", "Look, then ask again."
        )
    if arguments.get("tenant", node.tenant) != node.tenant:
        return build_objection(node.id, "it is another tenant's now", "Ask for your own nodes.")
    if asked.kind is ChangeKind.NODE_RETRY:
        changed = retry_node(
            node,
            now,
            new_board=bool(arguments.get("new_board")),
            admit_tpm=str(arguments.get("admit_tpm") or ""),
            tenant_data=TenantData(arguments.get("tenant_data") or ""),
        )
    else:
        act = "take it back from its tenant"
        if why := await parts.context.refuse_act(node, Capability.CERTIFICATION, act):
            return build_objection(node.id, why, GRANT_REMEDY)
        changed = reclaim_node(node, now, for_repair=bool(arguments.get("for_repair")))
    if isinstance(changed, str):
        return build_objection(node.id, changed, "See what it waits for: `provisioner explain`.")
    if asked.kind is ChangeKind.NODE_RETRY:
        return node, changed, ()
    policy = policy_of(parts.settings)
    return node, changed, find_return_obstacles(changed, parts.matrix, policy)


ROUTES = (
    Route(
        "GET",
        "/nodes",
        "list_nodes",
        TAG,
        "List hosts and switches, by id.",
        ANYBODY,
        list_nodes,
        {200: NodePage},
        query=NodeQuery,
    ),
    Route(
        "GET",
        "/nodes/{node}",
        "show_node",
        TAG,
        "Show one node: its state, and its blocker if it has one.",
        ANYBODY,
        show,
        {200: NodeView},
        entity=True,
    ),
    Route(
        "POST",
        "/nodes/{node}/retry",
        "retry_node",
        TAG,
        "Let a quarantined node try again.",
        OPERATORS,
        ask_retry,
        {200: OperationView, 202: OperationView},
        effect=Effect.MOMENTARY,
        lasting_with=frozenset({"new_board", "admit_tpm", "tenant_data"}),
        body=Retry,
        example={"new_board": True},
        entity=True,
        refusals={409: "It is not quarantined."},
    ),
    Route(
        "POST",
        "/nodes/{node}/reclaim",
        "reclaim_node",
        TAG,
        "Take a released node back: it is drained, fenced, erased. A tenant gives back its own.",
        OPERATORS_AND_TENANTS,
        ask_reclaim,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Reclaim,
        entity=True,
        refusals={409: "It is not released."},
        example={"for_repair": False},
    ),
    Route(
        "GET",
        "/switches",
        "list_switches",
        "switches",
        "List switches, by id.",
        ANYBODY,
        list_switches,
        {200: NodePage},
        query=NodeQuery,
    ),
    Route(
        "GET",
        "/switches/{switch}",
        "show_switch",
        "switches",
        "Show one switch.",
        ANYBODY,
        show_switch,
        {200: NodeView},
        entity=True,
    ),
    Route(
        "GET",
        "/summary",
        "summarise",
        TAG,
        "Show the fleet in numbers.",
        ANYBODY,
        show_summary,
        {200: Summary},
    ),
    Route(
        "GET",
        "/fleet",
        "show_fleet",
        TAG,
        "List every node in one line, for a map.",
        ANYBODY,
        show_fleet,
        {200: Fleet},
    ),
)
