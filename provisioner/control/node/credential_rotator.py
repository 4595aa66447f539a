"""Drives the change of a node's logins: an operation, so that nothing else writes to its BMCs.

The BMCs of a node are independent of one another: all their changes go at once, and one that fails
keeps none of the others. A failure does not park the operation; its row has the time of the next
attempt, and `CredentialKeeper` opens an operation then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from provisioner.adapters.redfish.upkeep.certificates import is_locked, set_lockdown
from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.certificate_exchange import CertificateExchange
from provisioner.execution.observe.rotation import change_login
from provisioner.execution.steps.agent_steps import find_last, record_outcome
from provisioner.model.credential import RotationCause
from provisioner.model.events.node_events import StepEnded
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus, LedgerEntry, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.credential_rotation import BMC_CERTIFICATES_WANT as WANT
from provisioner.planning.lifecycle.credential_rotation import (
    compute_age_limit,
    is_due,
    list_due_certificates,
    list_logins,
)
from provisioner.ports import PortError
from provisioner.ports.certificates import CertificateAuthority

# ------------------------------------------------------------------------------
# Drives the exchange of a node's certificates: an operation, the node's only writer meanwhile.
#
# The BMCs of a node are independent of one another: all go at once. A failure does not park the
# operation; the BMC's row has the time of the next attempt, and `CertificateKeeper` opens another.


class CertificateExchanger:
    """Carries exchanges out; one instance serves all nodes of a daemon."""

    def __init__(
        self, context: Context, site: Site, authority: CertificateAuthority | None
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site
        self._authority = authority  # None: only what began earlier is brought to its end

    async def drive(self, hold: Hold) -> None:
        """Exchange the certificates of the node that are due, and end its operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        days = self._settings.bmc_certificate_renew_days
        due = list_due_certificates(node, self._clock.now(), days)
        await hold.enter_phase(f"{len(due)} certificates of BMCs are exchanged")
        exchanges = [
            CertificateExchange(self._site, self._store, self._authority, hold, bmc.name)
            for bmc in due
        ]
        outcomes = await asyncio.gather(*(exchange.run() for exchange in exchanges))
        problems = [problem for problem in outcomes if problem is not None]
        note = f"{len(due) - len(problems)} of {len(due)} certificates were exchanged"
        if problems:
            event = StepEnded(about=node.id, step=WANT, problems=tuple(map(str, problems)))
            await self._store.journal.append(event, self._clock.now())
            note += f"; {problems[0]}"
        await self._store.operations.end(hold.operation, OperationStatus.DONE, note)


# ------------------------------------------------------------------------------
# Lifts the lockdown of a host's BMC while an operation works on the host, and restores it.
#
# The ledger says that it is lifted before the BMC hears of it, and that it is restored after the
# BMC showed it. So whoever drives the node next, after a death at any point, restores it: before
# the node leaves the states in which its BMC is written to, and before the operation ends.


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


class CredentialRotator:
    """Carries rotations out; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def drive(self, hold: Hold) -> None:
        """Change the logins of the node that are due, and end its operation."""
        standings = self._store.credential_standings
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        now = self._clock.now()
        limit = compute_age_limit(now, self._settings.credential_days)
        rows = {s.name: s for s in await standings.list_node(node.id) if is_due(s, now, limit)}
        due: list[tuple[BmcRef, RotationCause]] = []
        for bmc in list_logins(node, switches=self._settings.credential_switches):
            row = rows.get(f"{node.id}/{bmc.name}")
            if row is not None:
                due.append((bmc, row.cause or RotationCause.SCHEDULE))
        await hold.enter_phase(f"{len(due)} passwords are changed")
        outcomes = await asyncio.gather(
            *(change_login(self._site, standings, node, bmc, cause) for bmc, cause in due)
        )
        problems = [problem for problem in outcomes if problem is not None]
        note = f"{len(due) - len(problems)} of {len(due)} passwords were changed"
        if problems:
            note += f"; {problems[0]}"
        await self._store.operations.end(hold.operation, OperationStatus.DONE, note)
