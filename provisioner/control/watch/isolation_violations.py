"""Record that ports of a node stood in a customer's network without a handover.

Each observer, a node's driver or the watch of leaves, records it before the ports are fenced: a
crash in between must not leave a node that counts as clean. Written are the journal, an erasure
that is owed and the question to a person on the node's row, and an alert that keeps the node from
tenants until it is certified anew. The case for a person is opened from the row (`repairs.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.port_owners import as_port
from provisioner.execution.tenancy.tenancy import MoveOutcome
from provisioner.model.adoption.capability import Capability
from provisioner.model.alert import Classification, Signal
from provisioner.model.events.node_events import PortIsolationViolated, PortsFenced
from provisioner.model.location import Port
from provisioner.model.node import Node, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement
from provisioner.planning.lifecycle.journey import enter_state, may_enter
from provisioner.planning.release import entitlement
from provisioner.planning.release.entitlement import mark_served, note_isolation_violations
from provisioner.ports import Clock, StaleWrite
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.sql_store import SqlStore

SOURCE = "watch.leaves"
WRITES_MAX = 16  # of one row that others change meanwhile
AGAIN_S = 3600.0  # the journal says of the same ports again after this
NOTED_MAX = 65_536


class IsolationViolations:
    """One instance serves the drivers and the watch of a daemon. `book` None: no alerts."""

    def __init__(
        self, store: SqlStore, clock: Clock, book: SqlAlertRepository | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._keeper = None if book is None else AlertKeeper(book, store, clock, _submit_nothing)
        self._noted: dict[str, tuple[frozenset[str], float]] = {}

    async def note(self, node: Node, found: Sequence[PortPlacement], seen_by: str) -> Node:
        """Record these ports of a node; return the node's present row, with the erasure owed.

        A new stay in maintenance begins with it: earlier erasures do not count.
        """
        await self.report(node, found, seen_by)
        return await self._begin_stay(node, found)

    async def report(self, node: Node, found: Sequence[PortPlacement], seen_by: str) -> None:
        """Record these ports in the journal and alert; the node's row stays as it is."""
        now = self._clock.now()
        if self._is_new(node.id, found, now):
            ports = list_ports(found)
            event = PortIsolationViolated(
                about=node.id, ports=ports, count=len(found), state=node.state, seen_by=seen_by
            )
            await self._store.journal.append(event, now)
            await self._alert(node.id, found, now)

    async def note_fenced(self, node: Node) -> Node:
        """Record that its ports have just been fenced; return the node's present row.

        Until then any system in that network could write to a disk, also after an erasure.
        """
        return await self._begin_stay(node, ())

    async def _begin_stay(self, node: Node, found: Sequence[PortPlacement]) -> Node:
        """Bind the owed erasure to a stay that begins now, despite concurrent changes of the row.

        The question to a person is written with it, so that no crash forgets to ask.
        """
        for _ in range(WRITES_MAX):
            stored = await self._store.nodes.get(node.id)
            if stored is None:
                return node
            changes: dict[str, Any] = {
                "served": mark_served(stored.served, [p.vrf for p in found]),
                "blockers": note_isolation_violations(stored, found),
            }
            if stored.fenced_at:  # else it is a stranger, which no stay has begun of
                changes["fenced_at"] = max(self._clock.now(), stored.fenced_at)
            try:
                return await self._store.nodes.save(stored.model_copy(update=changes))
            except StaleWrite:
                continue
        raise StaleWrite(f"node {node.id} is changed by others all the time")

    async def note_unowned(self, found: Sequence[PortPlacement]) -> None:
        """Record ports of one leaf that no node owns: in the journal and as alerts of the leaf."""
        now = self._clock.now()
        leaf = found[0].switch
        if self._is_new(leaf, found, now):
            ports = list_ports(found)
            event = PortIsolationViolated(
                about=leaf, ports=ports, count=len(found), state="", seen_by=SOURCE
            )
            await self._store.journal.append(event, now)
            await self._alert(leaf, found, now)

    def _is_new(self, name: str, found: Sequence[PortPlacement], now: float) -> bool:
        ports = frozenset(f"{p.switch}/{p.interface} {p.vrf}" for p in found)
        noted, at = self._noted.pop(name, (frozenset(), 0.0))
        is_new = not ports <= noted or now - at >= AGAIN_S
        self._noted[name] = (ports | noted, now) if is_new else (noted, at)
        while len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        return is_new

    async def _alert(self, node: str, found: Sequence[PortPlacement], now: float) -> None:
        if self._keeper is None:
            return
        signals = [
            Signal(
                node=node,
                id="PortTrespass",
                target=f"{p.switch}/{p.interface}",
                classifications=(Classification.PREVENT_ALLOCATIONS,),
                message=f"it stood in VRF {p.vrf} without a handover",
                source=SOURCE,
                at=now,
            )
            for p in found
        ]
        await self._keeper.report(node, signals)


def list_ports(placements: Sequence[PortPlacement]) -> tuple[str, ...]:
    """Return the first ports with their networks, as an event carries them."""
    return tuple(f"{p.switch}/{p.interface} in {p.vrf}" for p in placements[:64])


async def _submit_nothing(_operation: str) -> None:
    """Submit nothing: these alerts revoke nothing, so that no operation is opened for them."""


# ------------------------------------------------------------------------------
# Fence ports that a watch found in a customer's network, and keep their node for a person.
#
# The watch of leaves and that of InfiniBand partitions find such ports; the consequences are the
# same. The violation is recorded before the ports are moved, so that a crash in between forgets
# nothing.


TakeBack = Callable[[Node, Sequence[Blocker]], Awaitable[None]]
Move = Callable[[Sequence[Port], Node | None], Awaitable[MoveOutcome]]


class ViolationFence:
    """`take_back` hands a released node to its driver; `move` brings ports into maintenance."""

    def __init__(
        self,
        context: Context,
        violations: IsolationViolations,
        take_back: TakeBack,
        move: Move,
        seen_by: str,
    ) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._violations = violations
        self._take_back = take_back
        self._move = move
        self._seen_by = seen_by

    async def fence_node(self, node: Node, found: Sequence[PortPlacement]) -> None:
        """Record and fence ports of a node, which then waits for a person if it was no tenant's.

        An adopted node without the capability is reported, and left where it is.
        """
        act = f"fence {', '.join(list_ports(found)[:8])}"
        if await self._context.refuse_act(node, Capability.ISOLATION, act):
            await self._violations.report(node, found, self._seen_by)
            return
        node = await self._violations.note(node, found, self._seen_by)
        if node.state is State.RELEASED:
            await self._take_back(
                node, entitlement.list_isolation_violations(found)
            )  # its driver fences all of it
        confirmed = await self.fence_ports(node.id, found, node)
        if confirmed and node.state is not State.RELEASED:
            await self._park(await self._violations.note_fenced(node))

    async def fence_ports(
        self, subject: str, found: Sequence[PortPlacement], node: Node | None = None
    ) -> bool:
        """Move ports into maintenance; the journal has it whatever becomes of a row."""
        planned = {} if node is None else {(p.switch, p.interface): p for p in node.ports}
        keys = dict.fromkeys((p.switch, p.interface) for p in found)
        outcome = await self._move([planned.get(key) or as_port(*key) for key in keys], node)
        event = PortsFenced(
            about=subject,
            confirmed=not outcome.blockers,
            ports=list_ports(found),
            count=len(found),
            seen_by=self._seen_by,
            problems=tuple(str(b) for b in outcome.blockers[:4]),
        )
        await self._store.journal.append(event, self._clock.now())
        return not outcome.blockers

    async def _park(self, node: Node) -> None:
        """Put a node into quarantine, where it waits for a person; its driver sees the new row."""
        blockers = entitlement.unanswered(node)
        if not blockers or not may_enter(node, State.QUARANTINED, node.placement):
            return
        changes = {"blockers": blockers}
        now = self._clock.now()
        why = str(blockers[0])
        try:
            await self._store.nodes.save(enter_state(node, State.QUARANTINED, why, now, changes))
        except StaleWrite:
            return  # the row has the question and the erasure: its driver sees them there


def placement_facts(node: Node | None) -> tuple[object, ...]:
    """Return the part of a row that says where its ports may be."""
    if node is None:
        return ()
    when = (node.entered_at, node.fenced_at)
    return (node.state, node.placement, node.vrf, node.tenant, node.served, *when)
