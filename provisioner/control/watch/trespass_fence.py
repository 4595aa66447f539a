"""Fence ports that a watch found in a customer's network, and keep their node for a person.

The watch of leaves and that of InfiniBand partitions find such ports; the consequences are the
same. The trespass is recorded before the ports are moved, so that a crash in between forgets
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.control.context import Context
from provisioner.control.watch.trespasses import Trespasses, list_ports
from provisioner.control.watch.unowned_ports import as_port
from provisioner.execution.tenancy.tenancy import MoveOutcome
from provisioner.model.adoption.capability import Capability
from provisioner.model.events.node_events import PortsFenced
from provisioner.model.location import Port
from provisioner.model.node import Node, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.lifecycle.transition import enter_state
from provisioner.planning.release import entitlement
from provisioner.ports import StaleWrite

TakeBack = Callable[[Node, Sequence[Blocker]], Awaitable[None]]
Move = Callable[[Sequence[Port], Node | None], Awaitable[MoveOutcome]]


class TrespassFence:
    """`take_back` hands a released node to its driver; `move` brings ports into maintenance."""

    def __init__(
        self,
        context: Context,
        trespasses: Trespasses,
        take_back: TakeBack,
        move: Move,
        seen_by: str,
    ) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._trespasses = trespasses
        self._take_back = take_back
        self._move = move
        self._seen_by = seen_by

    async def fence_node(self, node: Node, found: Sequence[PortPlacement]) -> None:
        """Record and fence ports of a node, which then waits for a person if it was no tenant's.

        An adopted node without the capability is reported, and left where it is.
        """
        act = f"fence {', '.join(list_ports(found)[:8])}"
        if await self._context.refuse_act(node, Capability.ISOLATION, act):
            await self._trespasses.report(node, found, self._seen_by)
            return
        node = await self._trespasses.note(node, found, self._seen_by)
        if node.state is State.RELEASED:
            await self._take_back(
                node, entitlement.list_trespasses(found)
            )  # its driver fences all of it
        confirmed = await self.fence_ports(node.id, found, node)
        if confirmed and node.state is not State.RELEASED:
            await self._park(await self._trespasses.note_fenced(node))

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
