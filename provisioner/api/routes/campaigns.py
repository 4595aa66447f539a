"""Routes of campaigns: list, show, preview, draft, start, pause, resume, abort and roll back.

Nothing is admitted here; the daemon does that once a campaign is started.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from pydantic import Field

from provisioner.api.changes import (
    Forecast,
    Outcome,
    build_failure,
    build_objection,
    decode_cursor,
    encode_cursor,
)
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Counted, Effect, Paging, Route, format_etag
from provisioner.control.campaigns.campaign_requests import Answer, CampaignRequests
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, CampaignState, NodeProgress, Policy
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.campaigns.campaign_moves import POSSIBLE_IN, describe_effects
from provisioner.planning.campaigns.campaign_preview import Preview
from provisioner.planning.campaigns.campaign_report import refuse_in_state
from provisioner.planning.path.planner import RollbackPreview

TAG = "campaigns"


class CampaignLine(Record):
    """A campaign in a list."""

    id: str
    release: str
    select: str
    state: CampaignState
    reason: str
    created_by: str
    created_at: Instant
    started_at: InstantOrNone


class CampaignPage(Counted):
    """A part of the list, by id."""

    items: tuple[CampaignLine, ...]
    next: str = ""


class CampaignView(Record):
    """One campaign, and the progress of each of its nodes."""

    campaign: Campaign
    nodes: tuple[NodeProgress, ...]


class Draft(Record):
    """The body of a draft."""

    release: str = Field(min_length=1, max_length=128, description="The target release.")
    select: str = Field(min_length=1, max_length=2000, description="Expression that selects nodes.")
    policy: Policy | None = Field(
        None, description="Policy of the campaign; by default the site's."
    )
    policy_name: str = Field(
        "",
        max_length=63,
        description="Name of a kept policy, which is copied; instead of `policy`.",
    )
    name: str = Field(
        "",
        max_length=63,
        description="Name that the client chooses; by default the next number. A second request "
        "with the same name and fields gets the same campaign.",
    )


class Start(Record):
    """The body of a start."""

    confirm: tuple[str, ...] = Field((), description='One-way steps: "component version".')


class Because(Record):
    """The body of a pause or an abort."""

    reason: str = Field("", max_length=200, description="The reason, in a sentence.")


def requests_of(parts: ApiParts) -> CampaignRequests:
    book = parts.store.campaigns
    return CampaignRequests(parts.context, book, parts.matrix, _held(parts), parts.plan)


def _held(parts: ApiParts) -> frozenset[str] | None:
    """Return the firmware files that are stored here; None where another server has them."""
    if parts.outside is not None or not parts.artifacts.is_dir():
        return None
    return frozenset(file.name for file in parts.artifacts.iterdir())


async def list_all(ask: Ask) -> Reply:
    started = decode_cursor(ask.query.cursor, str)
    after = str(started[0]) if started else ""
    every = await ask.parts.store.campaigns.list()
    rows = [c for c in every if c.id > after]
    shown = rows[: ask.query.limit]
    fields = set(CampaignLine.model_fields)
    items = tuple(CampaignLine(**c.model_dump(mode="json", include=fields)) for c in shown)
    following = encode_cursor(shown[-1].id) if len(rows) > len(shown) else ""
    return Reply(CampaignPage(items=items, next=following, total=len(every)))


async def show(ask: Ask) -> Reply:
    campaign = await read_campaign(ask)
    rows = await ask.parts.store.campaigns.list_rows(campaign.id)
    nodes = tuple(r.progress for r in rows)
    progress = hashlib.sha256(repr(nodes).encode()).hexdigest()[:16]
    return Reply(
        CampaignView(campaign=campaign, nodes=nodes), etag=f'"g{campaign.generation}.{progress}"'
    )


async def preview_start(ask: Ask) -> Reply:
    campaign = await read_campaign(ask)
    return Reply(await requests_of(ask.parts).preview(campaign.id))


async def preview_rollback(ask: Ask) -> Reply:
    """Return the present effects of a rollback; change nothing."""
    campaign = await read_campaign(ask)
    return Reply(await requests_of(ask.parts).preview_rollback(campaign.id))


async def read_campaign(ask: Ask) -> Campaign:
    stored = await ask.parts.store.campaigns.get(ask.read_word("campaign"))
    if stored is None:
        raise refuse_missing("campaign")
    return stored


async def create(ask: Ask) -> Reply:
    """Ask for a draft, which changes no node. A kept policy is copied now."""
    draft: Draft = ask.body
    arguments = draft.model_dump(mode="json", exclude={"policy_name"})
    if draft.policy_name:
        if draft.policy is not None:
            unblock = "Leave one of the two out."
            raise build_refusal(400, "policy", "There are policy and policy_name", unblock)
        kept = await ask.parts.store.policies.get(draft.policy_name)
        if kept is None:
            raise refuse_missing("policy")
        arguments["policy"] = kept.policy.model_dump(mode="json")
    return await ask.parts.works.submit_change(
        ask, ChangeKind.CAMPAIGN_CREATE, ask.body.release, "", arguments
    )


def check_seen(ask: Ask, found: Campaign) -> None:
    """Check If-Match against the campaign as it was read; its nodes' progress does not count."""
    condition = ask.request.headers.get("If-Match", "*").strip()
    if not condition.startswith(f'"g{found.generation}.'):
        ask.check_match(format_etag(found.generation))


def handle_move(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    async def handle(ask: Ask) -> Reply:
        campaign = await read_campaign(ask)
        check_seen(ask, campaign)
        arguments = {} if ask.body is None else ask.body.model_dump(mode="json")
        return await ask.parts.works.submit_change(ask, kind, campaign.id, "", arguments)

    return handle


async def change_campaign(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a campaign's move."""
    try:
        answer = await _do(requests_of(parts), asked)
    except InputError as error:
        return build_objection(asked.subject, error.problem, error.remedy)
    if answer.blockers:
        return build_failure(*answer.blockers)
    assert answer.campaign is not None
    result = {"campaign": answer.campaign.id, "state": answer.campaign.state.value}
    return Outcome(RequestState.DONE, result)


async def foresee_campaign(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects of a start or a rollback on the campaign's nodes."""
    requests = requests_of(parts)
    name = asked.subject
    try:
        if asked.kind is ChangeKind.CAMPAIGN_ROLLBACK:
            planned = await requests.preview_rollback(name)
            return Forecast(() if planned.refused else planned.format_lines(), planned.refused)
        preview_now = await requests.preview(name)
    except InputError as error:
        return Forecast(blockers=build_objection(name, error.problem, error.remedy).blockers)
    blast = preview_now.blast
    first = (
        f"{blast.hosts + blast.switches} nodes are upgraded: {preview_now.steps} steps, "
        f"{preview_now.resets} resets, {preview_now.minutes} node minutes."
    )
    return Forecast((first, "`provisioner campaign preview` shows waves and refusals."))


async def foresee_hold(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the effects of a pause, a resumption or an abort on the campaign's nodes."""
    word = asked.kind.value.rpartition(".")[2]
    campaign = await parts.store.campaigns.get(asked.subject)
    if campaign is None:
        gone = build_objection(asked.subject, "there is no such campaign", "See the list.")
        return Forecast(blockers=gone.blockers)
    if campaign.state not in POSSIBLE_IN[word]:
        return Forecast(blockers=(refuse_in_state(campaign, word),))
    rows = await parts.store.campaigns.list_rows(campaign.id)
    return Forecast(describe_effects(word, campaign, rows))


async def foresee_draft(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    draft = Draft.model_validate(asked.arguments, strict=False)
    try:
        preview = await requests_of(parts).preview_draft(draft.release, draft.select, draft.policy)
    except InputError as error:
        objection = build_objection(draft.release, error.problem, error.remedy)
        return Forecast(blockers=objection.blockers)
    if isinstance(preview, tuple):
        return Forecast(blockers=preview)
    return Forecast(result={"preview": preview.model_dump(mode="json")})


async def _do(requests: CampaignRequests, asked: ChangeRequest) -> Answer:
    name = asked.subject
    by = asked.asked_by
    arguments = asked.arguments
    reason = str(arguments.get("reason", ""))
    match asked.kind:
        case ChangeKind.CAMPAIGN_CREATE:
            draft = Draft.model_validate(arguments, strict=False)
            return await requests.create(draft.release, draft.select, draft.policy, by, draft.name)
        case ChangeKind.CAMPAIGN_START:
            return await requests.start(name, by, [str(c) for c in arguments.get("confirm", ())])
        case ChangeKind.CAMPAIGN_PAUSE:
            return await requests.pause(name, reason, by)
        case ChangeKind.CAMPAIGN_RESUME:
            return await requests.resume(name, by)
        case ChangeKind.CAMPAIGN_ABORT:
            return await requests.abort(name, reason, by)
    assert asked.kind is ChangeKind.CAMPAIGN_ROLLBACK
    return await requests.rollback(name, by)


def _move(
    word: str,
    kind: ChangeKind,
    effect: Effect,
    summary: str,
    body: type[Record] | None,
    **more: object,
) -> Route:
    return Route(
        "POST",
        f"/campaigns/{{campaign}}/{word}",
        f"{word}_campaign",
        TAG,
        summary,
        OPERATORS,
        handle_move(kind),
        {200: OperationView, 202: OperationView},
        effect=effect,
        body=body,
        entity=True,
        example=None if body is None else more,
    )


_KIND = ChangeKind
ROUTES = (
    Route(
        "GET",
        "/campaigns",
        "list_campaigns",
        TAG,
        "List campaigns, by id.",
        VIEWERS,
        list_all,
        {200: CampaignPage},
        query=Paging,
    ),
    Route(
        "POST",
        "/campaigns",
        "create_campaign",
        TAG,
        "Create a draft; it changes no node until it is started.",
        OPERATORS,
        create,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Draft,
        example={"release": "spectrum-x-1.3.0", "select": "rack=su0-* and kind=host"},
    ),
    Route(
        "GET",
        "/campaigns/{campaign}",
        "show_campaign",
        TAG,
        "Show one campaign, and the progress of each of its nodes.",
        VIEWERS,
        show,
        {200: CampaignView},
    ),
    Route(
        "GET",
        "/campaigns/{campaign}/preview",
        "preview_campaign",
        TAG,
        "Preview waves, steps, resets, blast radius, and every refused node with its reasons.",
        VIEWERS,
        preview_start,
        {200: Preview},
        heavy=True,
    ),
    Route(
        "GET",
        "/campaigns/{campaign}/rollback",
        "preview_campaign_rollback",
        TAG,
        "Preview the rollback: nodes, steps, resets, tenants, and the blockers.",
        VIEWERS,
        preview_rollback,
        {200: RollbackPreview},
        heavy=True,
    ),
    _move(
        "start",
        _KIND.CAMPAIGN_START,
        Effect.LASTING,
        "Start a campaign: its nodes are upgraded from now on.",
        Start,
        confirm=[],
    ),
    _move(
        "pause",
        _KIND.CAMPAIGN_PAUSE,
        Effect.MOMENTARY,
        "Pause a campaign: no further node is started.",
        Because,
        reason="lunch",
    ),
    _move(
        "resume",
        _KIND.CAMPAIGN_RESUME,
        Effect.LASTING,
        "Resume a campaign after a pause or a stop.",
        None,
    ),
    _move(
        "abort",
        _KIND.CAMPAIGN_ABORT,
        Effect.LASTING,
        "Abort a campaign; the nodes under way are finished.",
        Because,
        reason="no",
    ),
    _move(
        "rollback",
        _KIND.CAMPAIGN_ROLLBACK,
        Effect.LASTING,
        "Bring a campaign's nodes back to their previous versions.",
        None,
    ),
)
