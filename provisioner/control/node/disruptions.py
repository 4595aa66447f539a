"""The nodes that are out of service now, with cause and place: the limits hold among all daemons.

A place is taken in the operation's own row (`phase`), so that it is still taken after a crash and
visible to every daemon; it is free again when the step ends, or the operation does.
"""

from __future__ import annotations

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.leaf_turns import turn
from provisioner.model.node import Node
from provisioner.model.plan import Disruption, Step
from provisioner.planning.lifecycle.admission import find_admission_reasons
from provisioner.ports import Store

# The name of the turn in which limits are looked at and places are taken: no switch is called so.
ADMISSION = "/admission"


class Disruptions:
    """Only switches have limits; a step on a host disrupts that host alone."""

    def __init__(self, store: Store, switches_down_percent: int) -> None:
        self._store = store
        self._percent = switches_down_percent

    async def admit(self, hold: Hold, node: Node, step: Step) -> tuple[str, ...]:
        """Return why a step must wait; nothing: its place is taken, and `over` gives it back.

        Limits are checked and the place is taken in one breath: two switches must not both pass.
        """
        if step.disruption is not Disruption.SWITCH:
            return ()
        async with turn(ADMISSION):
            active = await self._store.operations.list_active()
            taken = {o.node: Disruption(o.phase) for o in active if o.phase and o.node != node.id}
            nodes = await self._store.nodes.list()
            reasons = find_admission_reasons(node, step, nodes, taken, self._percent)
            if not reasons:
                await hold.enter_phase(step.disruption.value)
            return reasons

    async def note_end(self, hold: Hold) -> None:
        """Record that a step has ended, well or not: its disruptions are over, or belong to no
        node.
        """
        if hold.operation.phase:
            await hold.enter_phase("")
