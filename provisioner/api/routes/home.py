"""Routes of the home page: the work that waits for people, the capacity, and a bulk retry.

The groups are counted by the database, so that the page costs the same for 8 nodes and for 65,536.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.fleet_atlas import Capacity
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.api.scopes import keep_in_scope
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import CampaignState
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node
from provisioner.planning.lifecycle.operator_requests import retry_node
from provisioner.planning.repair.case_policy import Party, describe_wait, find_party
from provisioner.ports import StaleWrite

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


class RetriedGroup(Record):
    """The group of blocked nodes, as the home page lists it."""

    reason: str = Field(min_length=1, max_length=64, description="Reason of the first blocker.")
    unblock: str = Field(max_length=2000, description="Remedy of the first blocker.")


async def show_home(ask: Ask) -> Reply:
    """Return the work that waits for people now."""
    store = ask.parts.store
    waiting = await store.home.get_waiting(ask.now)
    capacity = await ask.parts.atlas.count_capacity(store)
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
            for g in waiting.blocked
        ),
        cases=await _list_cases(ask),
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


async def _list_cases(ask: Ask) -> tuple[WaitingCase, ...]:
    rows = []
    for case in await ask.parts.store.cases.list_open():
        party = find_party(case, ask.now, ask.parts.settings.repair_confidence_min)
        if party is not None:
            line = describe_wait(case)
            rows.append(WaitingCase(case=case.id, node=case.node, party=party, work=line))
    return tuple(rows[:SHOWN_MAX])


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
