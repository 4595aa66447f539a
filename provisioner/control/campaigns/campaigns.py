"""Campaigns: a turn reads rows, asks the pure decision, writes it down; the reconciler does it.

Rule: this file moves no device. It admits a node by changing its row (release, and a state that
leads out of service); from then on the node is driven like any other. Whatever a turn needs is on
disk, so that a turn may be the first one of a new process: nothing is admitted twice, for a node's
row and the campaign's row of it change in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from provisioner.control.campaigns.campaign_memory import Memory
from provisioner.control.context import Context
from provisioner.model.adoption.capability import Capability
from provisioner.model.campaign import (
    Admit,
    Campaign,
    CampaignState,
    Decision,
    NodeProgress,
    Progress,
)
from provisioner.model.campaign_row import CampaignRow
from provisioner.model.case import TenantNotice
from provisioner.model.cohort import Sample
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import admit_node, displace_host, update_progress
from provisioner.planning.campaigns.campaign_progress import (
    apply_decision,
    build_notices,
    summarize_left,
)
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.ungranted_nodes import refuse_ungranted
from provisioner.planning.certification.regression import RegressionPolicy, judge_campaign
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.ports.campaigns import CampaignRepository

log = logging.getLogger(__name__)

SAMPLES_MAX = 1024  # newest samples of a profile that are searched for a node's measurements
WRITTEN_MAX = 512  # rows in one transaction: drivers of nodes wait some 100 ms for it
ADMITTED_MAX = 64  # at the same time: they share a commit (`store/database/lanes.py`)
_RUNS = (CampaignState.STARTED, CampaignState.ROLLING_BACK)
_DECIDES = (*_RUNS, CampaignState.PAUSED)  # of a paused one, soaks go on
_REGRESSION = RegressionPolicy()


class Campaigns:
    """One per daemon. `tick` may be called at any time, as often as one likes."""

    def __init__(
        self, context: Context, book: CampaignRepository, plan: AddressPlan | None = None
    ) -> None:
        """`plan` gives switches' planes; without it they are unknown."""
        self._context = context
        self._store = context.store
        self._plan = plan
        self._book = book
        self._clock = context.clock
        self._settings = context.settings
        self._over: set[str] = set()  # aborted ones with nothing under way any more
        self._memory: dict[str, Memory] = {}  # by campaign; dropped at the least doubt

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s`."""
        await self.take_over()
        while True:
            await self.tick()
            await self._clock.sleep(self._settings.poll_s)

    async def take_over(self) -> None:
        """Raise the generations: a predecessor that stood still in a turn writes nothing more."""
        for campaign in await self._book.list():
            if campaign.state in (CampaignState.DRAFT, CampaignState.DONE):
                continue
            try:
                event = describe_change(campaign, "the daemon that drives it from now on")
                await self._book.save(campaign, event, self._clock.now())
            except StaleWrite:  # a foreign change just now, which raised the generation
                log.info("campaign %s was changed while it was taken over", campaign.id)

    async def tick(self) -> None:
        """Run one turn of every campaign that is not over."""
        for campaign in await self._book.list():
            if campaign.state in (CampaignState.DRAFT, CampaignState.DONE):
                self._memory.pop(campaign.id, None)
                continue
            if campaign.id in self._over and campaign.state is CampaignState.ABORTED:
                continue
            memory = self._memory.get(campaign.id)
            if memory is not None and memory.is_early(
                campaign, self._clock.now(), self._settings.poll_s
            ):
                continue
            try:
                await self.run_turn(campaign)
            except StaleWrite as error:
                log.info("campaign %s: %s; the next turn sees it", campaign.id, error)
            except StoreFailed:
                raise  # ends the daemon
            except Exception:  # our own bug: it admits nothing more until a person has looked
                log.exception("campaign %s: stopped", campaign.id)
                await self._park(campaign.id)

    async def run_turn(self, campaign: Campaign) -> Decision | None:
        """Record the outcome of its nodes, then decide; None: it decides nothing now."""
        memory = await self._remembered(campaign)
        decision = await self._turned(campaign, memory)
        self._memory[campaign.id] = memory  # only now: of a turn that failed nothing is believed
        return decision

    async def _remembered(self, campaign: Campaign) -> Memory:
        """Return the last turn's memory, if no other writer has changed the rows since; else read
        the rows.
        """
        remembered = self._memory.pop(campaign.id, None)
        if remembered is not None and remembered.generation == campaign.generation:
            return remembered
        rows = await self._book.list_rows(campaign.id)
        return Memory(campaign.generation, {r.node: r for r in rows})

    async def _turned(self, campaign: Campaign, memory: Memory) -> Decision | None:
        now = memory.turned_at = self._clock.now()
        nodes = {n.id: n for n in await self._store.nodes.list()}
        rows = memory.rows
        await self._observe(campaign, memory, nodes, now)
        await self._make_room(campaign, rows, nodes, now)
        if campaign.state is CampaignState.ABORTED and not _under_way(rows):
            self._over.add(campaign.id)
        if campaign.state not in _DECIDES:
            return None
        pins = await self._book.list_pins()
        standing = memory.read_facts(list(nodes.values()), campaign, pins, now, self._plan)
        facts = refuse_ungranted(standing, nodes, await self._store.grants.list())
        progress = {name: row.progress for name, row in rows.items()}
        decision = decide(
            campaign, facts, progress, judge_campaign(campaign, rows, _REGRESSION), now
        )
        await self._carry_out(campaign, decision, memory, nodes, now)
        return decision

    async def _observe(
        self,
        campaign: Campaign,
        memory: Memory,
        nodes: Mapping[str, Node],
        now: float,
    ) -> None:
        advanced = [
            (row, new)
            for row in memory.rows.values()
            if row.progress.state is Progress.ADMITTED
            and (new := update_progress(row, nodes.get(row.node), campaign.target, now)) is not None
        ]
        if not advanced:
            return
        samples = await self._samples({r.facts.profile for r, _ in advanced if r.facts.gpus})
        changed = []
        for old, new in advanced:
            sample = samples.get(new.node)
            if sample is not None and sample.taken_at >= old.progress.admitted_at:
                new = new.model_copy(update={"after": dict(sample.measured)})
            changed.append(new)
        await self._write(campaign, memory, changed, (), now)

    async def _make_room(
        self,
        campaign: Campaign,
        rows: Mapping[str, CampaignRow],
        nodes: Mapping[str, Node],
        now: float,
    ) -> None:
        """Remove from a leaf the hosts that were being released while the leaf was admitted."""
        under_way = {
            r.node
            for r in rows.values()
            if r.kind is NodeKind.SWITCH and r.progress.state is Progress.ADMITTED
        }
        if not under_way:
            return
        for node in nodes.values():
            if node.state is not State.RELEASED:
                continue
            leaf = next((p.switch for p in node.ports if p.switch in under_way), "")
            room = displace_host(node, f"{leaf} is upgraded ({campaign.id})", now) if leaf else None
            if room is not None:
                await self._book.admit(campaign, None, room, room.note, now)

    async def _samples(self, profiles: set[str]) -> dict[str, Sample]:
        """Return the last measurements of each node of these profiles."""
        newest: dict[str, Sample] = {}
        for profile in sorted(profiles):
            for sample in await self._store.cohorts.list_samples(profile, None, SAMPLES_MAX):
                newest.setdefault(sample.node, sample)  # the newest come first
        return newest

    async def _carry_out(
        self,
        campaign: Campaign,
        decision: Decision,
        memory: Memory,
        nodes: Mapping[str, Node],
        now: float,
    ) -> None:
        rows = memory.rows
        written = apply_decision(decision, {name: row.progress for name, row in rows.items()}, now)
        begins = {a.node for a in decision.admit}
        changed = [_with(rows[n], p) for n, p in written.items() if n not in begins]
        await self._write(campaign, memory, changed, build_notices(campaign, decision, now), now)
        if decision.stop:
            reason = "; ".join(str(b) for b in decision.stop)
            await self._end(campaign, CampaignState.STOPPED, reason, now)
            return
        assert campaign.state in _RUNS or not (decision.admit or decision.finished)
        for at in range(0, len(decision.admit), ADMITTED_MAX):
            some = decision.admit[at : at + ADMITTED_MAX]
            begun = [_with(rows[a.node], written[a.node]) for a in some]
            admitted = await asyncio.gather(
                *(self._admit(campaign, a, r, nodes, now) for a, r in zip(some, begun, strict=True))
            )
            memory.note_written([row for row, ok in zip(begun, admitted, strict=True) if ok])
        if decision.finished and not decision.admit:
            back = campaign.going_back
            state = CampaignState.ABORTED if back else CampaignState.DONE
            mine = [r.progress for r in memory.rows.values() if r.rolled_back or not back]
            reason = summarize_left(mine)
            if back:
                reason = "; ".join(filter(None, (f"rolled back to {campaign.baseline}", reason)))
            await self._end(campaign, state, reason, now)
        elif bool(decision.standstill) != bool(campaign.still_since):
            await self._record_standstill(campaign, decision.standstill, now)

    async def _write(
        self,
        campaign: Campaign,
        memory: Memory,
        rows: Sequence[CampaignRow],
        notices: Sequence[TenantNotice],
        now: float,
    ) -> None:
        """Write rows with the notices of their nodes; after a crash the next turn decides the
        rest.
        """
        by_node: dict[str, list[TenantNotice]] = {}
        for notice in notices:
            by_node.setdefault(notice.node, []).append(notice)
        for at in range(0, len(rows), WRITTEN_MAX):
            some = rows[at : at + WRITTEN_MAX]
            due = [notice for row in some for notice in by_node.pop(row.node, ())]
            await self._book.put_rows(campaign, some, now, due)
            memory.note_written(some)
        assert not by_node, "no node begins in the turn of its tenant's notice"

    async def _admit(
        self,
        campaign: Campaign,
        admit: Admit,
        row: CampaignRow,
        nodes: Mapping[str, Node],
        now: float,
    ) -> bool:
        """Admit one node; hosts that make room for it leave first. False: it is not admitted."""
        why = f"campaign {campaign.id} to {campaign.target}: {admit.reason}"
        for name in (*admit.displaces, admit.node):
            act = f"take it for campaign {campaign.id}"
            if await self._context.refuse_act(nodes[name], Capability.FIRMWARE, act):
                return False  # it waits until a person grants it, or skips the node
        try:
            for name in admit.displaces:
                room = displace_host(nodes[name], f"{admit.node} is upgraded ({campaign.id})", now)
                if room is not None:
                    await self._book.admit(campaign, None, room, why, now)
            profile = row.profile_before if campaign.going_back else row.facts.profile
            moved = admit_node(
                nodes[admit.node], campaign.target, profile, now, why=why, retire=admit.retire
            )
            if isinstance(moved, Blocker):
                log.info("%s is not admitted: %s", admit.node, moved)
                return False  # its row changed since the decision; the next turn decides anew
            await self._book.admit(campaign, row, moved, why, now)
            return True
        except StaleWrite as error:
            log.info("%s is not admitted: %s; the next turn decides anew", admit.node, error)
            return False

    async def _record_standstill(self, campaign: Campaign, why: str, now: float) -> None:
        """Record that nothing of the campaign may begin, or ("") that something may again."""
        reason = f"it stands still: {why}" if why else ""
        if why:
            log.warning("campaign %s stands still: %s", campaign.id, why)
        changed = campaign.model_copy(update={"still_since": now if why else 0.0, "reason": reason})
        await self._book.save(changed, describe_change(changed, "itself"), now)

    async def _end(self, campaign: Campaign, state: CampaignState, reason: str, now: float) -> None:
        ended = campaign.model_copy(update={"state": state, "reason": reason, "still_since": 0.0})
        await self._book.save(ended, describe_change(ended, "itself"), now)

    async def _park(self, campaign_id: str) -> None:
        campaign = await self._book.get(campaign_id)
        if campaign is not None and campaign.state in _RUNS:
            reason = f"{Reason.OUR_BUG}: see the daemon's log"
            try:
                await self._end(campaign, CampaignState.STOPPED, reason, self._clock.now())
            except StaleWrite:
                log.warning("campaign %s changed while it was to be stopped", campaign_id)


def _under_way(rows: Mapping[str, CampaignRow]) -> bool:
    return any(r.progress.state is Progress.ADMITTED for r in rows.values())


def _with(row: CampaignRow, progress: NodeProgress) -> CampaignRow:
    return row.model_copy(update={"progress": progress})
