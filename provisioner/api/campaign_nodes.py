"""Routes of what is under way in a campaign: put one node off, leave it out, try it once more, go
on although something got worse; its report, and its rehearsal.

A tenant may put its own nodes off; whether a campaign has such a node is told to nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field

from provisioner.api.campaigns import TAG, Because, campaign_of, check_seen, requests_of
from provisioner.api.changes import Outcome, failed, objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import OPERATORS, OPERATORS_AND_TENANTS, VIEWERS, Route
from provisioner.control.campaigns.campaign_requests import Answer, CampaignRequests
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.planning.campaigns.campaign_report import Report, build_report
from provisioner.ports.rehearsals import RehearsalFailed

HOSTS_MAX = 64  # of one twin
TIME_MAX = 1e11  # seconds since the epoch: the year 5138


class CampaignReport(Report):
    """What became of a campaign so far."""


class Deferral(Record):
    """The body of a deferral."""

    until: float = Field(ge=0, le=TIME_MAX, description="Seconds since the epoch.")


class Metric(Record):
    """The body of an acceptance."""

    metric: str = Field(min_length=1, max_length=128, description="As the report names it.")


class Rehearsal(Record):
    """The body of a rehearsal."""

    nodes: int = Field(8, ge=1, le=HOSTS_MAX, description="Hosts of the twin, first come first.")


async def show_report(ask: Ask) -> Reply:
    """What became of it so far."""
    found = await campaign_of(ask)
    made = build_report(found, await ask.parts.store.campaigns.list_rows(found.id))
    return Reply(CampaignReport(**dict(made)))


def on_node(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    """The handler that asks for one kind of change of one node of a campaign."""

    async def handle(ask: Ask) -> Reply:
        node = await ask.node()
        found = await campaign_of(ask)
        rows = await ask.parts.store.campaigns.list_rows(found.id)
        if node.id not in {r.node for r in rows}:
            raise missing("node")
        check_seen(ask, found)
        told = {} if ask.body is None else ask.body.model_dump(mode="json")
        whose = "" if ask.caller.staff else ask.caller.tenant
        told |= {"node": node.id, "tenant": whose}
        return await ask.parts.works.ask(ask, kind, found.id, whose, told)

    return handle


def on_campaign(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    """The same for what is about the whole campaign."""

    async def handle(ask: Ask) -> Reply:
        found = await campaign_of(ask)
        check_seen(ask, found)
        told = ask.body.model_dump(mode="json")
        return await ask.parts.works.ask(ask, kind, found.id, "", told)

    return handle


async def change_node(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    told = asked.arguments
    if told.get("tenant"):  # approved later, perhaps: is it still that tenant's?
        node = await parts.store.nodes.get(str(told["node"]))
        if node is None or node.tenant != told["tenant"]:
            return objection(str(told["node"]), "it is not yours any more", "Look at your nodes.")
    try:
        answer = await _do(requests_of(parts), asked)
    except InputError as error:
        return objection(asked.subject, error.problem, error.remedy)
    if answer.blockers:
        return failed(*answer.blockers)
    assert answer.campaign is not None
    result: dict[str, Any] = {"campaign": answer.campaign.id, "state": answer.campaign.state.value}
    for row in answer.rows:
        result |= {"node": row.node, "progress": row.progress.state.value}
    return Outcome(RequestState.DONE, result)


async def _do(requests: CampaignRequests, asked: ChangeRequest) -> Answer:
    name, by, told = asked.subject, asked.asked_by, asked.arguments
    match asked.kind:
        case ChangeKind.CAMPAIGN_DEFER:
            return await requests.defer(name, told["node"], float(told["until"]), by)
        case ChangeKind.CAMPAIGN_SKIP:
            reason = told["reason"] or "left out by request"
            return await requests.skip(name, told["node"], reason, by)
        case ChangeKind.CAMPAIGN_AGAIN:
            return await requests.again(name, told["node"], by)
    assert asked.kind is ChangeKind.CAMPAIGN_ACCEPT
    return await requests.accept(name, told["metric"], by)


async def rehearsal(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Run it on a twin, in another process; the result is the operation's."""
    if parts.rehearsals is None:
        remedy = "Run: provisioner campaign rehearse"
        return objection(asked.subject, "this process has no simulator", remedy)
    requests = requests_of(parts)
    try:
        campaign = await requests.known(asked.subject)
        rows = (await requests.survey(campaign)).rows
        hosts = int(asked.arguments["nodes"])
        told = await parts.rehearsals.rehearse(parts.store, campaign, rows, hosts)
    except InputError as error:
        return objection(asked.subject, error.problem, error.remedy)
    except RehearsalFailed as error:
        return objection(asked.subject, str(error), "Look at the daemon's log.")
    return Outcome(RequestState.DONE, told)


def _on_node(word: str, kind: ChangeKind, summary: str, body: type[Record] | None) -> Route:
    tenants = kind is ChangeKind.CAMPAIGN_DEFER
    examples: dict[str, dict[str, object]] = {
        "defer": {"until": 1800000000.0},
        "skip": {"reason": "it is on loan"},
    }
    return Route(
        "POST",
        f"/campaigns/{{campaign}}/nodes/{{node}}/{word}",
        f"{word}_campaign_node",
        TAG,
        summary,
        OPERATORS_AND_TENANTS if tenants else OPERATORS,
        on_node(kind),
        {200: OperationView, 202: OperationView},
        body=body,
        entity=True,
        example=examples.get(word),
    )


_KIND = ChangeKind
_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route("GET", "/campaigns/{campaign}/report", "show_campaign_report", TAG,
          "What became of it so far: waves, times, who was left behind, before and after.",
          VIEWERS, show_report, {200: CampaignReport}),
    Route("POST", "/campaigns/{campaign}/rehearse", "rehearse_campaign", TAG,
          "Run it on a twin in virtual time: some seconds a host; the result is the operation's.",
          OPERATORS, on_campaign(_KIND.CAMPAIGN_REHEARSE), _ASKED, body=Rehearsal, entity=True,
          example={"nodes": 1}),
    Route("POST", "/campaigns/{campaign}/accept", "accept_campaign_metric", TAG,
          "Go on although this metric got worse.", OPERATORS,
          on_campaign(_KIND.CAMPAIGN_ACCEPT), _ASKED, body=Metric, entity=True,
          example={"metric": "nccl_all_reduce"}),
    _on_node("defer", _KIND.CAMPAIGN_DEFER,
             "Put one node off for its tenant, within the policy's limit.", Deferral),
    _on_node("skip", _KIND.CAMPAIGN_SKIP, "Leave one node as it is.", Because),
    _on_node("again", _KIND.CAMPAIGN_AGAIN, "Try a node once more that failed or was skipped.",
             None),
)  # fmt: skip
