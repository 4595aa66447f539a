"""People's requests to campaigns: the one place that the command line and the API call.

Nothing here moves a device or a node. Before `start` a campaign is a row and nothing else; after
it, only `control/campaigns/campaigns.py` admits nodes. Every answer is the present campaign, or the
blockers with the reasons and remedies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from provisioner.control.campaigns.campaign_facts import Survey, read_fleet
from provisioner.control.campaigns.campaigns import FleetSurvey, Surveyed
from provisioner.control.campaigns.selecting import find_selected
from provisioner.control.context import Context
from provisioner.model.campaign import (
    SETTLED,
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Policy,
)
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import DATA_VERSION
from provisioner.planning.campaigns import waves
from provisioner.planning.campaigns.campaign_moves import (
    POSSIBLE_IN,
    build_rollback_rows,
    defer_node,
    retry_progress,
    skip_node,
)
from provisioner.planning.campaigns.campaign_preview import Preview, preview_campaign
from provisioner.planning.campaigns.campaign_report import (
    check_campaign_name,
    find_standstill,
    find_unconfirmed_steps,
    join_alike,
    refuse_campaign,
    refuse_in_state,
    refuse_other_draft,
    refuse_selection,
)
from provisioner.planning.path.planner import RollbackPreview
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import StaleWrite
from provisioner.store.repositories.campaigns import SqlCampaignRepository

TRIES_MAX = 8  # a row with another busy writer is left to that writer
S = CampaignState


@dataclass(frozen=True)
class Answer:
    """What became of a request. With blockers, nothing was changed."""

    campaign: Campaign | None = None
    blockers: tuple[Blocker, ...] = ()
    rows: tuple[CampaignRow, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class _TurnedBack:
    """A campaign as it would go back, with its nodes' plans; with `refused` it does not."""

    campaign: Campaign
    rows: tuple[CampaignRow, ...] = ()
    planned: tuple[CampaignNode, ...] = ()
    nodes: tuple[Node, ...] = ()
    refused: tuple[Blocker, ...] = ()


class CampaignRequests:
    """The requests to campaigns. `matrix` is the one in force: it defines each node's target
    release.
    """

    def __init__(
        self,
        context: Context,
        book: SqlCampaignRepository,
        matrix: Matrix,
        held: Set[str] | None = None,
        plan: AddressPlan | None = None,  # of switches' planes; None: unknown
    ) -> None:
        self._store = context.store
        self._plan = plan
        self._book = book
        self._clock = context.clock
        self._settings = context.settings
        self._matrix = matrix
        self._held = held  # artifacts that a way back needs and that are available; None: unknown

    async def create(
        self,
        release: str,
        expression: str,
        policy: Policy | None = None,
        by: str = "",
        name: str = "",
    ) -> Answer:
        """Return a draft. Raises InputError for an unknown release, a bad expression or name."""
        check_campaign_name(name)
        if name and (standing := await self._book.get(name)):
            return Answer(standing, refuse_other_draft(standing, release, expression, policy))
        drafted = await self._draft(release, expression, policy, by)
        if isinstance(drafted, tuple):
            return Answer(blockers=drafted)
        for _ in range(TRIES_MAX):
            number = len(await self._book.list()) + 1
            made = drafted.model_copy(update={"id": name or f"c{number:04d}"})
            try:
                return Answer(await self._book.add(made, by, made.created_at))
            except StaleWrite:
                continue  # another request took that number
        raise StaleWrite("campaigns are made faster than they can be numbered")

    async def _draft(
        self, release: str, expression: str, policy: Policy | None, by: str
    ) -> Campaign | tuple[Blocker, ...]:
        """Return a draft without a number, or why there is none."""
        if release not in self._matrix.releases:
            releases = ", ".join(sorted(self._matrix.releases))
            raise InputError(
                "--release", "", f"there is no release {release!r:.60}", f"Known: {releases}."
            )
        chosen = policy or Policy()
        now = self._clock.now()
        known = await self._store.nodes.list()
        nodes = await find_selected(expression, known, self._store, self._matrix, now)
        blockers = refuse_selection(nodes, release, chosen)
        if blockers:
            return blockers
        sources = {n.release for n in nodes if n.release != release}
        return Campaign(
            id="draft",
            release=release,
            select=expression,
            policy=chosen,
            baseline=next(iter(sources), release),
            created_by=by,
            created_at=now,
            zone_data=DATA_VERSION if chosen.names_zones else "",
        )

    async def preview_draft(
        self, release: str, expression: str, policy: Policy | None = None
    ) -> Preview | tuple[Blocker, ...]:
        """Return the preview of a campaign that is not written, or why there can be none.

        Raises InputError as `create` does.
        """
        drafted = await self._draft(release, expression, policy, "")
        return drafted if isinstance(drafted, tuple) else await self._preview(drafted)

    async def survey(self, campaign: Campaign) -> Surveyed:
        """Return the campaign's present effects; touches nothing."""
        survey = FleetSurvey(
            self._store, self._book, self._settings, self._matrix, self._held, self._plan
        )
        return await survey.read_fleet(campaign, self._clock.now())

    async def preview(self, campaign_id: str) -> Preview:
        """Return waves, steps, minutes, blast radius and refusals of a start now."""
        return await self._preview(await self.find_campaign(campaign_id))

    async def _preview(self, campaign: Campaign) -> Preview:
        surveyed = await self.survey(campaign)
        now = self._clock.now()
        preview = await asyncio.to_thread(preview_campaign, campaign, surveyed.facts, now)
        unchanged = tuple(sorted({*preview.unchanged, *surveyed.already}))
        return preview.model_copy(update={"unchanged": unchanged})

    async def start(self, campaign_id: str, by: str = "", confirm: Sequence[str] = ()) -> Answer:
        """Admit nodes from now on. `confirm`: one-way steps ("component version")."""
        campaign = await self.find_campaign(campaign_id)
        if campaign.state is not S.DRAFT:
            return Answer(campaign, (refuse_in_state(campaign, "start"),))
        surveyed = await self.survey(campaign)
        confirmed = tuple(sorted({*campaign.one_way_confirmed, *confirm}))
        blockers = [
            *find_unconfirmed_steps(campaign, surveyed.rows, confirmed),
            *await self._overlap(surveyed),
        ]
        if not surveyed.rows:
            unblock = "Select others, or leave it."
            blockers.append(
                refuse_campaign(campaign, "every node runs that release already", unblock)
            )
        now = self._clock.now()
        if not blockers:
            agreed = campaign.model_copy(update={"one_way_confirmed": confirmed})
            preview = await asyncio.to_thread(preview_campaign, agreed, surveyed.facts, now)
            blockers += find_standstill(campaign, preview)
        if blockers:
            return Answer(campaign, tuple(blockers))
        numbers = waves.assign_waves(campaign, surveyed.facts)
        rows = tuple(_waved(row, numbers[row.node]) for row in surveyed.rows)
        started = campaign.model_copy(
            update={"state": S.STARTED, "started_at": now, "one_way_confirmed": confirmed}
        )
        saved = await self._book.save(started, describe_change(started, by), now, rows)
        return Answer(saved, rows=rows)

    async def pause(self, campaign_id: str, reason: str = "", by: str = "") -> Answer:
        """Let the running nodes finish, and admit no further ones."""
        return await self._change(
            campaign_id,
            "pause",
            by,
            lambda c: c.model_copy(
                update={"state": S.PAUSED, "reason": reason or f"paused by {by or 'request'}"}
            ),
        )

    async def resume(self, campaign_id: str, by: str = "") -> Answer:
        """Continue after a pause or a stop; failures so far are accepted with it."""
        now = self._clock.now()

        def on(c: Campaign) -> Campaign:
            state = S.ROLLING_BACK if c.going_back else S.STARTED
            judged = now if c.state is S.STOPPED else c.judged_from
            return c.model_copy(
                update={"state": state, "reason": "", "judged_from": judged, "still_since": 0.0}
            )

        return await self._change(campaign_id, "resume", by, on)

    async def abort(self, campaign_id: str, reason: str = "", by: str = "") -> Answer:
        """Abort: let the running nodes finish, and leave all others unchanged."""
        return await self._change(
            campaign_id,
            "abort",
            by,
            lambda c: c.model_copy(
                update={"state": S.ABORTED, "reason": reason or f"aborted by {by or 'request'}"}
            ),
        )

    async def preview_rollback(self, campaign_id: str) -> RollbackPreview:
        """Return what `rollback` would do now; touches nothing."""
        turned = await self._turn_back(await self.find_campaign(campaign_id))
        moved = [facts for facts in turned.planned if facts.steps]
        return RollbackPreview(
            campaign=campaign_id,
            baseline=turned.campaign.baseline,
            nodes=tuple(sorted(f.name for f in moved)),
            steps=sum(f.steps for f in moved),
            resets=sum(f.resets for f in moved),
            minutes=sum(f.minutes for f in moved),
            tenants=tuple(sorted({n.tenant for n in turned.nodes if n.tenant})),
            refused=turned.refused,
        )

    async def rollback(self, campaign_id: str, by: str = "") -> Answer:
        """Bring every node that was moved back to the release that it came from."""
        campaign = await self.find_campaign(campaign_id)
        turned = await self._turn_back(campaign)
        if turned.refused:
            return Answer(campaign, turned.refused)
        back = turned.campaign
        rows = turned.rows
        nodes = await self._store.nodes.list()
        facts = read_fleet(nodes, back, rows, (), self._clock.now(), self._plan)
        numbers = waves.assign_waves(back, facts)
        waved = tuple(_waved(r, numbers.get(r.node, r.progress.wave)) for r in rows)
        saved = await self._book.save(back, describe_change(back, by), self._clock.now(), waved)
        return Answer(saved, rows=waved)

    async def _turn_back(self, campaign: Campaign) -> _TurnedBack:
        """The campaign on its way back with each node's plan, or why there is no way back."""
        moved = (S.STARTED, S.PAUSED, S.STOPPED, S.DONE, S.ABORTED)
        if campaign.state not in moved or campaign.going_back or not campaign.started_at:
            return _TurnedBack(campaign, refused=(refuse_in_state(campaign, "rollback"),))
        rows = build_rollback_rows(await self._book.list_rows(campaign.id))
        back = campaign.model_copy(
            update={"state": S.ROLLING_BACK, "going_back": True, "reason": ""}
        )
        survey = Survey(self._store, self._matrix, self._settings)
        nodes = await self._store.nodes.list()
        names = frozenset(r.node for r in rows if r.progress.state not in SETTLED)
        plans = await survey.read_plans(nodes, names, campaign.baseline)
        planned = tuple(facts for facts, _ in plans.values())
        stuck = join_alike(
            (facts.name, b)
            for facts in planned
            for b in facts.blockers
            if b.reason is not Reason.CONSTRAINT
        )
        going = tuple(n for n in nodes if n.id in names)
        return _TurnedBack(back, rows, planned, going, stuck)

    async def defer(self, campaign_id: str, node: str, until: float, by: str = "") -> Answer:
        """Put one node's upgrade off for its tenant, within the policy's limit."""
        campaign = await self.find_campaign(campaign_id)
        most_s = campaign.policy.tenants.deferral_max_s
        now = self._clock.now()
        return await self._change_node(
            campaign, node, lambda p: defer_node(p, until, most_s, now), by
        )

    async def skip(self, campaign_id: str, node: str, reason: str, by: str = "") -> Answer:
        campaign = await self.find_campaign(campaign_id)
        return await self._change_node(campaign, node, lambda p: skip_node(p, reason), by)

    async def retry_node(self, campaign_id: str, node: str, by: str = "") -> Answer:
        """Try a node once more that failed or was skipped."""
        return await self._change_node(
            await self.find_campaign(campaign_id), node, retry_progress, by
        )

    async def accept(self, campaign_id: str, metric: str, by: str = "") -> Answer:
        """Continue although this metric got worse: a person accepts it."""
        return await self._change(
            campaign_id,
            "accept",
            by,
            lambda c: c.model_copy(update={"accepted": tuple(sorted({*c.accepted, metric}))}),
        )

    async def find_campaign(self, campaign_id: str) -> Campaign:
        """Return the campaign. Raises InputError if there is none."""
        campaign = await self._book.get(campaign_id)
        if campaign is None:
            remedy = "See `provisioner campaign list`."
            raise InputError(campaign_id, "", "there is no such campaign", remedy)
        return campaign

    async def _overlap(self, found: Surveyed) -> Sequence[Blocker]:
        mine = {r.node for r in found.rows}
        taken = [
            r
            for r in await self._book.list_active_rows()
            if r.node in mine and r.progress.state not in SETTLED
        ]
        return [
            Blocker(
                reason=Reason.BUSY,
                subject=r.node,
                detail=f"campaign {r.campaign} is about it as well",
                unblock=f"Let {r.campaign} end, or abort it, or select other nodes.",
            )
            for r in taken[:10]
        ]

    async def _change(
        self, campaign_id: str, word: str, by: str, change: Callable[[Campaign], Campaign]
    ) -> Answer:
        for _ in range(TRIES_MAX):
            campaign = await self.find_campaign(campaign_id)
            if campaign.state not in POSSIBLE_IN[word]:
                return Answer(campaign, (refuse_in_state(campaign, word),))
            try:
                changed = change(campaign)
                event = describe_change(changed, by, request=word)
                saved = await self._book.save(changed, event, self._clock.now())
            except StaleWrite:
                continue  # it changed while this was thought over: look again
            return Answer(saved)
        raise StaleWrite(f"campaign {campaign_id} is changed by another writer all the time")

    async def _change_node(
        self,
        campaign: Campaign,
        node: str,
        change: Callable[[NodeProgress], NodeProgress | str],
        by: str,
    ) -> Answer:
        rows = {r.node: r for r in await self._book.list_rows(campaign.id)}
        remedy = f"See `provisioner campaign show {campaign.id}`."
        if node not in rows:
            raise InputError(node, "", f"campaign {campaign.id} has no such node", remedy)
        changed = change(rows[node].progress)
        if isinstance(changed, str):
            return Answer(campaign, (refuse_campaign(campaign, f"{node}: {changed}", remedy),))
        row = rows[node].model_copy(update={"progress": changed})
        # the campaign's generation grows with it: a turn that has not seen this admits nothing
        event = describe_change(campaign, by, node=node, progress=changed.state)
        saved = await self._book.save(campaign, event, self._clock.now(), (row,))
        return Answer(saved, rows=(row,))


def _waved(row: CampaignRow, wave: int) -> CampaignRow:
    return row.model_copy(update={"progress": row.progress.model_copy(update={"wave": wave})})
