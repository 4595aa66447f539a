"""The shards of a site whose duties are this daemon's: all, where it is alone.

Among several each shard is an advisory lock of the daemon's seat: no two hold it, and it goes with
the seat. Duties end before a lock is given back; a daemon that lost its seat sends nothing more
(`permit`) before a peer can take the lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, Protocol

from provisioner.control.context import FleetChanges
from provisioner.model.node import Node
from provisioner.planning.watch.shards import LANES, assign_shards, find_shard, name_unit
from provisioner.ports import Clock
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

JUST_BEFORE_S = 0.001  # a turn, so that this turn comes after the time that is noted
UNSEEN_S = 60.0  # of turns that are made up for at a start: a lease, a restart and some more
LEAVE_S = 20.0  # for work under way, before its shard is given to a peer
LOOK_S = 2.0  # a free shard is taken within this, a peer's is given to it within twice this


class Peers(Protocol):
    """This daemon among those that share duties (`engine.cluster.Cluster`)."""

    @property
    def number(self) -> int: ...

    @property
    def leads(self) -> bool: ...

    @property
    def lease_s(self) -> float: ...

    async def share(self) -> None:
        """Show that this daemon does duties, and may be given shards."""
        ...

    async def read_sharing(self) -> Mapping[int, frozenset[int]]:
        """Return the shards of each daemon that does duties, by its number."""
        ...

    async def take_shards(self, shards: Collection[int]) -> frozenset[int]:
        """Take those of these that are free, and return them."""
        ...

    async def give_shards(self, shards: Collection[int]) -> None: ...


class Duty(Protocol):
    """What is done for shards: a watch, or what sends notices. `duty` names it in the store."""

    @property
    def duty(self) -> str: ...

    async def leave(self, shards: Collection[int]) -> float:
        """End what is under way for these shards, which are not held any more.

        Return a time up to which each turn of theirs has begun, and none after it.
        """
        ...


class Shards:
    """`holds` says whose duties are ours; without a cluster they all are."""

    def __init__(self, store: SqlStore, clock: Clock, cluster: Peers | None = None) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self.generation = 0  # raised with every change of what is held
        self._duties: list[Duty] = []
        self._held: dict[int, dict[str, float]] = {}  # shard -> duty -> when its turns became ours
        # the last owner of each shard and when it had it last; those of now were read then
        self._seen: dict[int, tuple[int, float]] = {}
        self._owners: dict[int, int] = {}
        self._seen_at = 0.0
        self._changes = FleetChanges()
        self._shard_of: dict[str, int] = {}  # by node
        self._weights = Counter(LANES)
        self._units: dict[int, set[str]] = {}
        self.count = 1  # daemons that share the duties
        # which are to be ours, and of what facts that was computed
        self._asked: tuple[Mapping[int, frozenset[int]], dict[int, int]] = {}, {}
        self._ours: set[int] = set()

    @property
    def leads(self) -> bool:
        return self._cluster is None or self._cluster.leads

    def holds(self, node: Node | None) -> bool:
        """Return whether the duties of a node are ours; of one that is gone, the leader's."""
        if self._cluster is None:
            return True
        return self.leads if node is None else find_shard(node) in self._held

    @property
    def lanes(self) -> Set[int] | None:
        """Return the shards of notices that are ours (`find_lane`); None: all."""
        return None if self._cluster is None else self._held.keys() & LANES

    def find_start(self, node: Node, duty: str) -> float:
        """Return after which time the turns of a node are ours: a peer had those before.

        That may be some seconds ago, after a peer died.
        """
        held = self._held.get(find_shard(node), {})
        return held.get(duty, self._clock.now())

    def attend(self, duty: Duty) -> None:
        """Have this duty end before its shards are given back."""
        self._duties.append(duty)

    async def run(self) -> None:
        """Take and give shards for ever, among several daemons."""
        assert self._cluster is not None
        await self._cluster.share()
        while True:
            await self.settle(self._cluster)
            await self._clock.sleep(LOOK_S)

    async def settle(self, cluster: Peers) -> None:
        """Give the shards that peers are to have back, and take those that are free and ours."""
        nodes = await self._store.nodes.list()
        # a leaf with a damaged row is read all the same, and may have lost its place
        aside = await self._store.nodes.list_set_aside()
        self._weigh([*nodes, *aside] if aside else nodes)
        sharing = await cluster.read_sharing()
        self.count = max(1, len(sharing))
        asked = sharing, dict(self._weights)
        if asked != self._asked:  # else the same comes out: 12 ms at 2,000 units, each two seconds
            self._asked = asked
            self._seen |= {s: (number, self._seen_at) for s, number in self._owners.items()}
            self._owners = {s: number for number, shards in sharing.items() for s in shards}
            mine = cluster.number
            given = assign_shards(*asked, self._owners)
            self._ours = {s for s, number in given.items() if number == mine}
        if leaving := self._held.keys() - self._ours:
            await self._give(cluster, leaving)
        free = self._ours - self._owners.keys()
        taken = await cluster.take_shards(free) if free else frozenset()
        starts = await asyncio.gather(*(self._find_starts(shard, sharing) for shard in taken))
        self._held |= zip(taken, starts, strict=True)
        self._seen_at = self._clock.now()
        if leaving or taken:
            self.generation += 1
            units = self._held.keys() - LANES
            permit.get_scope().counts["shards"] = len(units)
            log.info("this daemon looks after %d shards: %s", len(units), self.describe())

    def describe(self) -> str:
        """Return the units that are looked after, the first ones by name."""
        units = sorted(u for s in self._held for u in self._units.get(s, ()))
        more = f" and {len(units) - 8} more" if len(units) > 8 else ""
        return ", ".join(units[:8]) + more

    async def _give(self, cluster: Peers, leaving: Collection[int]) -> None:
        """End the duties of shards, note how far they came, and give the shards back."""
        for shard in leaving:
            del self._held[shard]
        self.generation += 1
        reached = await asyncio.gather(*(one.leave(leaving) for one in self._duties))
        notes = [
            self._store.clock_marks.put(_mark(shard, one.duty), at)
            for one, at in zip(self._duties, reached, strict=True)
            for shard in leaving
        ]
        await asyncio.gather(*notes)
        await cluster.give_shards(leaving)

    async def _find_starts(self, shard: int, sharing: Collection[int]) -> dict[str, float]:
        """Return since when nobody has looked after a shard, by duty.

        A peer that lives has noted how far it came. One that died may have been silent for its
        lease before that was seen. Of one that was not seen to hold it nothing else is known: all
        may have died, and what fell due lately comes first.
        """
        assert self._cluster is not None
        owner, at = self._seen.get(shard, (0, 0.0))
        since = self._clock.now() - UNSEEN_S
        if owner and owner not in sharing:
            since = at - self._cluster.lease_s
        found = {}
        for one in self._duties:
            noted = await self._store.clock_marks.get(_mark(shard, one.duty))
            found[one.duty] = max(since, noted or 0.0)
        return found

    def _weigh(self, nodes: Sequence[Node]) -> None:
        """Count the nodes of each shard; of a fleet only what changed is counted again."""
        changes = self._changes.take(nodes)
        for name in changes.gone:
            self._weights[self._shard_of.pop(name)] -= 1
        for node in changes.changed:
            shard = find_shard(node)
            if (old := self._shard_of.get(node.id)) != shard:
                if old is not None:
                    self._weights[old] -= 1
                self._shard_of[node.id] = shard
                self._weights[shard] += 1
                self._units.setdefault(shard, set()).add(name_unit(node))
        self._weights = +self._weights  # without those that are empty


async def end_work(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for work of shards that are given away; cut off what takes too long."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=LEAVE_S)
        await end_tasks(*late)


def _mark(shard: int, duty: str) -> str:
    return f"{duty} of shard {shard}"
