"""Campaigns: a turn reads rows, asks the pure decision, writes it down; the reconciler does it.

Rule: this file moves no device. It admits a node by changing its row (release, and a state that
leads out of service); from then on the node is driven like any other. Whatever a turn needs is on
disk, so that a turn may be the first one of a new process: nothing is admitted twice, for a node's
row and the campaign's row of it change in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from provisioner.control.campaigns.campaign_facts import Survey, read_fleet, read_standing
from provisioner.control.campaigns.selecting import find_selected
from provisioner.control.context import Context
from provisioner.model.adoption.capability import Capability
from provisioner.model.campaign import (
    Admit,
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    Decision,
    NodeProgress,
    Progress,
    ReleasePin,
)
from provisioner.model.case import TenantNotice
from provisioner.model.cohort import Sample
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import (
    IN_SERVICE,
    admit_node,
    apply_decision,
    build_notices,
    displace_host,
    summarize_left,
    update_progress,
)
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.select_expression import refuse_ungranted
from provisioner.planning.certification.fault_rates import (
    FaultEvidence,
    find_brought,
    is_held_by,
    judge_fault_rate,
    name_versions,
    weigh_campaign,
)
from provisioner.planning.certification.regression import RegressionPolicy, judge_campaign
from provisioner.planning.lifecycle.admission import rails_of
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.settings import Settings
from provisioner.store.repositories.campaigns import SqlCampaignRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The memory that a campaign's turn leaves for the next one, so that a turn costs only the changes.
#
# The rows of 65,536 nodes take seconds to parse, and to interpret for a decision as long again.
# Every other writer of a campaign's rows raises its generation (`CampaignRepository.save`), and an
# unchanged node is the same object (`Store.nodes`): results that belong to both are still valid.
#
# The memory decides nothing. Without it (after a restart, after any failure) a turn reads
# everything, and reaches the same decision.


# A turn over n nodes takes some n / 40,000 s of CPU: so much apart it is 1 % of a core, and a place
# that becomes free waits two minutes on average where 65,536 nodes take an hour each.
NODES_PER_S = 250


class Considered(NamedTuple):
    """A decision, and the rows that it changes."""

    decision: Decision
    written: Mapping[str, NodeProgress]


@dataclass(slots=True)
class Memory:
    """Of one campaign at one generation. `rows` are as they are on disk."""

    generation: int
    rows: dict[str, CampaignRow]
    turned_at: float = 0.0
    _known: dict[str, tuple[Node, CampaignNode | None, CampaignNode]] = field(default_factory=dict)
    _pins: tuple[ReleasePin, ...] = ()
    _rails: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def is_early(self, campaign: Campaign, now: float, poll_s: float) -> bool:
        """Whether a turn would come too soon: a large campaign that no other writer has changed."""
        pace_s = len(self.rows) / NODES_PER_S
        soon = pace_s > poll_s and now - self.turned_at < pace_s
        return soon and campaign.generation == self.generation

    def read_facts(
        self,
        nodes: Sequence[Node],
        campaign: Campaign,
        pins: Sequence[ReleasePin],
        now: float,
        plan: AddressPlan | None,
    ) -> tuple[CampaignNode, ...]:
        """The result of `campaign_facts.fleet`, computed anew only for nodes that changed."""
        holding = tuple(p for p in pins if p.is_in_force(now))
        if holding != self._pins:
            self._known = {}
            self._pins = holding
        changed = [
            n for n in nodes if (entry := self._known.get(n.id)) is None or entry[0] is not n
        ]
        if len(nodes) != len(self._known) or any(self._recabled(n) for n in changed):
            rails = rails_of(nodes)
            if rails != self._rails:
                self._known = {}
                self._rails = rails
        cached = {}
        before = self._known
        rows = self.rows
        for node in nodes:
            row = rows.get(node.id)
            entry = before.get(node.id)
            planned = None if row is None else row.facts
            if entry is None or entry[0] is not node or entry[1] is not planned:
                fact = read_standing(node, campaign, holding, row, self._rails, now, plan)
                entry = node, planned, fact
            cached[node.id] = entry
        self._known = cached
        return tuple([fact for n, _, fact in cached.values() if n.state is not State.RETIRED])

    def _recabled(self, node: Node) -> bool:
        entry = self._known.get(node.id)
        return entry is None or entry[0].ports != node.ports

    def note_written(self, rows: Sequence[CampaignRow]) -> None:
        """Record that these rows are stored now."""
        self.rows.update((row.node, row) for row in rows)


_SAMPLES_MAX = 4096  # newest of a profile


@dataclass(frozen=True)
class Surveyed:
    """The fleet as a campaign finds it. `rows`: its nodes; `already`: those that need nothing."""

    facts: tuple[CampaignNode, ...]
    rows: tuple[CampaignRow, ...]
    already: tuple[str, ...]


class FleetSurvey:
    """Reads the store; touches nothing."""

    def __init__(
        self,
        store: SqlStore,
        book: SqlCampaignRepository,
        settings: Settings,
        matrix: Matrix,
        held: Set[str] | None = None,
        plan: AddressPlan | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._matrix = matrix
        self._book = book
        self._survey = Survey(store, matrix, settings, held)

    async def read_fleet(self, campaign: Campaign, now: float) -> Surveyed:
        """Read everything that preview and start need."""
        nodes = await self._store.nodes.list()
        selected = await find_selected(campaign.select, nodes, self._store, self._matrix, now)
        chosen = {n.id: n for n in selected}
        planned = await self._survey.read_plans(nodes, frozenset(chosen), campaign.release)
        already = {
            name
            for name, (_, plan) in planned.items()
            if plan is not None
            and plan.done
            and chosen[name].release == campaign.release
            and chosen[name].state in IN_SERVICE
        }
        mine = {name: facts for name, (facts, _) in planned.items() if name not in already}
        before = await self._measured({f.profile for f in mine.values() if f.gpus})
        rows = tuple(
            CampaignRow(
                campaign=campaign.id,
                progress=NodeProgress(node=name),
                facts=facts,
                kind=chosen[name].kind,
                release_before=chosen[name].release,
                profile_before=chosen[name].profile,
                before=before.get(name, {}),
            )
            for name, facts in mine.items()
        )
        standing = read_fleet(nodes, campaign, rows, await self._book.list_pins(), now, self._plan)
        facts = refuse_ungranted(
            standing, {n.id: n for n in nodes}, await self._store.grants.list()
        )
        return Surveyed(facts, rows, tuple(sorted(already)))

    async def _measured(self, profiles: set[str]) -> dict[str, dict[str, float]]:
        measured: dict[str, dict[str, float]] = {}
        for profile in sorted(profiles):
            for sample in await self._store.cohorts.list_samples(profile, None, _SAMPLES_MAX):
                measured.setdefault(sample.node, dict(sample.measured))  # the newest come first
        return measured


log = logging.getLogger(__name__)

SAMPLES_MAX = 1024  # newest samples of a profile that are searched for a node's measurements
WRITTEN_MAX = 512  # rows in one transaction: drivers of nodes wait some 100 ms for it
ADMITTED_MAX = 64  # at the same time: they share a commit (`store/database/lanes.py`)
WEIGHED_EVERY_S = 600.0  # between two looks at the faults of a campaign's nodes
_RUNS = (CampaignState.STARTED, CampaignState.ROLLING_BACK)
_DECIDES = (*_RUNS, CampaignState.PAUSED)  # of a paused one, soaks go on
_REGRESSION = RegressionPolicy()


class Campaigns:
    """One per daemon. `tick` may be called at any time, as often as one likes."""

    def __init__(
        self, context: Context, book: SqlCampaignRepository, plan: AddressPlan | None = None
    ) -> None:
        """`plan` gives switches' planes; without it they are unknown."""
        self._context = context
        self._store = context.store
        self._plan = plan
        self._book = book
        self._clock = context.clock
        self._settings = context.settings
        self._over: set[str] = set()  # aborted ones with nothing under way any more
        # by campaign: when faults were weighed, and what it is held for, if it is
        self._weighed: dict[str, tuple[float, FaultEvidence, tuple[str, ...]]] = {}
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
                self._weighed.pop(campaign.id, None)
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
        grants = await self._store.grants.list()
        faults = await self._judge_faults(campaign, rows, now)

        def consider() -> Considered:
            standing = memory.read_facts(list(nodes.values()), campaign, pins, now, self._plan)
            facts = refuse_ungranted(standing, nodes, grants)
            progress = {name: row.progress for name, row in rows.items()}
            verdicts = (*judge_campaign(campaign, rows, _REGRESSION), *faults)
            decision = decide(campaign, facts, progress, verdicts, now)
            return Considered(decision, apply_decision(decision, progress, now))

        considered = await asyncio.to_thread(consider)  # 0.8 s at 65,536 nodes
        await self._carry_out(campaign, considered, memory, nodes, now)
        return considered.decision

    async def _judge_faults(
        self, campaign: Campaign, rows: Mapping[str, CampaignRow], now: float
    ) -> tuple[Blocker, ...]:
        """Return whether nodes fail more often since they run the campaign's release."""
        at, evidence, brought = self._weighed.get(campaign.id, (float("-inf"), None, ()))
        if evidence is None or at + WEIGHED_EVERY_S <= now:
            stays = await self._store.usage.list_stays(campaign.started_at, now)
            evidence = await asyncio.to_thread(weigh_campaign, stays, dict(rows))
            if is_held_by(evidence):
                _, listed = await self._store.evidence.list_versions()
                sets = {digest: name_versions(found) for digest, found in listed.items()}
                brought = find_brought(stays, rows, sets)
            self._weighed[campaign.id] = (now, evidence, brought)
        return judge_fault_rate(campaign, evidence, brought)

    async def _observe(
        self, campaign: Campaign, memory: Memory, nodes: Mapping[str, Node], now: float
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
        considered: Considered,
        memory: Memory,
        nodes: Mapping[str, Node],
        now: float,
    ) -> None:
        rows = memory.rows
        decision, written = considered
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
        """Write rows with their nodes' notices; after a crash the next turn decides the rest."""
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
