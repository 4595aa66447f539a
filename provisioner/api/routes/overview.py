"""Routes of series for pictures: work under way, the last hour and days, a node's life, waves.

Each is bounded, and costs the same for 8 nodes and for 65,536 but for a scan of the nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import VIEWERS, Nothing, Route
from provisioner.api.routes.events import Event, build_event
from provisioner.model.base import Record
from provisioner.model.campaign import SETTLED, Campaign, CampaignRow, CampaignState, Progress
from provisioner.model.events import name_kind
from provisioner.model.events.event import EventKind
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.campaigns.campaign_preview import preview_campaign
from provisioner.planning.campaigns.campaign_report import build_report
from provisioner.planning.lifecycle.timeline import (
    AT_WORK,
    DAY_S,
    FleetDay,
    LifeMark,
    LifeSpan,
    Move,
    WorkingNode,
    count_days,
    list_alert_spans,
    list_case_spans,
    list_marks,
    list_stays,
    list_working,
    measure_stays,
    start_of_day,
)

TAG = "fleet"
NAMED_MAX = 100  # nodes on their way that are named
NEWS_MAX = 40  # events of the last hour
PAST_MAX = 500  # rows of a node's life of one sort
POINTS_MAX = 120  # of a curve
NEWS = (
    EventKind.STATE,
    EventKind.CASE_OPENED,
    EventKind.CASE_DIAGNOSED,
    EventKind.CASE_CLOSED,
    EventKind.CAMPAIGN,
    EventKind.ALERT_RAISED,
    EventKind.ALERT_CLEARED,
    EventKind.TENANT,
    EventKind.PIN,
    EventKind.REQUEST,
    EventKind.PARKED,
    EventKind.DAEMON_NOTICE,
)
RUNNING = (
    CampaignState.STARTED,
    CampaignState.ROLLING_BACK,
    CampaignState.PAUSED,
    CampaignState.STOPPED,
)


class Step(StrEnum):
    """How long each of the spans is."""

    DAY = "day"
    HOUR = "hour"


class RunningCampaign(Record):
    """A campaign under way."""

    campaign: str = Field(description="Id of the campaign.")
    release: str = Field(description="Release that its nodes get.")
    state: CampaignState = Field(description="Its state.")
    done: int = Field(description="Nodes that are through with it: done, failed or skipped.")
    failed: int = Field(description="Nodes of them that failed.")
    total: int = Field(description="All its nodes.")
    started_at: InstantOrNone = Field(description="Its start.")
    ends_at: InstantOrNone = Field(
        description="Expected end by its pace so far; null: none is through, or it stands still."
    )


class WorkUnderWay(Record):
    """Work under way."""

    campaigns: tuple[RunningCampaign, ...] = Field(description="Campaigns that are not over.")
    states: dict[str, int] = Field(description="Nodes on their way, by state.")
    typical_s: dict[str, float] = Field(
        description="Seconds that nodes typically spend in each state, by the last moves."
    )
    nodes: tuple[WorkingNode, ...] = Field(
        description="Nodes on their way, the longest first, at most 100."
    )


class LastHour(Record):
    """What happened in the last hour."""

    counts: dict[str, int] = Field(description="Events by kind.")
    items: tuple[Event, ...] = Field(description="The newest notable ones, at most 40.")


class Overview(Record):
    """The fleet's work, its last hour and its last days."""

    at: Instant = Field(description="Time of this answer.")
    work: WorkUnderWay = Field(description="Work under way.")
    hour: LastHour = Field(description="The last hour.")
    days: tuple[FleetDay, ...] = Field(
        description="The last days, or hours, the oldest first; the one of now is last."
    )
    since: Instant = Field(
        description="How far back the journal was read; days before have no moves of their own."
    )


class OverviewQuery(Nothing):
    """How far back."""

    days: int = Field(7, ge=1, le=31, description="Days, with today.")
    by: Step = Field(Step.DAY, description="day; or hour, for the same time in hours.")


class Timeline(Record):
    """The life of a node."""

    node: str = Field(description="Name of the node.")
    at: Instant = Field(description="Time of this answer.")
    spans: tuple[LifeSpan, ...] = Field(
        description="States, cases, certificates and alerts, the oldest first; at most 500 of each."
    )
    marks: tuple[LifeMark, ...] = Field(
        description="Resets, firmware and other actions, the oldest first; at most 500."
    )


class WaveCourse(Record):
    """One wave: as it was forecast at the start, and as it went."""

    name: str = Field(description="Name of the wave.")
    nodes: int = Field(description="Its nodes.")
    done: int = Field(description="Nodes that are through with it.")
    failed: int = Field(description="Nodes of them that failed.")
    planned_begins_at: InstantOrNone = Field(description="Forecast begin; null: never.")
    planned_ends_at: InstantOrNone = Field(description="Forecast end; null: never.")
    began_at: InstantOrNone = Field(description="Real begin; null: not yet.")
    ended_at: InstantOrNone = Field(description="Time of the last node through; null: none yet.")


class CurvePoint(Record):
    """Nodes that were through at a time."""

    at: Instant = Field(description="The time.")
    done: int = Field(description="Nodes that were through.")


class CampaignCourse(Record):
    """A campaign's waves against their forecast."""

    campaign: str = Field(description="Id of the campaign.")
    state: CampaignState = Field(description="Its state.")
    at: Instant = Field(description="Time of this answer.")
    started_at: InstantOrNone = Field(description="Its start; null: it is a draft.")
    planned_ends_at: InstantOrNone = Field(description="Forecast end, from its start.")
    ends_at: InstantOrNone = Field(description="Expected end by its pace so far; null: not known.")
    waves: tuple[WaveCourse, ...] = Field(description="Its waves in order.")
    curve: tuple[CurvePoint, ...] = Field(
        description="How its nodes got through, at most 120 points."
    )


async def show_overview(ask: Ask) -> Reply:
    """Return work under way, the last hour and the last days."""
    store = ask.parts.store
    hourly = ask.query.by is Step.HOUR
    span_s = 3600.0 if hourly else DAY_S
    spans = ask.query.days * (24 if hourly else 1)
    course = await store.home.read_course(start_of_day(ask.now, span_s), spans, ask.now, span_s)
    groups = await store.nodes.count_groups(None)
    states: dict[str, int] = {}
    counts: dict[str, int] = {}
    for kind, state, _, _, number in groups:
        if kind == "host":
            states[state] = states.get(state, 0) + number
        if state in AT_WORK:
            counts[state] = counts.get(state, 0) + number
    stays = measure_stays(Move(*row) for row in course.recent)
    named = await store.home.list_working([str(s) for s in AT_WORK], NAMED_MAX)
    others = {"opened": course.opened, "closed": course.closed, "alerts": course.alerts}
    view = Overview(
        at=ask.now,
        work=WorkUnderWay(
            campaigns=await _list_campaigns(ask),
            states=counts,
            typical_s=stays,
            nodes=list_working(named, stays, ask.now),
        ),
        hour=LastHour(
            counts={name_kind(k): n for k, n in sorted(course.hour.items())},
            items=await _list_news(ask),
        ),
        days=count_days(ask.now, spans, states, course.moves, others, span_s),
        since=course.since,
    )
    return Reply(view)


async def _list_campaigns(ask: Ask) -> tuple[RunningCampaign, ...]:
    store = ask.parts.store
    counts: dict[str, dict[str, int]] = {}
    for (name, state), number in (await store.home.count_campaigns()).items():
        counts.setdefault(name, {})[state] = number
    running = []
    for campaign in await store.campaigns.list():
        mine = counts.get(campaign.id)
        if campaign.state not in RUNNING or not mine:
            continue
        done = _count_settled(mine)
        total = sum(mine.values())
        running.append(
            RunningCampaign(
                campaign=campaign.id,
                release=campaign.target,
                state=campaign.state,
                done=done,
                failed=mine.get(Progress.FAILED.value, 0),
                total=total,
                started_at=campaign.started_at,
                ends_at=expect_end(campaign, done, total, ask.now),
            )
        )
    return tuple(running)


def expect_end(campaign: Campaign, done: int, total: int, now: float) -> float:
    """Return when a campaign ends if it goes on at its pace; 0: not known."""
    runs = campaign.state in (CampaignState.STARTED, CampaignState.ROLLING_BACK)
    if not (runs and done and campaign.started_at and done < total):
        return 0.0
    return now + (now - campaign.started_at) * (total - done) / done


async def _list_news(ask: Ask) -> tuple[Event, ...]:
    rows, _ = await ask.parts.store.journal.list_page(
        after=0, limit=NEWS_MAX, kinds=NEWS, backwards=True
    )
    return tuple(build_event(row) for row in rows if row["at"] >= ask.now - 3600.0)


async def show_timeline(ask: Ask) -> Reply:
    node = await ask.read_node()
    store = ask.parts.store
    rows, _ = await store.journal.list_page(
        after=0, limit=PAST_MAX, kinds=(EventKind.STATE,), node=node.id, backwards=True
    )
    entries = await store.operations.list_entries(node.id)
    certificates = await store.evidence.list_certificates(before=None, limit=PAST_MAX, node=node.id)
    spans = list_stays(tuple(reversed(rows)), node)
    spans += list_case_spans(await store.cases.list(node.id, PAST_MAX))
    spans += list_alert_spans((await store.alerts.list(node.id))[:PAST_MAX])
    spans += [
        LifeSpan(
            lane="certificate",
            what=row.certificate.proved or "no whole gate",
            begins_at=row.issued_at,
            ends_at=row.revoked_at or row.certificate.expires_at,
            detail=row.revoked_reason,
            id=row.id,
        )
        for row in certificates
        if row.certificate is not None
    ]
    view = Timeline(
        node=node.id,
        at=ask.now,
        spans=tuple(sorted(spans, key=lambda s: (s.begins_at, s.lane))),
        marks=tuple(list_marks(entries[-PAST_MAX:])),
    )
    return Reply(view)


async def show_course(ask: Ask) -> Reply:
    """Return a campaign's waves against their forecast."""
    book = ask.parts.store.campaigns
    campaign = await book.get(ask.read_word("campaign"))
    if campaign is None:
        raise refuse_missing("campaign")
    rows = await book.list_rows(campaign.id)
    return Reply(await asyncio.to_thread(build_course, campaign, tuple(rows), ask.now))


def build_course(campaign: Campaign, rows: tuple[CampaignRow, ...], now: float) -> CampaignCourse:
    """Return the waves of a campaign as they were forecast and as they went."""
    began = campaign.started_at or now
    facts = [r.facts.model_copy(update={"name": r.node}) for r in rows]
    planned = preview_campaign(campaign, facts, began)
    forecast = {w.name: (w.begins_s, w.ends_s) for w in planned.waves}
    waves = []
    for wave in build_report(campaign, rows).waves:
        begins_s, ends_s = forecast.get(wave.name, (None, None))
        waves.append(
            WaveCourse(
                name=wave.name,
                nodes=wave.nodes,
                done=_count_settled(wave.states),
                failed=wave.states.get(Progress.FAILED.value, 0),
                planned_begins_at=0.0 if begins_s is None else began + begins_s,
                planned_ends_at=0.0 if ends_s is None else began + ends_s,
                began_at=wave.began_at,
                ended_at=wave.ended_at,
            )
        )
    finished = sorted(r.progress.finished_at for r in rows if r.progress.finished_at)
    done = sum(w.done for w in waves)
    step = -(-len(finished) // POINTS_MAX) or 1
    return CampaignCourse(
        campaign=campaign.id,
        state=campaign.state,
        at=now,
        started_at=campaign.started_at,
        planned_ends_at=began + planned.lasts_s if planned.waves else 0.0,
        ends_at=expect_end(campaign, done, len(rows), now),
        waves=tuple(waves),
        curve=tuple(
            CurvePoint(at=at, done=number)
            for number, at in enumerate(finished, 1)
            if number % step == 0 or number == len(finished)
        ),
    )


def _count_settled(states: Mapping[str, int]) -> int:
    return sum(n for state, n in states.items() if state in SETTLED)


ROUTES = (
    Route(
        "GET",
        "/overview",
        "show_overview",
        TAG,
        "Show work under way with expected ends, the last hour, and states and faults by day.",
        VIEWERS,
        show_overview,
        {200: Overview},
        query=OverviewQuery,
        heavy=True,
    ),
    Route(
        "GET",
        "/nodes/{node}/timeline",
        "show_node_timeline",
        "nodes",
        "Show a node's life: states, cases, certificates, alerts, resets and firmware.",
        VIEWERS,
        show_timeline,
        {200: Timeline},
    ),
    Route(
        "GET",
        "/campaigns/{campaign}/course",
        "show_campaign_course",
        "campaigns",
        "Show a campaign's waves against the forecast of its start, and how its nodes got through.",
        VIEWERS,
        show_course,
        {200: CampaignCourse},
        heavy=True,
    ),
)
