"""The order of work: opens an operation for every node that has something to do.

It reads the nodes' rows only, and may be run at any time, by any daemon, any number of times: the
store allows one active operation per node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter

from provisioner.control.context import Context, FleetChanges
from provisioner.control.node.observing import is_only_looked_at
from provisioner.control.node.requested_acts import is_requested
from provisioner.model.events.node_events import NodeParked, RemedyTried
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.planning.tenancy.allocation import allocate_nodes, is_unassigned
from provisioner.planning.tenancy.spares import SpareReserve
from provisioner.ports import StaleWrite
from provisioner.settings import Settings

WORKING = frozenset(
    {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.DRAINING}
)

OPENED_AT_ONCE = 64  # operations: their rows share commits
PART = 4096  # nodes that are counted in one go: about a millisecond
AWAKE_PART = 512  # nodes that are asked for their work in one go: the same


def wants_turn(
    node: Node, settings: Settings, last_look: float, now: float, *, watcher: bool = False
) -> bool:
    """Return whether an operation is to be opened for this node now.

    `watcher`: released hosts that are well are looked at by the watch, within its budget.
    """
    if node.is_parked:
        return False  # a person looks at it first
    if node.state in WORKING:
        return True
    if node.state is State.CERTIFIED and node.tenant:
        return True
    watched = node.state is State.CERTIFIED or (
        node.state is State.RELEASED
        and (not watcher or node.kind is NodeKind.SWITCH or bool(node.blockers))
    )
    return watched and now - _latest((last_look, node.entered_at), now) >= settings.watch_s


def _latest(times: Iterable[float], now: float) -> float:
    """Return the latest time that is past; one in the future was noted by a clock that was wrong,
    and would otherwise keep a node from being looked at until that day.
    """
    return max((at for at in times if at <= now), default=float("-inf"))


def is_resting(node: Node) -> bool:
    """Return whether, with a watch, nothing but a change of its row makes work of it: most
    nodes do.
    """
    return node.state is State.RELEASED and node.kind is NodeKind.HOST and not node.blockers


def choose_remedy(node: Node, settings: Settings, now: float) -> Node | None:
    """An automatic try to leave quarantine: passing causes only, rate-limited and counted."""
    if node.state is not State.QUARANTINED or node.attempts >= settings.remedies_max:
        return None
    if node.placement is not Placement.MAINTENANCE or not node.blockers:
        return None
    if not all(b.reason in PASSING for b in node.blockers):
        return None
    if now - _latest((node.entered_at,), now) < settings.remedy_s * 2**node.attempts:
        return None
    attempts = node.attempts + 1
    why = f"tried again by itself ({attempts})"
    return enter_state(node, State.CONVERGING, why, now, {"blockers": (), "attempts": attempts})


class Scheduler:
    """Ticks until cancelled. `submit` hands an operation to the engine."""

    def __init__(
        self,
        context: Context,
        submit: Callable[[str], Awaitable[None]],
        held: Callable[[], Awaitable[frozenset[str]]] | None = None,
        may_begin: Callable[[Node], bool] = lambda _: True,
        look: Callable[[Node], None] | None = None,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._submit = submit
        self._held = held  # nodes that alerts keep from tenants; None: there is no watch
        self._may_begin = may_begin  # an overloaded daemon begins little
        self._look = look  # at a node that rests; None: an operation looks
        self._looked: dict[str, float] = {}
        self._parked: set[str] = set()  # for a damaged row, by this process
        self._changes = FleetChanges()
        self._awake: dict[str, Node] = {}  # nodes that do not rest
        self._reserve = SpareReserve(context.settings.spares_per_unit)

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s`."""
        while True:
            await self.tick()
            await self._clock.sleep(self._settings.poll_s)

    async def tick(self) -> None:
        """Look at all nodes once."""
        now = self._clock.now()
        nodes = await self._store.nodes.list()
        held = frozenset() if self._held is None else await self._held()
        active = await self._store.operations.list_active()
        held |= {o.node for o in active if o.is_outside}  # its note says what has it
        nodes = await self._park_damaged(nodes, now)
        awake = self._list_awake(nodes)
        awake = await self._allocate(nodes, awake, await self._store.tenants.list(), held, now)
        busy = {o.node for o in active}
        for requested in (o for o in active if is_requested(o.want)):
            await self._submit(requested.id)  # opened by the API, for a person
        opened: list[Node] = []
        for number, node in enumerate(awake):
            if number % AWAKE_PART == 0:
                await asyncio.sleep(0)
            if node.id in busy or not self._may_begin(node):
                continue
            ready = choose_remedy(node, self._settings, now)
            if ready is not None:
                try:
                    node = await self._store.nodes.save(ready)
                except StaleWrite:
                    continue  # a person asked for something meanwhile; the next tick sees it
                event = RemedyTried(about=node.id, attempt=node.attempts)
                await self._store.journal.append(event, now)
            looked = self._looked.get(node.id, 0.0)
            watcher = self._held is not None
            if wants_turn(node, self._settings, looked, now, watcher=watcher):
                self._looked[node.id] = now
                if self._look is not None and is_only_looked_at(node):
                    self._look(node)
                    continue
                opened.append(node)
        for begin in range(0, len(opened), OPENED_AT_ONCE):
            part = opened[begin : begin + OPENED_AT_ONCE]
            await asyncio.gather(*(self._open(node, now) for node in part))

    async def _open(self, node: Node, now: float) -> None:
        """Open an operation for a node, unless it has an active one, and have it driven."""
        operation = await self._store.operations.open(node.id, node.state.value, now)
        if operation is not None:
            await self._submit(operation.id)

    async def _park_damaged(self, nodes: Sequence[Node], now: float) -> Sequence[Node]:
        """Park nodes of which a damaged row was met; return the nodes that may be given work.

        A node whose own row is damaged cannot be written: the journal names it, once.
        """
        damaged = self._store.nodes.find_damaged()
        if not damaged:
            return nodes
        for node in (await self._store.nodes.list_named(damaged.keys() - self._parked)).values():
            why = damaged[node.id]
            self._parked.add(node.id)
            if not node.is_parked:
                parked = node.model_copy(update={"blockers": (why,), "note": str(why)})
                try:
                    await self._store.nodes.save(parked)
                except StaleWrite:
                    # another daemon was faster; the next tick sees it
                    self._parked.discard(node.id)
                    continue
            await self._store.journal.append(NodeParked(about=node.id, why=str(why)), now)
        return [n for n in nodes if n.id not in damaged]

    def _list_awake(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """Return the nodes that do not rest, by id; only nodes that changed are looked at."""
        changes = self._changes.take(nodes)
        for node in changes.changed:
            self._reserve.put(node)
            if self._held is not None and is_resting(node):
                self._awake.pop(node.id, None)
            else:
                self._awake[node.id] = node
        for name in changes.gone:
            self._reserve.drop(name)
            self._awake.pop(name, None)
        return sorted(self._awake.values(), key=attrgetter("id"))

    async def _allocate(
        self,
        nodes: Sequence[Node],
        awake: Sequence[Node],
        tenants: Sequence[Tenant],
        held: frozenset[str],
        now: float,
    ) -> Sequence[Node]:
        """Assign free nodes to tenants; return the awake nodes as they are after it."""
        # an allocated node counts for its tenant, whatever stands against it
        free = [n for n in awake if is_unassigned(n) and n.id not in held]
        picked = frozenset(name for t in tenants for name in t.picked)
        spares = self._reserve.list_names(held | picked)
        if all(n.id in spares for n in free):
            return awake  # the usual case
        owned = await self._count_owned(nodes)
        if not any(t.phase is Phase.READY and t.nodes_wanted > owned[t.name] for t in tenants):
            return awake  # hosts are left over
        counted = [n for n in nodes if n.tenant or not (n.id in held or n.id in spares)]
        pairs = dict(allocate_nodes(counted, tenants, now))
        by_name = {t.name: t for t in tenants}
        result = []
        for node in awake:
            name = pairs.get(node.id)
            if name is None:
                result.append(node)
                continue
            try:
                result.append(await self._store.tenants.allocate(node, by_name[name], now))
            except StaleWrite:
                continue  # another daemon or a person was faster; the next tick sees it
        return result

    async def _count_owned(self, nodes: Sequence[Node]) -> Counter[str]:
        """Return the number of hosts of each tenant; a fleet is counted in parts, between which
        others run.
        """
        owned: Counter[str] = Counter()
        for begin in range(0, len(nodes), PART):
            part = nodes[begin : begin + PART]
            owned.update(n.tenant for n in part if n.kind is NodeKind.HOST)
            await asyncio.sleep(0)
        return owned
