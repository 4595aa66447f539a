"""Routes of the home page: the work that waits for people, the capacity, and a bulk retry.

The groups are kept from row to row as nodes change, so that the page costs the same for 8 nodes and
for 65,536.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from aiohttp import web
from pydantic import ConfigDict, Field

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.console_pages import accepts_gzip
from provisioner.api.fleet_atlas import (
    CHANGED_MAX,
    Capacity,
    format_map,
    read_changes,
    select_tenant,
)
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Effect, Nothing, Route
from provisioner.api.scopes import keep_in_scope
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import CampaignState
from provisioner.model.case import Case
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.planning.lifecycle.next_step import (
    Party,
    describe_cause,
    describe_next_step,
    describe_wait,
    find_party,
)
from provisioner.planning.lifecycle.operator_requests import retry_node
from provisioner.ports import StaleWrite
from provisioner.store.repositories.atlas import MarkKind

# ------------------------------------------------------------------------------
# Routes of the whole fleet at once: by column, each distinct value written once, compressed.
#
# 65,536 nodes take some 2 MB in this form, and 200 KB compressed. A node's place is read once for
# each of its generations and cached; an answer is cached until the journal or a node changes.
#
# Certificates, alerts and waves are no field of a node: its record does not change when an alert is
# cleared or a day of its certificate is over. Their words are read anew for each answer.


NAMES_MAX = 200


class MapColumn(Record):
    """One field of every node: `index` points into `values`; a value may be several words."""

    values: tuple[tuple[str, ...], ...]
    index: tuple[int, ...]


class FleetMap(Record):
    """The fleet by column. `ports` has "RAIL SWITCH" for each cable."""

    seq: int = Field(
        description="Number of the journal's row that this is valid for; continue there."
    )
    change: int = Field(0, description="Number of the newest change of a node; see `since`.")
    nodes: tuple[str, ...]
    fields: dict[str, MapColumn]


class MapQuery(Nothing):
    """The selection of nodes."""

    nodes: str = Field(
        "", max_length=16_000, description="These only, by comma; at most 200. Without: all."
    )
    since: int = Field(
        -1,
        ge=-1,
        le=2**53,
        description="Only nodes that changed after this number (`change` of an earlier answer), at "
        "most 5,000: ask again from the new one until there is none. -1: all.",
    )


class MarkQuery(Nothing):
    """The kind of words."""

    by: MarkKind = Field(MarkKind.CERTIFICATE, description="Kind of the words.")


class FleetMarks(Record):
    """A word of each node, column by column: `index` points into `values`."""

    values: tuple[str, ...] = Field(description="Distinct words, by name.")
    nodes: tuple[str, ...] = Field(description="Nodes that have a word, by name.")
    index: tuple[int, ...] = Field(description="The place of each node's word in `values`.")


async def show(ask: Ask) -> web.Response:
    """Return the fleet, or a few of its nodes."""
    store = ask.parts.store
    tenant = None if ask.caller.staff else ask.caller.tenant
    names = [n for n in ask.query.nodes.split(",") if n][:NAMES_MAX]
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if ask.query.since >= 0:
        raw, _, _ = await read_changes(store, ask.query.since, tenant, CHANGED_MAX)
        return web.Response(body=raw, content_type="application/json", headers=headers)
    if names:
        seq = (await store.journal.get_head())[0]
        rows = [(n, f) for n, _, f in await store.atlas.list_facts(names)]
        raw = format_map(seq, rows if tenant is None else select_tenant(rows, tenant))
        return web.Response(body=raw, content_type="application/json", headers=headers)
    tag, raw, packed = await ask.parts.atlas.build_answer(store, tenant)
    headers["ETag"] = tag
    if accepts_gzip(ask.request):
        raw = packed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=raw, content_type="application/json", headers=headers)


async def show_marks(ask: Ask) -> Reply:
    rows = await ask.parts.store.atlas.list_marks(ask.query.by, ask.now)
    values = tuple(sorted({word for _, word in rows}))
    places = {word: place for place, word in enumerate(values)}
    marks = FleetMarks(
        values=values,
        nodes=tuple(node for node, _ in rows),
        index=tuple(places[word] for _, word in rows),
    )
    return Reply(marks)


CONSOLE_MAP_ROUTES = (
    Route(
        "GET",
        "/fleet/map",
        "show_fleet_map",
        "nodes",
        "Show every node with the fields for filters, column by column.",
        ANYBODY,
        show,
        {200: FleetMap},
        query=MapQuery,
    ),
    Route(
        "GET",
        "/fleet/marks",
        "show_fleet_marks",
        "nodes",
        "Show when certificates end, active alerts, or waves of running campaigns, for each node.",
        VIEWERS,
        show_marks,
        {200: FleetMarks},
        query=MarkQuery,
        heavy=True,
    ),
)


# ------------------------------------------------------------------------------
# Routes that need no token: the OpenAPI document, and a page that shows it.
#
# The page is three files of our own, with no script or style from elsewhere: it works without a
# network, under a policy that allows nothing else.


STATIC = Path(__file__).parents[1] / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Document(Record):
    """An OpenAPI 3.1 document."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(Record):
    """A page for people, or a part of one."""


def read_static_files() -> Mapping[str, tuple[str, bytes]]:
    """Return the files of the page: name -> (type, content)."""
    return {f.name: (TYPES[f.suffix], f.read_bytes()) for f in sorted(STATIC.iterdir())}


async def serve_document(ask: Ask) -> web.Response:
    """Return the OpenAPI document, built once, when the first client asks."""
    content = await asyncio.to_thread(ask.parts.write_document)
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=content, content_type="application/json", headers=headers)


async def serve_page(ask: Ask) -> web.Response:
    """Return a file of the page; without a name, the page itself."""
    name = ask.request.match_info.get("file", "docs.html")
    file = ask.parts.static.get(name)
    if file is None:
        raise refuse_missing("page")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return web.Response(body=file[1], content_type=file[0], charset="utf-8", headers=headers)


PAGES_ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        "show_openapi",
        "document",
        "Return this document.",
        frozenset(),
        serve_document,
        {200: Document},
    ),
    Route(
        "GET",
        "/docs",
        "show_docs",
        "document",
        "Return a page that shows this document.",
        frozenset(),
        serve_page,
        {200: Page},
        media="text/html",
    ),
    Route(
        "GET",
        "/docs/{file}",
        "show_docs_file",
        "document",
        "Return script and style of that page.",
        frozenset(),
        serve_page,
        {200: Page},
        media="text/*",
    ),
)


TAG = "fleet"
SHOWN_MAX = 100  # rows of each list
HALTED = (CampaignState.STOPPED, CampaignState.PAUSED)
AT_ONCE = 200  # nodes of one transaction


class BlockedNodes(Record):
    """Nodes whose first blocker has one reason and one remedy."""

    reason: str
    unblock: str = Field(description="The remedy, as an instruction.")
    detail: str = Field(description="The blocker's sentence of one of them.")
    nodes: int
    retryable: int = Field(description="Nodes in quarantine, which may try again.")
    example: str = Field(description="Name of one of them.")


class WaitingCase(Record):
    """A repair case that waits for a party."""

    case: str
    node: str
    party: Party
    work: str = Field(description="The work or the condition, in one line.")
    cause: str = Field("", description="The cause, as the case's and the node's pages have it.")
    step: str = Field("", description="The next step, as those pages have it.")


class WaitingApproval(Record):
    """A request that waits for a second person."""

    request: str
    kind: ChangeKind
    subject: str
    asked_by: str


class AlertCount(Record):
    """Active alerts of one name whose effect no person has suspended."""

    id: str
    classification: str
    alerts: int
    nodes: int
    example: str = Field(description="Name of one of the nodes.")


class EndingCertificate(Record):
    """A certificate of a certified or released node that ends within a week."""

    node: str
    certificate: str
    left_s: float = Field(description="Seconds until it expires; below 0: it has expired.")


class HaltedCampaign(Record):
    """A campaign that admits no node until a person decides."""

    campaign: str
    release: str
    state: CampaignState
    reason: str


class ShortTenant(Record):
    """A tenant with fewer nodes than it waits for."""

    tenant: str
    nodes: int
    wanted: int


class Home(Record):
    """The work that waits for people. Every list is empty when all is well."""

    blocked: tuple[BlockedNodes, ...]
    cases: tuple[WaitingCase, ...]
    approvals: tuple[WaitingApproval, ...]
    alerts: tuple[AlertCount, ...]
    certificates: tuple[EndingCertificate, ...]
    campaigns: tuple[HaltedCampaign, ...]
    tenants: tuple[ShortTenant, ...]
    capacity: Capacity
    totals: dict[str, int] = Field(
        default_factory=dict, description="Rows of the lists that are cut here: cases."
    )


class RetriedGroup(Record):
    """The group of blocked nodes, as the home page lists it."""

    reason: str = Field(min_length=1, max_length=64, description="Reason of the first blocker.")
    unblock: str = Field(max_length=2000, description="Remedy of the first blocker.")


async def show_home(ask: Ask) -> Reply:
    """Return the work that waits for people now."""
    store = ask.parts.store
    waiting = await store.home.get_waiting(ask.now)
    capacity = await ask.parts.atlas.count_capacity(store)
    open_cases = await store.cases.list_open()
    cases = _list_cases(ask, open_cases)
    blocked = await ask.parts.atlas.list_blocked(store, {case.node for case in open_cases})
    view = Home(
        blocked=tuple(
            BlockedNodes(
                reason=g.reason,
                unblock=g.unblock,
                detail=g.detail,
                nodes=g.nodes,
                retryable=g.retryable,
                example=g.example,
            )
            for g in blocked
        ),
        cases=tuple(cases[:SHOWN_MAX]),
        totals={"cases": len(cases)},
        approvals=await _list_approvals(ask),
        alerts=tuple(
            AlertCount(
                id=g.id,
                classification=g.classification,
                alerts=g.alerts,
                nodes=g.nodes,
                example=g.example,
            )
            for g in waiting.alerts
        ),
        certificates=tuple(
            EndingCertificate(node=c.node, certificate=c.certificate, left_s=c.left_s)
            for c in waiting.certificates
        ),
        campaigns=tuple(
            HaltedCampaign(campaign=c.id, release=c.target, state=c.state, reason=c.reason)
            for c in await store.campaigns.list()
            if c.state in HALTED
        ),
        tenants=await _list_short_tenants(ask),
        capacity=capacity,
    )
    return Reply(view)


def _list_cases(ask: Ask, cases: Iterable[Case]) -> list[WaitingCase]:
    rows = []
    for case in cases:
        party = find_party(case, ask.now, ask.parts.settings.repair_confidence_min)
        if party is not None:
            line = describe_wait(case)
            rows.append(
                WaitingCase(
                    case=case.id,
                    node=case.node,
                    party=party,
                    work=line,
                    cause=describe_cause(case),
                    step=describe_next_step(case),
                )
            )
    return rows


async def _list_approvals(ask: Ask) -> tuple[WaitingApproval, ...]:
    rows = await ask.parts.store.requests.list_page(
        before=0, limit=SHOWN_MAX, states=[RequestState.WAITING], tenant=None
    )
    limit_s = ask.parts.settings.api_approval_h * 3600
    return tuple(
        WaitingApproval(request=f"r{r.id}", kind=r.kind, subject=r.subject, asked_by=r.asked_by)
        for r in rows
        if ask.now - r.asked_at <= limit_s
    )


async def _list_short_tenants(ask: Ask) -> tuple[ShortTenant, ...]:
    counts = Counter[str]()
    for kind, _, _, tenant, number in await ask.parts.store.nodes.count_groups(None):
        if kind == "host":
            counts[tenant] += number
    return tuple(
        ShortTenant(tenant=t.name, nodes=counts[t.name], wanted=t.nodes_wanted)
        for t in await ask.parts.store.tenants.list()
        if counts[t.name] < t.nodes_wanted
    )


async def retry_group(ask: Ask) -> Reply:
    """Ask to take all nodes of a group out of quarantine."""
    body: RetriedGroup = ask.body
    arguments = body.model_dump(mode="json")
    return await ask.parts.works.submit_change(
        ask, ChangeKind.NODE_RETRY_GROUP, body.reason, "", arguments
    )


async def change_group(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a bulk retry: some nodes in each transaction, each with the event of it."""
    names = await _list_group(parts, asked)
    event = RequestCarriedOut(
        request="retry", by=asked.asked_by, id=asked.id, approved=asked.decided_by
    )
    retried = 0
    for begin in range(0, len(names), AT_ONCE):
        rows = await parts.store.nodes.list_named(names[begin : begin + AT_ONCE])
        now = parts.clock.now()
        changed = [retry_node(rows[name], now) for name in sorted(rows)]
        retried += await _save_each(parts, [c for c in changed if not isinstance(c, str)], event)
        await asyncio.sleep(0)
    if not names:
        detail = "no node waits for it any more"
        return build_objection(asked.subject, detail, "Look at the list of blocked nodes.")
    return Outcome(
        RequestState.DONE, {"retried": retried, "changed_meanwhile": len(names) - retried}
    )


async def _save_each(parts: ApiParts, nodes: list[Node], event: RequestCarriedOut) -> int:
    """Save nodes in one transaction; one by one if a node of them has changed meanwhile."""
    now = parts.clock.now()
    try:
        await parts.store.nodes.save_requested(nodes, event, now)
    except StaleWrite:
        if len(nodes) == 1:
            return 0
        return sum([await _save_each(parts, [node], event) for node in nodes])
    return len(nodes)


async def foresee_group(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the nodes that would leave quarantine."""
    names = await _list_group(parts, asked)
    shown = ", ".join(names[:20]) + (" and others" if len(names) > 20 else "")
    return Forecast((f"{len(names)} nodes leave quarantine and go on: {shown}.",))


async def _list_group(parts: ApiParts, asked: ChangeRequest) -> list[str]:
    arguments = asked.arguments
    names = await parts.store.home.list_retryable(
        str(arguments["reason"]), str(arguments["unblock"])
    )
    return await keep_in_scope(parts, asked, names)


ROUTES = (
    Route(
        "GET",
        "/home",
        "show_home",
        TAG,
        "Show the work that waits for people, and the capacity by unit and rail.",
        VIEWERS,
        show_home,
        {200: Home},
        heavy=True,
    ),
    Route(
        "POST",
        "/blocked/retry",
        "retry_blocked_nodes",
        TAG,
        "Let all quarantined nodes with one reason and remedy try again.",
        OPERATORS,
        retry_group,
        {200: OperationView, 202: OperationView},
        effect=Effect.MOMENTARY,
        body=RetriedGroup,
        refusals={409: "No node is blocked by it any more."},
        example={"reason": "check_failed", "unblock": "Reseat it."},
    ),
)
