"""Lifts the lockdown of a host's BMC while an operation works on the host, and restores it.

The ledger says that it is lifted before the BMC hears of it, and that it is restored after the BMC
showed it. So whoever drives the node next, after a death at any point, restores it: before the
node leaves the states in which its BMC is written to, and before the operation ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.adapters.redfish.upkeep.lockdown import is_locked, set_lockdown
from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.steps.agent_steps import find_last, record_outcome
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError

LIFTED = "lockdown lifted"
RESTORED = "lockdown restored"
HOST = "host"
# states in which firmware, settings and boot sources of a host are written; one that comes out of a
# tenant is erased while it is draining, once it is fenced
WORKING = frozenset({State.DRAINING, State.CONVERGING, State.REPAIRING})


class LockdownBracket:
    """One instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._clock = context.clock
        self._site = site
        self._open: set[str] = set()  # operations whose BMC was looked at, and is not locked

    async def enter(self, hold: Hold, node: Node) -> Blocker | None:
        """Lift the lockdown before a turn that may write to the BMC; restore it before another."""
        if node.kind is not NodeKind.HOST:
            return None
        if not may_write(node):
            return await self.restore(hold, node)
        if hold.operation.id in self._open:
            return None
        return await self._lift(hold, node)

    def is_stale(self, hold: Hold, node: Node, inventory: Inventory | None) -> bool:
        """Return whether an inventory shows a lockdown that is lifted: it is read again later.

        Somebody may have locked the BMC meanwhile, so that the next turn looks at it again.
        """
        shown = inventory is not None and any(o.name == "lockdown" for o in inventory.obstacles)
        if not shown or not may_write(node) or hold.operation.id not in self._open:
            return False
        self._open.discard(hold.operation.id)
        return True

    async def restore(self, hold: Hold, node: Node) -> Blocker | None:
        """Lock the BMC again, if this daemon or a predecessor lifted its lockdown."""
        self._open.discard(hold.operation.id)
        if not is_lifted(await hold.list_entries()):
            return None
        name = f"{node.id}/{HOST}"
        try:
            client = await self._site.reach.redfish(node, HOST)
            if isinstance(client, Blocker):
                return client
            refused = await set_lockdown(client.service, locked=True)
        except PortError as error:
            return blocked(error, name)
        if refused is not None:
            return refused.model_copy(update={"subject": f"{name}/lockdown"})
        visit = {"visit": node.fenced_at}
        await record_outcome(hold, RESTORED, visit, ActionStatus.CONFIRMED, "")
        return None

    async def _lift(self, hold: Hold, node: Node) -> Blocker | None:
        name = f"{node.id}/{HOST}"
        try:
            client = await self._site.reach.redfish(node, HOST)
            if isinstance(client, Blocker):
                return client
            if await is_locked(client.service):
                if not is_lifted(await hold.list_entries()):
                    visit = {"visit": node.fenced_at}
                    await record_outcome(hold, LIFTED, visit, ActionStatus.CONFIRMED, "")
                refused = await set_lockdown(client.service, locked=False)
                if refused is not None:
                    return refused.model_copy(update={"subject": f"{name}/lockdown"})
        except PortError as error:
            return blocked(error, name)
        self._open.add(hold.operation.id)
        return None


def may_write(node: Node) -> bool:
    """Return whether the host's BMC is written to: it is fenced, and out of service."""
    return node.state in WORKING and node.placement is Placement.MAINTENANCE


def is_lifted(rows: Sequence[LedgerEntry]) -> bool:
    """Return whether the newest word of the ledger is that the lockdown was lifted."""
    lifted = find_last(rows, LIFTED)
    restored = find_last([r for r in rows if r.status is ActionStatus.CONFIRMED], RESTORED)
    if lifted is None:
        return False
    return restored is None or restored.intended_at < lifted.intended_at
