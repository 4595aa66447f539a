"""Watch nodes that serve tenants: the order of looks, and their consequences.

A timer loop, no operations: it writes only when something changed. It acts on nothing: the
reconciler carries out an alert's consequences for a node (`AlertKeeper.consider`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from provisioner.adapters.redfish.eventing.events import (
    LINKED_MAX,
    Metric,
    Pushed,
    RedfishEvent,
    find_signals,
    list_unlisted,
)
from provisioner.adapters.redfish.eventing.registries import PER_BMC_MAX
from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper, PortReport, PortWatch
from provisioner.control.watch.event_feeds import EventFeeds, EventMemory
from provisioner.control.watch.leaf_watch import LeafWatch
from provisioner.control.watch.partition_watch import PartitionWatch
from provisioner.control.watch.shards import JUST_BEFORE_S, Shards
from provisioner.control.watch.watched_nodes import (
    DueTimes,
    LeafCounts,
    LeakWatch,
    OpticKeeper,
    ReadQueue,
    Turns,
    WatchedNodes,
)
from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.alert import Signal
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker
from provisioner.planning.repair import case_joining
from provisioner.planning.watch import watch_rules
from provisioner.planning.watch.shards import find_shard
from provisioner.planning.watch.watch_rules import Found, signal_of
from provisioner.ports import EventStreams
from provisioner.store.repositories.alerts import SqlAlertRepository

UNJUDGED_MAX = 64  # events of one BMC that wait for their registries
ROUND_S = 5.0  # an alert's effect, a new node, an override's end are seen within this
LOOKS_MAX = 128  # nodes that are looked at at the same time; the budget limits them
LOOK_AGAIN_S = 300.0  # what BMCs say by themselves brings a sweep of a node so often at most
SWEEPS_MAX = 16  # the same of sweeps: some hundred requests each
ENDS_MAX = 16  # nodes whose subscriptions are ended at the same time: a batch of a campaign is 64


@dataclass(frozen=True)
class PortWatches:
    """The watches beside this one that lead; they are shown to people with it."""

    leaf_ports: LeafWatch | None = None
    partitions: PartitionWatch | None = None


ALONE = PortWatches()


@dataclass(frozen=True)
class WatchParts:
    """The watch's needs from outside. `listener`: URL that BMCs post events to; "": none."""

    book: SqlAlertRepository
    new_secret: Callable[[], str]
    streams: EventStreams | None = None
    listener: str = ""
    # gets the receiver of pushed events, and what is shown beside it
    attach: Callable[[Watcher, PortWatches], None] | None = None
    optics: OpticKeeper | None = None  # None: readings of optics are not kept
    # told of each document that a watched node's BMC sent: (node, BMC, document)
    heard: list[Callable[[str, str, Pushed], None]] = field(default_factory=list)


class Watcher:
    """`run` watches for ever. Released hosts only: everything else is in the reconciler's hands."""

    duty = "looks"

    def __init__(
        self,
        context: Context,
        parts: WatchParts,
        reach: Reach,
        submit: Callable[[str], Awaitable[None]],
        may_watch: Callable[[], bool] = lambda: True,
        on_raised: Callable[[str], None] | None = None,
        shards: Shards | None = None,
    ) -> None:
        """`shards`: whose nodes are looked at here; None: all."""
        self._shards = shards or Shards(context.store, context.clock)
        self._shards.attend(self)
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self.may_watch = may_watch  # an overloaded daemon puts routine looks off
        self._memory = EventMemory(parts.book)
        self.keeper = AlertKeeper(parts.book, context.store, context.clock, submit, on_raised)
        self.eyes = OutOfBand(reach, context.clock, context.settings.watch_requests_per_s)
        self.feeds = EventFeeds(
            parts.book,
            context.clock,
            self.eyes,
            self.receive,
            streams=parts.streams,
            listener=parts.listener,
            new_secret=parts.new_secret,
            streams_max=context.settings.watch_streams_max,
        )
        self.leaks = LeakWatch(self.eyes, self.keeper, context.store, context.clock)
        self.ports = PortWatch()
        self.optics = parts.optics
        self._heard = parts.heard
        self.leaves = LeafCounts(
            reach, context.clock, context.settings, self._counted, parts.optics
        )
        self.looked: dict[str, float] = {}  # node -> when it was last glanced at, for people
        self._turns: dict[str, Turns] = {}
        self._glances = DueTimes()
        self._sweeps = DueTimes()
        self._unread: set[str] = set()  # nodes of a start, or a new shard, that were not looked at
        self._generation = -1
        self._grouping = asyncio.Lock()
        self._fleet = WatchedNodes(self._shards)
        self._nodes: dict[str, Node] = {}
        self._looking = ReadQueue(LOOKS_MAX, lambda name: self._work(name, self._look_and_count))
        self._sweeping = ReadQueue(SWEEPS_MAX, lambda name: self._work(name, self._sweep))
        self._ending = ReadQueue(ENDS_MAX, self._end_feeds)

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self.run_round()
                await self._clock.sleep(ROUND_S)
        finally:
            await self.close()

    async def close(self) -> None:
        await self._looking.close()
        await self._sweeping.close()
        await self._ending.close()
        await self.feeds.close()
        await self.leaves.close()
        self.eyes.budget.close()

    async def run_round(self) -> None:
        """Run one round: begin the looks that are due, and tidy what time changed."""
        await self._group_nodes()
        nodes = self._fleet.all
        now = self._clock.now()
        for name, _ in self.feeds.broke:
            if name in self._turns:
                self._turns[name].glance_at = min(self._turns[name].glance_at, now)
        self.feeds.broke.clear()
        await asyncio.sleep(0)  # events are taken in between
        if not self._unread:
            self.eyes.budget.extra_per_s = 0.0
        if self.may_watch():
            for lane, times in ((self._looking, self._glances), (self._sweeping, self._sweeps)):
                due = times.list_due(now + ROUND_S)  # in this round or before the next
                lane.due([name for name in due if name not in lane.running])
            self.leaves.run_round(nodes)
        else:
            self._looking.due(())
            self._sweeping.due(())
        for name, conditions in self.ports.list_standing(now).items():
            if name in nodes:
                tenant = nodes[name].tenant
                named = [watch_rules.name_tenant(one, tenant) for one in conditions]
                # what exporters told the leader of a node that a peer counts stays apart, and its
                told: dict[str, Sequence[Found]] = {"watch.told": named}
                if self._shards.holds(nodes[name]):
                    told = {"watch.ports": named}
                    if self._shards.leads:
                        told["watch.told"] = ()
                await self.keeper.level(name, told)
        if self.optics is not None:
            await self.optics.read_hosts(nodes)
            for name, known in self.optics.list_standing().items():
                if name in nodes and self._shards.holds(nodes[name]):
                    ports = {f"{port.switch}/{port.interface}" for port in nodes[name].ports}
                    found = [known[p] for p in sorted(ports & known.keys())]
                    signals = {"watch.optics": [one for one in found if one is not None]}
                    await self.keeper.level(name, signals, ports - known.keys())
        await self.keeper.tidy(nodes, self._shards.holds)

    async def _group_nodes(self) -> None:
        """Learn which nodes are looked at here from now on."""
        async with self._grouping:
            self._fleet.take(await self._store.nodes.list())
            nodes = self._fleet.all
            self._nodes = self._fleet.watched
            moved = self._generation != self._shards.generation
            self._generation = self._shards.generation
            now = self._clock.now()
            for name in self._fleet.entered:
                node = self._nodes[name]
                since = self._shards.find_start(node, self.duty) if moved else now
                self._turns[name] = self._first(node, now, since)
            self.leaves.learn_cables(self._fleet.recabled)
            await self._leave(nodes)
            if self._fleet.gained:
                await self.feeds.restore(self._fleet.gained)
                self._fleet.gained.clear()
            if moved:
                self._pace_first_looks()

    def _pace_first_looks(self) -> None:
        """Give the first looks after a start, or at a new shard, requests of their own."""
        self._unread |= set(self._fleet.entered)
        self.eyes.budget.extra_per_s = watch_rules.compute_extra_rate(
            sum(len(self._nodes[name].bmcs) for name in self._unread),
            self._settings.watch_first_s,
            self._settings.watch_requests_per_s,
        )

    async def leave(self, shards: Collection[int]) -> float:
        """End the looks at nodes of shards that are given to peers (`shards.Duty`)."""
        names = {name for name, node in self._nodes.items() if find_shard(node) in shards}
        # a round begins the turns of the time until the next one
        undone = [self._turns[name].glance_at - JUST_BEFORE_S for name in names]
        reached = min([self._clock.now() + ROUND_S, *undone])
        ends = [self._fleet.all[name] for name in self._ending.running if name in self._fleet.all]
        ending = {node.id for node in ends if find_shard(node) in shards}
        lanes = (self._looking.leave(names), self._sweeping.leave(names), self.leaves.leave())
        await asyncio.gather(*lanes, self._ending.leave(ending))
        await self._group_nodes()
        return reached

    async def receive(self, node_id: str, bmc: str, document: Pushed) -> None:
        """Take in an event that a BMC pushed; one that it sent before, and replays, changes
        nothing.
        """
        node = self._nodes.get(node_id)
        turns = self._turns.get(node_id)
        if node is None or turns is None:
            return
        for tell in self._heard:
            tell(node_id, bmc, document)
        now = self._clock.now()
        turns.heard[bmc] = now
        document = await self._memory.drop_repeats(node_id, bmc, document)
        if document.asks_for_a_look and turns.pushed_at <= now:
            turns.pushed_at = max(now, turns.pushed_at + LOOK_AGAIN_S)
            turns.sweep_at = turns.parts_at = min(turns.sweep_at, turns.pushed_at)
        if document.unread:  # its BMC is asked, although it pushes its events
            turns.asked.pop(bmc, None)
            turns.glance_at = min(turns.glance_at, max(now, turns.pushed_at))
            linked = dict.fromkeys((*turns.linked.get(bmc, ()), *document.linked))
            turns.linked[bmc] = tuple(linked)[-LINKED_MAX:]
        if document.concerns_leaks:
            turns.glance_at = min(turns.glance_at, now)
        received = [*self._judge(node_id, turns, bmc, document)]
        received += self._measured(node_id, turns, bmc, document.metrics)
        changed = await self.keeper.report(node_id, received)
        await self._memory.remember(node_id, bmc, document)
        if changed:
            await self.keeper.consider(node)

    def _measured(
        self, node_id: str, turns: Turns, bmc: str, metrics: Sequence[Metric]
    ) -> list[Signal]:
        """The signals of streamed, posted or polled metrics: each report has other counters."""
        before = turns.metrics.setdefault(bmc, {})
        after = watch_rules.fatal_counters((m.name, m.value) for m in metrics)
        grown = watch_rules.fatal_growth(before, after)
        before |= after
        now = self._clock.now()
        return [signal_of(f, node_id, f"telemetry/{bmc}", now) for f in grown]

    @property
    def takes_reports(self) -> bool:
        """Return whether reports from outside are for this daemon: one of several takes all."""
        return self._shards.leads

    async def report(self, node_id: str, told: Sequence[Signal]) -> None:
        """Take in a report on a node from outside, through the webhook."""
        node = await self._store.nodes.get(node_id)
        if node is not None and await self.keeper.report(node_id, told):
            await self.keeper.consider(node)

    async def count(self, reports: Iterable[PortReport]) -> None:
        """Take in port counters from outside; the next round judges them."""
        for report in reports:
            self.ports.take(report)

    def _counted(self, report: PortReport) -> None:
        if report.node in self._nodes:  # else it left while its leaf was asked
            self.ports.take(report)

    def list_watched(self) -> list[tuple[Node, dict[str, float]]]:
        """Return the nodes that are watched now, and when each of their BMCs last answered."""
        return [(n, self._turns[n.id].heard) for n in self._nodes.values() if n.id in self._turns]

    def _first(self, node: Node, now: float, since: float) -> Turns:
        """Return turns spread over the whole interval by the node's name, so that no start is a
        storm, and that a peer that takes them over loses and repeats none.
        """
        settings = self._settings
        turns = Turns(node.id, self._glances, self._sweeps, now)
        turns.glance_at = watch_rules.find_next_turn(node.id, settings.watch_node_s, since)
        turns.sweep_at = watch_rules.find_next_turn(node.id, settings.watch_s, since)
        turns.parts_at = watch_rules.find_next_turn(node.id, settings.watch_parts_s, since)
        return turns

    def _work(
        self, name: str, look: Callable[[Node, Turns], Coroutine[None, None, None]]
    ) -> Coroutine[None, None, None] | None:
        node = self._nodes.get(name)
        turns = self._turns.get(name)
        if node is None or turns is None or not self._shards.holds(node):
            return None
        return look(node, turns)

    async def _look_and_count(self, node: Node, turns: Turns) -> None:
        """Look at a node; the first looks after a start are counted until all are done."""
        await self._look(node, turns)
        if self._unread:
            self._unread.discard(node.id)

    async def _look(self, node: Node, turns: Turns) -> None:
        """Read the log of every BMC of a node; subscribe to the events that it offers."""
        now = self._clock.now()
        interval_s = self._settings.watch_node_s
        turns.glance_at = watch_rules.find_later_turn(node.id, interval_s, turns.glance_at, now)
        level: dict[str, Sequence[Found | Signal]] = {}
        polled = [b for b in node.bmcs if not self._told(node, b, turns, now)]
        answers = await asyncio.gather(*(self._glance(node, bmc, turns) for bmc in polled))
        for bmc, entries in zip(polled, answers, strict=True):
            if entries is not None:
                received = find_signals(Pushed(events=entries), node.id, bmc.name, now)
                level[f"glance/{bmc.name}"] = [s for s in received if s.active]
        await self.leaks.check_detectors(node)
        now = self.looked[node.id] = self._clock.now()
        heard = {b.name: turns.heard.get(b.name, 0.0) for b in polled}
        limit_s = self._settings.watch_silent_s
        level["watch.silent"] = watch_rules.find_silent_bmcs(heard, turns.began_at, now, limit_s)
        certificate = None
        revoked = False
        if node.certificate:
            certificate, revoked = await self._store.evidence.read_standing(node.certificate)
        level["watch.age"] = watch_rules.certificate_age(certificate, now, revoked=revoked)
        if await self.keeper.level(node.id, level):
            await self.keeper.consider(node)

    async def _glance(
        self, node: Node, bmc: BmcRef, turns: Turns
    ) -> tuple[RedfishEvent, ...] | None:
        """Return the entries of one BMC's log, and subscribe to its events; None: no answer."""
        turns.asked.pop(bmc.name, None)
        entries = await self.eyes.read_log(node, bmc)
        if isinstance(entries, Blocker):
            return None
        turns.heard[bmc.name] = turns.asked[bmc.name] = self._clock.now()
        await self.feeds.attend(node, bmc)
        if linked := turns.linked.pop(bmc.name, ()):
            await self._take_linked(node, bmc, turns, linked)
        if wanted := turns.registries.pop(bmc.name, ()):
            await self.eyes.fetch_registries(node, bmc, wanted)
            await self._judge_again(node, turns, bmc.name)
        return entries

    def _judge(self, node: str, turns: Turns, bmc: str, document: Pushed) -> tuple[Signal, ...]:
        """Return the signals of events; those of an unknown registry are judged by it once it came.

        It is fetched at the next look, which comes soon.
        """
        names = list_unlisted(document)
        known = self.eyes.find_registries(node, bmc, names)
        if unknown := [name for name in names if name not in known]:
            wanted = dict.fromkeys((*turns.registries.get(bmc, ()), *unknown))
            turns.registries[bmc] = tuple(wanted)[:PER_BMC_MAX]
            waiting = [e for e in document.events if e.registry in unknown]
            turns.unjudged[bmc] = (*turns.unjudged.get(bmc, ()), *waiting)[-UNJUDGED_MAX:]
            turns.asked.pop(bmc, None)
            turns.glance_at = min(turns.glance_at, max(self._clock.now(), turns.pushed_at))
        return find_signals(document, node, bmc, self._clock.now(), known)

    async def _judge_again(self, node: Node, turns: Turns, bmc: str) -> None:
        """Judge the events that waited for registries; one whose registry did not come waits on."""
        waiting = turns.unjudged.pop(bmc, ())
        known = self.eyes.find_registries(node.id, bmc, [event.registry for event in waiting])
        turns.unjudged[bmc] = tuple(e for e in waiting if e.registry not in known)
        turns.registries[bmc] = tuple(dict.fromkeys(e.registry for e in turns.unjudged[bmc]))
        judged = Pushed(events=tuple(e for e in waiting if known.get(e.registry)))
        received = find_signals(judged, node.id, bmc, self._clock.now(), known)
        if await self.keeper.report(node.id, received):
            await self.keeper.consider(node)

    async def _take_linked(
        self, node: Node, bmc: BmcRef, turns: Turns, linked: Sequence[str]
    ) -> None:
        """Take in the events that a BMC sent as links to its log; one that is gone is no event."""
        for document in await self.eyes.read_entries(node, bmc, linked):
            fresh = await self._memory.drop_repeats(node.id, bmc.name, document)
            received = self._judge(node.id, turns, bmc.name, fresh)
            changed = await self.keeper.report(node.id, received)
            await self._memory.remember(node.id, bmc.name, fresh)
            if changed:
                await self.keeper.consider(node)

    def _told(self, node: Node, bmc: BmcRef, turns: Turns, now: float) -> bool:
        """Return whether it pushes its events, and answered since its turn: a reset ends that."""
        came = watch_rules.turn_came(f"{node.id}/{bmc.name}", self._settings.watch_told_s, now)
        return turns.asked.get(bmc.name, 0.0) >= came and self.feeds.is_reporting(node.id, bmc.name)

    async def _sweep(self, node: Node, turns: Turns) -> None:
        """Read all versions of every BMC of a node, and all parts now and then."""
        now = self._clock.now()
        settings = self._settings
        turns.sweep_at = watch_rules.find_later_turn(node.id, settings.watch_s, turns.sweep_at, now)
        parts = turns.parts_at <= now + ROUND_S
        if parts:
            period_s = settings.watch_parts_s
            turns.parts_at = watch_rules.find_later_turn(node.id, period_s, turns.parts_at, now)
        certificate = (
            await self._store.evidence.get_certificate(node.certificate)
            if node.certificate
            else None
        )
        if certificate is None:
            return  # said at every glance
        level: dict[str, Sequence[Found | Signal]] = {}
        received: list[Signal] = []
        for bmc in node.bmcs:
            metrics = await self.eyes.read_telemetry(node, bmc, anew=parts)
            received += self._measured(node.id, turns, bmc.name, metrics)
            inventory = await self._swept(node, bmc, turns, parts=parts)
            if inventory is None:
                continue
            level[f"watch.versions/{bmc.name}"] = watch_rules.find_drift(certificate, inventory)
            if parts and (clock := await self.eyes.read_skew(node, bmc)) is not None:
                skew = watch_rules.find_skew(
                    bmc.name, clock.skew_s, clock.uncertainty_s, self._settings.bmc_skew_limit_s
                )
                if skew is not None:  # else the next reading decides
                    level[f"watch.clock/{bmc.name}"] = skew
            if parts:
                level[f"watch.parts/{bmc.name}"] = watch_rules.find_swaps(certificate, inventory)
            if bmc.kind == "host":
                level |= self._find_lost(turns, bmc, certificate, inventory, parts=parts)
        grown = await self.keeper.report(node.id, received)
        if await self.keeper.level(node.id, level) or grown:
            await self.keeper.consider(node)

    def _find_lost(
        self, turns: Turns, bmc: BmcRef, certificate: Certificate, seen: Inventory, *, parts: bool
    ) -> dict[str, Sequence[Found | Signal]]:
        """Return the present conditions of lost parts; the next look comes earlier on a suspicion.

        Until every suspicion is confirmed or gone, present alerts are not changed.
        """
        if not case_joining.is_whole(seen):
            return {}
        now = self._clock.now()
        if not parts:
            if turns.lost or case_joining.may_have_lost(certificate, seen):
                turns.sweep_at = turns.parts_at = now
            return {}
        lost = case_joining.find_lost(certificate, seen)
        turns.lost = {part: turns.lost.get(part, now) for part in lost}
        standing, pending = case_joining.confirm_losses(lost, turns.lost, now)
        if pending:
            turns.sweep_at = turns.parts_at = now + case_joining.CONFIRM_S
            return {}
        if lost:
            turns.parts_at = turns.sweep_at  # read anew at each sweep, until it is back
        return {f"watch.lost/{bmc.name}": standing}

    async def _swept(
        self, node: Node, bmc: BmcRef, turns: Turns, *, parts: bool
    ) -> Inventory | None:
        inventory = await self.eyes.read_versions(node, bmc, parts=parts)
        if isinstance(inventory, Blocker):
            return None
        turns.heard[bmc.name] = self._clock.now()
        if parts:
            await self.leaks.take(node, bmc, inventory)
        return inventory

    async def _leave(self, nodes: dict[str, Node]) -> None:
        for name in self._fleet.left:
            self._turns.pop(name).end()
            if self._unread:
                self._unread.discard(name)
            self.looked.pop(name, None)
            self.eyes.forget_node(name)
            self.leaks.forget(name)
        # the leader counts what it is told of its peers' nodes too
        if over := {*self._fleet.left, *self._fleet.ended}:
            self.ports.forget(over)
        for name in self._fleet.ended:
            sources = ["watch.told"] if self._shards.leads else []
            sources += ["watch.ports"] if self._shards.holds(nodes.get(name)) else []
            if name in nodes:
                await self.keeper.level(name, dict.fromkeys(sources, ()))
        await self.feeds.keep_only(self._nodes)
        unwatched = set(filterfalse(self._nodes.__contains__, self.feeds.subscribed))
        known = [nodes[name] for name in sorted(unwatched & nodes.keys())]
        ours = [node.id for node in known if self._shards.holds(node)]
        if given := {node.id for node in known} - set(ours):
            self.feeds.hand_over(given)
        self._ending.due([name for name in ours if name not in self._ending.running])

    def _end_feeds(self, name: str) -> Coroutine[None, None, None] | None:
        node = self._fleet.all.get(name)
        if node is None or name in self._nodes or not self._shards.holds(node):
            return None
        return self.feeds.end(node)
