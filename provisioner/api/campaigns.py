"""Routes of campaigns: list, show, preview, draft, and what moves one: start, pause, resume, abort,
rollback. Nothing is admitted here; the daemon does that once one is started."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, failed, objection
from provisioner.api.cursor import cursor, place
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import OPERATORS, VIEWERS, Paging, Route, tag_of
from provisioner.control.campaigns.campaign_requests import Answer, CampaignRequests
from provisioner.control.context import Context
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import Campaign, NodeProgress
from provisioner.model.campaign_policy import Policy
from provisioner.model.input_error import InputError
from provisioner.planning.campaigns.campaign_preview import Preview
from provisioner.planning.path.rollback import RollbackPreview

TAG = "campaigns"


class CampaignLine(Record):
    """A campaign in a list."""

    id: str
    release: str
    select: str
    state: str
    reason: str
    created_by: str
    created_at: float
    started_at: float


class CampaignPage(Record):
    """A part of the list, by id."""

    items: tuple[CampaignLine, ...]
    next: str = ""


class CampaignView(Record):
    """One campaign, and how far each of its nodes is."""

    campaign: Campaign
    nodes: tuple[NodeProgress, ...]


class Draft(Record):
    """The body of a draft."""

    release: str = Field(min_length=1, max_length=128)
    select: str = Field(min_length=1, max_length=2000, description="An expression over nodes.")
    policy: Policy | None = Field(None, description="How careful; without: the defaults.")


class Start(Record):
    """The body of a start."""

    confirm: tuple[str, ...] = Field((), description='One-way steps: "component version".')


class Because(Record):
    """The body of a pause or an abort."""

    reason: str = Field("", max_length=200)


def requests_of(parts: ApiParts) -> CampaignRequests:
    book = parts.store.campaigns
    return CampaignRequests(
        Context(parts.store, parts.clock, parts.settings),
        book,
        parts.matrix,
        _held(parts),
        parts.plan,
    )


def _held(parts: ApiParts) -> frozenset[str] | None:
    """Return the firmware files that are kept here; None where another server has them."""
    if parts.outside is not None or not parts.artifacts.is_dir():
        return None
    return frozenset(file.name for file in parts.artifacts.iterdir())


async def list_all(ask: Ask) -> Reply:
    """All of them."""
    started = place(ask.query.cursor, str)
    after = str(started[0]) if started else ""
    rows = [c for c in await ask.parts.store.campaigns.list() if c.id > after]
    shown = rows[: ask.query.limit]
    fields = set(CampaignLine.model_fields)
    items = tuple(CampaignLine(**c.model_dump(mode="json", include=fields)) for c in shown)
    following = cursor(shown[-1].id) if len(rows) > len(shown) else ""
    return Reply(CampaignPage(items=items, next=following))


async def show(ask: Ask) -> Reply:
    """One, with its nodes."""
    found = await campaign_of(ask)
    rows = await ask.parts.store.campaigns.list_rows(found.id)
    nodes = tuple(r.progress for r in rows)
    seen = hashlib.sha256(repr(nodes).encode()).hexdigest()[:16]
    return Reply(CampaignView(campaign=found, nodes=nodes), etag=f'"g{found.generation}.{seen}"')


async def preview(ask: Ask) -> Reply:
    """What would happen."""
    found = await campaign_of(ask)
    return Reply(await requests_of(ask.parts).preview(found.id))


async def preview_rollback(ask: Ask) -> Reply:
    """Return what its way back means now; changes nothing."""
    campaign = await campaign_of(ask)
    return Reply(await requests_of(ask.parts).preview_rollback(campaign.id))


async def campaign_of(ask: Ask) -> Campaign:
    found = await ask.parts.store.campaigns.get(ask.word("campaign"))
    if found is None:
        raise missing("campaign")
    return found


async def create(ask: Ask) -> Reply:
    """A draft: it touches nothing."""
    told = ask.body.model_dump(mode="json")
    return await ask.parts.works.ask(ask, ChangeKind.CAMPAIGN_CREATE, ask.body.release, "", told)


def check_seen(ask: Ask, found: Campaign) -> None:
    """If-Match: of the campaign as it was read; how far its nodes are does not count."""
    wanted = ask.request.headers.get("If-Match", "*").strip()
    if not wanted.startswith(f'"g{found.generation}.'):
        ask.check_match(tag_of(found.generation))


def moving(kind: ChangeKind) -> Callable[[Ask], Awaitable[Reply]]:
    """The handler that asks for one kind of move."""

    async def handle(ask: Ask) -> Reply:
        found = await campaign_of(ask)
        check_seen(ask, found)
        told = {} if ask.body is None else ask.body.model_dump(mode="json")
        return await ask.parts.works.ask(ask, kind, found.id, "", told)

    return handle


async def change_campaign(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    try:
        answer = await _do(requests_of(parts), asked)
    except InputError as error:
        return objection(asked.subject, error.problem, error.remedy)
    if answer.blockers:
        return failed(*answer.blockers)
    assert answer.campaign is not None
    told = {"campaign": answer.campaign.id, "state": answer.campaign.state.value}
    return Outcome(RequestState.DONE, told)


async def foresee_campaign(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return what a start or a way back does to the campaign's nodes."""
    requests, name = requests_of(parts), asked.subject
    try:
        if asked.kind is ChangeKind.CAMPAIGN_ROLLBACK:
            planned = await requests.preview_rollback(name)
            return Forecast(() if planned.refused else planned.format_lines(), planned.refused)
        found = await requests.preview(name)
    except InputError as error:
        return Forecast(blockers=objection(name, error.problem, error.remedy).blockers)
    blast = found.blast
    first = (
        f"{blast.hosts + blast.switches} nodes are upgraded: {found.steps} steps, "
        f"{found.resets} resets, {found.minutes} node minutes."
    )
    return Forecast((first, "`provisioner campaign preview` shows waves and refusals."))


async def _do(requests: CampaignRequests, asked: ChangeRequest) -> Answer:
    name, by, told = asked.subject, asked.asked_by, asked.arguments
    reason = str(told.get("reason", ""))
    match asked.kind:
        case ChangeKind.CAMPAIGN_CREATE:
            draft = Draft.model_validate(told, strict=False)
            return await requests.create(draft.release, draft.select, draft.policy, by)
        case ChangeKind.CAMPAIGN_START:
            return await requests.start(name, by, [str(c) for c in told.get("confirm", ())])
        case ChangeKind.CAMPAIGN_PAUSE:
            return await requests.pause(name, reason, by)
        case ChangeKind.CAMPAIGN_RESUME:
            return await requests.resume(name, by)
        case ChangeKind.CAMPAIGN_ABORT:
            return await requests.abort(name, reason, by)
    assert asked.kind is ChangeKind.CAMPAIGN_ROLLBACK
    return await requests.rollback(name, by)


def _move(
    word: str, kind: ChangeKind, summary: str, body: type[Record] | None, **more: object
) -> Route:
    return Route(
        "POST",
        f"/campaigns/{{campaign}}/{word}",
        f"{word}_campaign",
        TAG,
        summary,
        OPERATORS,
        moving(kind),
        {200: OperationView, 202: OperationView},
        body=body,
        entity=True,
        example=None if body is None else more,
    )


_KIND = ChangeKind
ROUTES = (
    Route("GET", "/campaigns", "list_campaigns", TAG, "Campaigns, by id.", VIEWERS, list_all,
          {200: CampaignPage}, query=Paging),
    Route("POST", "/campaigns", "create_campaign", TAG,
          "Make a draft: it touches nothing until it is started.", OPERATORS, create,
          {200: OperationView, 202: OperationView}, body=Draft,
          example={"release": "spectrum-x-1.3.0", "select": "rack=su0-* and kind=host"}),
    Route("GET", "/campaigns/{campaign}", "show_campaign", TAG,
          "One campaign, and how far each of its nodes is.", VIEWERS, show, {200: CampaignView}),
    Route("GET", "/campaigns/{campaign}/preview", "preview_campaign", TAG,
          "Waves, steps, resets, blast radius, and every node that is refused, with reasons.",
          VIEWERS, preview, {200: Preview}, heavy=True),
    Route("GET", "/campaigns/{campaign}/rollback", "preview_campaign_rollback", TAG,
          "What its way back would move now: nodes, steps, resets, tenants, and what refuses it.",
          VIEWERS, preview_rollback, {200: RollbackPreview}, heavy=True),
    _move("start", _KIND.CAMPAIGN_START, "From now on nodes are upgraded.", Start, confirm=[]),
    _move("pause", _KIND.CAMPAIGN_PAUSE, "Begin with no further node.", Because, reason="lunch"),
    _move("resume", _KIND.CAMPAIGN_RESUME, "Go on after a pause or a stop.", None),
    _move("abort", _KIND.CAMPAIGN_ABORT, "End it; what is under way ends.", Because, reason="no"),
    _move("rollback", _KIND.CAMPAIGN_ROLLBACK, "Bring its nodes back to where they were.", None),
)  # fmt: skip
