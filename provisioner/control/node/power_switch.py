"""Drives the power requests of people: each is an operation with one physical act.

A BMC that does not answer is asked again, TRIES_MAX times. Then the operation is parked with the
reason, an act without a certain outcome is settled as unclear, and a person asks anew.
"""

from __future__ import annotations

import logging

from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.observe.inband import boot_id
from provisioner.execution.steps.requested_power import build_power_work
from provisioner.model.events.node_events import StepEnded
from provisioner.model.node import Boots, Node
from provisioner.model.operation import ActionStatus, LedgerEntry, OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.power_requests import (
    HOST,
    PowerAct,
    find_objection,
    is_for_tenant,
    write_want,
)
from provisioner.planning.path.history import OPEN
from provisioner.ports import PortError

log = logging.getLogger(__name__)
TRIES_MAX = 5
PASSING = frozenset({Reason.UNREACHABLE, Reason.BUSY, Reason.ACCOUNT_LOCKED})


class PowerSwitch:
    """Carries out power requests; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def drive(self, hold: Hold, act: PowerAct) -> None:
        """Carry out an act, or go on with it, and end its operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        for_tenant = is_for_tenant(hold.operation.want)
        before = await boot_id(self._site, node) if for_tenant else None
        await hold.enter_phase(f"power {act.value}: waits for the BMC")
        problem: Blocker | None = None
        for attempt in range(TRIES_MAX):
            problem = await self._attempt(hold, node, act)
            if problem is None or problem.reason not in PASSING or attempt + 1 == TRIES_MAX:
                break
            await hold.enter_phase(f"power {act.value}: tried again, {problem}")
            await self._clock.sleep(self._settings.poll_s)
        await self._settle(hold, problem)
        problems = () if problem is None else (str(problem),)
        event = StepEnded(about=node.id, step=write_want(act), problems=problems)
        await self._store.journal.append(event, self._clock.now())
        status = OperationStatus.DONE if problem is None else OperationStatus.PARKED
        note = f"it is {act.end}" if problem is None else str(problem)
        if problem is None and for_tenant and act is not PowerAct.OFF:
            note += await self._prove_boot(hold, node, before)
        await self._store.operations.end(hold.operation, status, note)

    async def _attempt(self, hold: Hold, node: Node, act: PowerAct) -> Blocker | None:
        entry = await self._find_entry(hold)
        if entry is None and (no := self._object(hold, node)) is not None:
            return no  # it changed since the request
        try:
            host = await self._site.reach.redfish(node, HOST)
            if isinstance(host, Blocker):
                return host
            work = build_power_work(self._site, node, host, act)
            return await do_work(self._site, hold, work, entry)
        except PortError as error:
            log.info("%s: %s", node.id, error)
            return blocked(error, node.id)

    def _object(self, hold: Hold, node: Node) -> Blocker | None:
        return find_objection(node, for_tenant=is_for_tenant(hold.operation.want))

    async def _prove_boot(self, hold: Hold, node: Node, before: str | None) -> str:
        """Wait until the system runs under another boot id and return it as text.

        A tenant may have shut the daemon out of its system: silence is no failure of the act.
        """
        if node.boots is Boots.HANDED_OVER:
            return "; its system has no login of the daemon's"
        until = self._clock.now() + self._settings.boot_limit_s
        await hold.enter_phase("waits for its system")
        while self._clock.now() < until:
            now = await boot_id(self._site, node)
            if now is not None and now != before:
                return f"; its system answers, boot id {now}, before: {before or 'none'}"
            await self._clock.sleep(self._settings.poll_s)
        return "; its system did not answer the daemon"

    async def _find_entry(self, hold: Hold) -> LedgerEntry | None:
        """Return the open row of this operation's act: of a predecessor, or of a lost answer."""
        own = await hold.list_own_entries()
        return next((e for e in own if e.status in OPEN), None)

    async def _settle(self, hold: Hold, problem: Blocker | None) -> None:
        """Leave no row open: nothing but this operation takes it up."""
        entry = await self._find_entry(hold)
        if entry is not None:
            await hold.settle_entry(entry, ActionStatus.UNCLEAR, outcome=str(problem))
