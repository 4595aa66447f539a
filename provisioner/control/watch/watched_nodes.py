"""The nodes that the watch looks at, from one round to the next.

Of a fleet little changes in five seconds: only what changed is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol
from zlib import crc32

from provisioner.adapters.redfish.eventing.events import RedfishEvent
from provisioner.control.context import FleetChanges
from provisioner.control.watch.alert_keeper import AlertKeeper, PortReport
from provisioner.control.watch.shards import Shards, end_work
from provisioner.execution.actions.power import SOURCE
from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.watch import OutOfBand
from provisioner.model.alert import Signal
from provisioner.model.inventory import Inventory, LeakDetector
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Port
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.watch.leaks import carry_detectors, drop_accepted, list_signals
from provisioner.planning.watch.watch_rules import Counters
from provisioner.ports import Clock, PortError, StoreFailed, SwitchRefused
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# When each watched node is looked at next, so that a round visits those that are due alone.
#
# A fleet of 65,536 nodes has some 180 looks in five seconds: to ask all of them for their turn
# would cost more than to begin these.


STALE_MAX = 1024  # entries that were put off, above one for each name


class DueTimes:
    """The time at which each name is due, in seconds since 1970."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []  # a heap; an entry counts if its time is `_at`'s
        self._due: dict[str, None] = {}  # out of the heap, in its order, until set anew

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def get(self, name: str) -> float:
        """Return when a name is due; never, if it has no time."""
        return self._at.get(name, float("inf"))

    def set(self, name: str, at: float) -> None:
        if self._at.get(name) == at:
            return
        self._at[name] = at
        self._due.pop(name, None)
        heappush(self._order, (at, name))
        if len(self._order) > 2 * len(self._at) + STALE_MAX:
            self._order = [(at, name) for name, at in self._at.items() if name not in self._due]
            heapify(self._order)

    def forget(self, name: str) -> None:
        self._at.pop(name, None)
        self._due.pop(name, None)

    def list_due(self, until: float) -> list[str]:
        """Return the names that are due by then, the longest overdue first.

        They stay due until they get another time. `until` grows from call to call: of two names
        that became due between two calls the earlier one comes first.
        """
        while self._order and self._order[0][0] <= until:
            at, name = heappop(self._order)
            if self._at.get(name) == at:
                self._due[name] = None
        return list(self._due)


class Turns:
    """When a node is looked at next, and when each of its BMCs was last heard of."""

    def __init__(self, node: str, glances: DueTimes, sweeps: DueTimes, began_at: float) -> None:
        self.node = node
        self._glances = glances
        self._sweeps = sweeps
        self._ended = False
        self.parts_at = began_at
        self.began_at = began_at
        self.pushed_at = float("-inf")  # when an event last brought a sweep, or will
        self.heard: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # when a glance at it was answered
        self.linked: dict[str, tuple[str, ...]] = {}  # BMC -> event records that are links
        self.registries: dict[str, tuple[str, ...]] = {}  # BMC -> those that are to be fetched
        self.unjudged: dict[str, tuple[RedfishEvent, ...]] = {}  # BMC -> events that wait for these
        self.metrics: dict[str, dict[str, float]] = {}
        self.lost: dict[str, float] = {}  # part -> when it was first not seen

    @property
    def glance_at(self) -> float:
        """When its BMCs' logs are read."""
        return self._glances.get(self.node)

    @glance_at.setter
    def glance_at(self, at: float) -> None:
        if not self._ended:
            self._glances.set(self.node, at)

    @property
    def sweep_at(self) -> float:
        return self._sweeps.get(self.node)

    @sweep_at.setter
    def sweep_at(self, at: float) -> None:
        if not self._ended:
            self._sweeps.set(self.node, at)

    def end(self) -> None:
        """Have no more turns; a look that is under way brings none back."""
        self._ended = True
        self._glances.forget(self.node)
        self._sweeps.forget(self.node)


# ------------------------------------------------------------------------------
# Looks of one kind: the longest overdue first, so many at the same time and no more.


log = logging.getLogger(__name__)


class ReadQueue:
    """`begin` makes the look at a node of this name; None: it is not to be looked at any more."""

    def __init__(
        self, most: int, begin: Callable[[str], Coroutine[None, None, None] | None]
    ) -> None:
        self._most = most
        self._begin = begin
        self._waiting: list[str] = []  # the next one last
        self.running: dict[str, asyncio.Task[None]] = {}
        self._lost: StoreFailed | None = None

    def due(self, names: Sequence[str]) -> None:
        """Look at these, the first one first, instead of those that were due; none may be running.

        Raises `StoreFailed` if the store failed in an earlier look: the daemon ends then.
        """
        if self._lost is not None:
            raise self._lost
        self._waiting = list(reversed(names))
        self._fill()

    async def leave(self, names: Collection[str]) -> None:
        """Begin none of these looks, and wait for those under way; cut off what takes too long."""
        self._waiting = [name for name in self._waiting if name not in names]
        await end_work([task for name, task in self.running.items() if name in names])

    async def close(self) -> None:
        self._waiting.clear()
        await end_tasks(*self.running.values())

    def _fill(self) -> None:
        # whenever one ends, not only in each round: else `most` a round is all that can be done
        while self._waiting and len(self.running) < self._most:
            name = self._waiting.pop()
            look = self._begin(name)
            if look is not None:
                task = asyncio.ensure_future(look)
                self.running[name] = task
                task.add_done_callback(partial(self._done, name))

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        self.running.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreFailed):
            self._lost = error
        elif error is not None:
            log.error("watch of %s failed", name, exc_info=error)
        self._fill()


# ------------------------------------------------------------------------------
# Counts at the leaf ports of nodes that serve: whether they have carrier, how often it changed.
#
# The pull path for link flaps: a leaf is the provisioner's to ask, the tenant's host is not. One
# request at a time to each leaf, spread over the interval, so that its API has room for moves.


LEAVES_MAX = 32  # asked at the same time, each by one request


class OpticKeeper(Protocol):
    """Keeps readings of optics, and judges them day by day."""

    def take(
        self, node: str, port: str, reading: LinkReading, at: float, changes: int | None, link: str
    ) -> None:
        """Keep one reading of "leaf/port". `changes`: of its carrier; `link`: "up", "down"."""
        ...

    def end_look(self, leaf: str) -> None: ...

    async def read_hosts(self, nodes: Mapping[str, Node]) -> None:
        """Learn what the hosts' own ends tell of optics that degrade."""
        ...

    def list_standing(self) -> Mapping[str, Mapping[str, Signal | None]]:
        """Return node -> "leaf/port" -> that its optic announces its end; None: it does not.

        A port of which nothing can be told is not in it: that ends no alert.
        """
        ...


class LeafCounts:
    """The counts of leaves. `round` begins due readings. `take` gets each port that was read."""

    def __init__(
        self,
        reach: Reach,
        clock: Clock,
        settings: Settings,
        take: Callable[[PortReport], None],
        optics: OpticKeeper | None = None,
    ) -> None:
        self._reach = reach
        self._clock = clock
        self._settings = settings
        self._interval_s = settings.watch_s
        self._take = take
        self._due = DueTimes()
        self._asking = ReadQueue(LEAVES_MAX, self._begin)
        self._nodes: Mapping[str, Node] = {}
        # leaf -> the ports of each watched host that has one at it
        self._hosts: dict[str, dict[str, Sequence[Port]]] = {}
        self.read: dict[str, float] = {}  # leaf -> when its ports were last counted, for people
        self._optics = optics  # None: nobody keeps them

    def run_round(self, nodes: Mapping[str, Node]) -> None:
        """Ask the leaves of watched nodes whose turn it is; the longest overdue first."""
        self._nodes = nodes
        asking = self._asking.running
        due = self._due.list_due(self._clock.now())
        self._asking.due([name for name in due if name not in asking])

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        hosts = self._hosts.get(name)
        if hosts is None:
            return None  # its last host left since its turn came
        self._due.set(name, self._clock.now() + self._interval_s)
        leaf = self._nodes.get(name)
        if leaf is None or leaf.kind is not NodeKind.SWITCH:
            return None
        ports = [
            (port.interface, host)
            for host, its_ports in hosts.items()
            for port in its_ports
            if port.switch == name
        ]
        return self._ask(leaf, sorted(ports))

    def learn_cables(self, recabled: Iterable[tuple[Node | None, Node | None]]) -> None:
        """Learn which hosts are to be counted at which leaf, from pairs of a watched node before
        and after; None: it was not watched, or is not any more.
        """
        leaves: set[str] = set()
        for before, after in recabled:
            if before is not None:
                for leaf in {port.switch for port in before.ports}:
                    leaves.add(leaf)
                    del self._hosts[leaf][before.id]
            if after is not None:
                for leaf in {port.switch for port in after.ports}:
                    leaves.add(leaf)
                    self._hosts.setdefault(leaf, {})[after.id] = after.ports
        for leaf in leaves:
            if not self._hosts[leaf]:
                del self._hosts[leaf]
                self._due.forget(leaf)
                self.read.pop(leaf, None)
            elif leaf not in self._due:
                share = crc32(leaf.encode()) / 2**32
                self._due.set(leaf, self._clock.now() + share * self._interval_s)

    async def leave(self) -> None:
        """Wait for the readings under way, as a peer is to count some of their ports."""
        await self._asking.leave(tuple(self._asking.running))

    async def close(self) -> None:
        await self._asking.close()

    async def _ask(self, leaf: Node, ports: list[tuple[str, str]]) -> None:
        """Read all these ports of a leaf. A counter that it does not report counts nothing."""
        try:
            address = await self._reach.switch(leaf)
            if isinstance(address, Blocker):
                return
            switch = self._reach.switches.open(leaf.id, address, self._clock, self._settings)
            up: tuple[str, ...] | None = None
            with suppress(SwitchRefused):
                up = await switch.read_carriers()
            for interface, node in ports:
                values: dict[str, int] = {}
                with suppress(SwitchRefused):
                    changes = (await switch.read_counters(interface)).carrier_changes
                    values |= {} if changes is None else {"carrier_changes": changes}
                reading = None
                with suppress(SwitchRefused):
                    reading = await switch.read_link(interface)
                    values |= reading.queues
                link = "" if up is None else "up" if interface in up else "down"
                now = self._clock.now()
                counters = Counters(at=now, values=values) if values else None
                name = f"{leaf.id}/{interface}"
                if reading is not None and self._optics is not None:
                    changes = values.get("carrier_changes")
                    self._optics.take(node, name, reading, now, changes, link)
                if counters is not None or link:
                    report = PortReport(node=node, port=name, counters=counters, link=link, at=now)
                    self._take(report)
            if self._optics is not None:
                self._optics.end_look(leaf.id)
            self.read[leaf.id] = self._clock.now()
        except PortError as error:
            log.info("%s: its ports were not counted: %s", leaf.id, error)


# ------------------------------------------------------------------------------
# Looks at the leak detectors of serving hosts, at each glance, along the paths of an inventory.
#
# A host without detectors costs no request: they are looked for with its parts, now and then.


class LeakWatch:
    """`keeper` takes in the alerts; the store has the inventories of before."""

    def __init__(self, eyes: OutOfBand, keeper: AlertKeeper, store: SqlStore, clock: Clock) -> None:
        self._eyes = eyes
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._seen: dict[str, tuple[LeakDetector, ...]] = {}

    async def check_detectors(self, node: Node) -> None:
        """Read the detectors of a host, and report those that are not dry."""
        host = next((bmc for bmc in node.bmcs if bmc.kind == "host"), None)
        if host is None:
            return
        if node.id not in self._seen:
            stored = await self._store.evidence.get_inventory(node.id)
            self._seen[node.id] = () if stored is None else stored.leaks
        if known := self._seen[node.id]:
            detectors = await self._eyes.read_leaks(node, host, [d.source for d in known])
            if detectors is not None:
                await self._report(node, detectors)

    async def take(self, node: Node, bmc: BmcRef, read: Inventory) -> None:
        """Take in a reading of all parts, which lists the detectors of the host."""
        if bmc.kind == "host":
            await self._report(node, read.leaks)

    async def _report(self, node: Node, detectors: Sequence[LeakDetector]) -> None:
        """Report those that are not dry, and those that were seen once and are not shown."""
        carried = carry_detectors(self._seen.get(node.id, ()), detectors)
        alerts = await self._keeper.book.list(node.id)
        self._seen[node.id] = carried = drop_accepted(carried, alerts)
        now = self._clock.now()
        await self._keeper.report(node.id, list_signals(node.id, carried, SOURCE, now))

    def forget(self, node: str) -> None:
        """Discard the detectors of a node that no longer serves."""
        self._seen.pop(node, None)


class WatchedNodes:
    """`all` has every node by id, `watched` the released hosts of our shards that have BMCs.

    Of the last `take`: `entered` are the nodes that are watched now and were not before, `left`
    those that are not any more, `ended` those that serve no more, whoever watched them, and
    `recabled` pairs of a watched node before and after, where its ports differ; None stands for a
    node that is not watched. `gained` are nodes that became ours, until the caller empties it.
    `shards` None: all are ours.
    """

    def __init__(self, shards: Shards | None = None) -> None:
        self._shards = shards
        self._generation = 0
        self.all: dict[str, Node] = {}
        self.watched: dict[str, Node] = {}
        self.entered: list[str] = []
        self.left: list[str] = []
        self.ended: list[str] = []
        self.recabled: list[tuple[Node | None, Node | None]] = []
        self.gained: set[str] = set()
        self._ours: set[str] = set()
        self._serving: set[str] = set()
        self._changes = FleetChanges()

    def take(self, nodes: Sequence[Node]) -> None:
        self.entered = []
        self.left = []
        self.ended = []
        self.recabled = []
        changes = self._changes.take(nodes)
        for node in changes.changed:
            self.all[node.id] = node
            if node.state is State.RELEASED and node.kind is NodeKind.HOST and node.bmcs:
                self._serving.add(node.id)
            else:
                self._end(node.id)
            self._weigh(node)
        for name in changes.gone:
            del self.all[name]
            self._end(name)
            self._ours.discard(name)
            self.gained.discard(name)
            self._sort(name, None)
        if self._shards is not None and self._shards.generation != self._generation:
            self._generation = self._shards.generation
            for node in self.all.values():
                self._weigh(node)

    def _weigh(self, node: Node) -> None:
        """Say whether a node is ours, and watched."""
        ours = self._shards is None or self._shards.holds(node)
        if not ours:
            self._ours.discard(node.id)
            self.gained.discard(node.id)
        elif node.id not in self._ours:
            self._ours.add(node.id)
            self.gained.add(node.id)
        self._sort(node.id, node if ours and node.id in self._serving else None)

    def _end(self, name: str) -> None:
        if name in self._serving:
            self._serving.discard(name)
            self.ended.append(name)

    def _sort(self, name: str, after: Node | None) -> None:
        before = self.watched.get(name)
        if after is not None:
            self.watched[name] = after
            if before is None:
                self.entered.append(name)
            if before is None or before.ports != after.ports:
                self.recabled.append((before, after))
        elif before is not None:
            del self.watched[name]
            self.left.append(name)
            self.recabled.append((before, None))
