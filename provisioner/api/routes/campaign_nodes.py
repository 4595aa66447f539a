"""Routes of a running campaign: defer, skip or retry a node, accept a worse metric, rehearse.

A tenant may defer its own nodes; other callers cannot learn whether a campaign has such a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field

from provisioner.api.changes import Outcome, build_failure, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import OPERATORS, OPERATORS_AND_TENANTS, VIEWERS, Effect, Route
from provisioner.api.routes.campaigns import TAG, Because, check_seen, read_campaign, requests_of
from provisioner.control.campaigns.campaign_requests import Answer, CampaignRequests
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import Instant
from provisioner.planning.campaigns.campaign_report import Report, build_report
from provisioner.ports.store import RehearsalFailed

HOSTS_MAX = 64  # of one twin


class CampaignReport(Report):
    """The results of a campaign so far."""


class Deferral(Record):
    """The body of a deferral."""

    until: Instant = Field(description="Time until which it is put off, RFC 3339.")


class Metric(Record):
    """The body of an acceptance."""

    metric: str = Field(
        min_length=1, max_length=128, description="The metric's name in the report."
    )


class Rehearsal(Record):
    """The body of a rehearsal."""

    nodes: int = Field(8, ge=1, le=HOSTS_MAX, description="Number of hosts of the twin.")


async def show_report(ask: Ask) -> Reply:
    """Return the campaign's results so far."""
    campaign = await read_campaign(ask)
    made = build_report(campaign, await ask.parts.store.campaigns.list_rows(campaign.id))
    return Reply(CampaignReport(**dict(made)))


def handle_node_change(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    async def handle(ask: Ask) -> Reply:
        node = await ask.read_node()
        campaign = await read_campaign(ask)
        rows = await ask.parts.store.campaigns.list_rows(campaign.id)
        if node.id not in {r.node for r in rows}:
            raise refuse_missing("node")
        check_seen(ask, campaign)
        arguments = {} if ask.body is None else ask.body.model_dump(mode="json")
        tenant = "" if ask.caller.staff else ask.caller.tenant
        arguments |= {"node": node.id, "tenant": tenant}
        return await ask.parts.works.submit_change(ask, kind, campaign.id, tenant, arguments)

    return handle


def handle_campaign_change(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    """Return the handler that asks for one kind of change of a whole campaign."""

    async def handle(ask: Ask) -> Reply:
        campaign = await read_campaign(ask)
        check_seen(ask, campaign)
        arguments = ask.body.model_dump(mode="json")
        return await ask.parts.works.submit_change(ask, kind, campaign.id, "", arguments)

    return handle


async def change_node(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of a campaign's node."""
    arguments = asked.arguments
    # the change may be approved later: the node must still be that tenant's
    if arguments.get("tenant"):
        node = await parts.store.nodes.get(str(arguments["node"]))
        if node is None or node.tenant != arguments["tenant"]:
            return build_objection(
                str(arguments["node"]), "it is not yours any more", "Look at your nodes."
            )
    try:
        answer = await _do(requests_of(parts), asked)
    except InputError as error:
        return build_objection(asked.subject, error.problem, error.remedy)
    if answer.blockers:
        return build_failure(*answer.blockers)
    assert answer.campaign is not None
    result: dict[str, Any] = {"campaign": answer.campaign.id, "state": answer.campaign.state.value}
    for row in answer.rows:
        result |= {"node": row.node, "progress": row.progress.state.value}
    return Outcome(RequestState.DONE, result)


async def _do(requests: CampaignRequests, asked: ChangeRequest) -> Answer:
    name = asked.subject
    by = asked.asked_by
    arguments = asked.arguments
    match asked.kind:
        case ChangeKind.CAMPAIGN_DEFER:
            return await requests.defer(name, arguments["node"], float(arguments["until"]), by)
        case ChangeKind.CAMPAIGN_SKIP:
            reason = arguments["reason"] or "left out by request"
            return await requests.skip(name, arguments["node"], reason, by)
        case ChangeKind.CAMPAIGN_AGAIN:
            return await requests.retry_node(name, arguments["node"], by)
    assert asked.kind is ChangeKind.CAMPAIGN_ACCEPT
    return await requests.accept(name, arguments["metric"], by)


async def rehearse_campaign(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Run a campaign on a twin, in another process; the operation holds the result."""
    if parts.rehearsals is None:
        remedy = "Run: provisioner campaign rehearse"
        return build_objection(asked.subject, "this process has no simulator", remedy)
    requests = requests_of(parts)
    try:
        campaign = await requests.find_campaign(asked.subject)
        rows = (await requests.survey(campaign)).rows
        hosts = int(asked.arguments["nodes"])
        result = await parts.rehearsals.rehearse(parts.store, campaign, rows, hosts)
    except InputError as error:
        return build_objection(asked.subject, error.problem, error.remedy)
    except RehearsalFailed as error:
        return build_objection(asked.subject, str(error), "Look at the daemon's log.")
    return Outcome(RequestState.DONE, result)


def _on_node(
    word: str, kind: ChangeKind, effect: Effect, summary: str, body: type[Record] | None
) -> Route:
    tenants = kind is ChangeKind.CAMPAIGN_DEFER
    examples: dict[str, dict[str, object]] = {
        "defer": {"until": "2027-01-15T08:00:00Z"},
        "skip": {"reason": "it is on loan"},
    }
    return Route(
        "POST",
        f"/campaigns/{{campaign}}/nodes/{{node}}/{word}",
        f"{word}_campaign_node",
        TAG,
        summary,
        OPERATORS_AND_TENANTS if tenants else OPERATORS,
        handle_node_change(kind),
        {200: OperationView, 202: OperationView},
        effect=effect,
        body=body,
        entity=True,
        example=examples.get(word),
    )


_KIND = ChangeKind
_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/campaigns/{campaign}/report",
        "show_campaign_report",
        TAG,
        "Report a campaign so far: waves, times, unfinished nodes, measurements before and after.",
        VIEWERS,
        show_report,
        {200: CampaignReport},
    ),
    Route(
        "POST",
        "/campaigns/{campaign}/rehearse",
        "rehearse_campaign",
        TAG,
        "Rehearse a campaign on a twin in virtual time, some seconds per host.",
        OPERATORS,
        handle_campaign_change(_KIND.CAMPAIGN_REHEARSE),
        _ASKED,
        effect=Effect.MOMENTARY,
        body=Rehearsal,
        entity=True,
        example={"nodes": 1},
    ),
    Route(
        "POST",
        "/campaigns/{campaign}/accept",
        "accept_campaign_metric",
        TAG,
        "Continue a campaign although this metric got worse.",
        OPERATORS,
        handle_campaign_change(_KIND.CAMPAIGN_ACCEPT),
        _ASKED,
        effect=Effect.LASTING,
        body=Metric,
        entity=True,
        example={"metric": "nccl_all_reduce"},
    ),
    _on_node(
        "defer",
        _KIND.CAMPAIGN_DEFER,
        Effect.LASTING,
        "Defer one node for its tenant, within the policy's limit.",
        Deferral,
    ),
    _on_node(
        "skip", _KIND.CAMPAIGN_SKIP, Effect.LASTING, "Leave one node out of a campaign.", Because
    ),
    _on_node(
        "again",
        _KIND.CAMPAIGN_AGAIN,
        Effect.MOMENTARY,
        "Try a failed or skipped node once more.",
        None,
    ),
)
