"""Drives the requests of people to set the time of a node's BMCs: one physical act at each.

A BMC that does not answer is asked again, TRIES_MAX times. A failure at one BMC keeps none of the
others; then the operation is parked with the reasons, and a person asks anew.
"""

from __future__ import annotations

import logging

from provisioner.control.context import Context
from provisioner.control.node.power_switch import PASSING, TRIES_MAX
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.steps.requested_time import build_time_work, name_act
from provisioner.model.events.node_events import StepEnded
from provisioner.model.node import BmcRef, Node
from provisioner.model.operation import ActionStatus, LedgerEntry, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.time_requests import WANT, list_clocks
from provisioner.planning.path.history import OPEN
from provisioner.ports import PortError

log = logging.getLogger(__name__)


class ClockSetter:
    """Sets the time of BMCs; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def drive(self, hold: Hold) -> None:
        """Set the time of each BMC of the node, or go on with it, and end the operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        bmcs = list_clocks(node)
        problems = []
        for bmc in bmcs:
            await hold.enter_phase(f"{WANT}: {bmc.name}")
            problem = await self._set(hold, node, bmc)
            problems += [] if problem is None else [problem]
        event = StepEnded(about=node.id, step=WANT, problems=tuple(map(str, problems)))
        await self._store.journal.append(event, self._clock.now())
        note = f"the time of {len(bmcs) - len(problems)} of {len(bmcs)} BMCs is set"
        note += "".join(f"; {problem}" for problem in problems)
        status = OperationStatus.PARKED if problems else OperationStatus.DONE
        await self._store.operations.end(hold.operation, status, note)

    async def _set(self, hold: Hold, node: Node, bmc: BmcRef) -> Blocker | None:
        problem = await self._attempt(hold, node, bmc)
        for _ in range(TRIES_MAX - 1):
            if problem is None or problem.reason not in PASSING:
                break
            await self._clock.sleep(self._settings.poll_s)
            problem = await self._attempt(hold, node, bmc)
        entry = await self._find_entry(hold, node, bmc)
        if entry is not None and entry.status in OPEN:  # nothing but this operation takes it up
            await hold.settle_entry(entry, ActionStatus.UNCLEAR, outcome=str(problem))
        return problem

    async def _attempt(self, hold: Hold, node: Node, bmc: BmcRef) -> Blocker | None:
        name = f"{node.id}/{bmc.name}"
        entry = await self._find_entry(hold, node, bmc)
        if entry is not None and entry.status is ActionStatus.CONFIRMED:
            return None  # by a predecessor
        try:
            client = await self._site.reach.redfish(node, bmc.name)
            if isinstance(client, Blocker):
                return client
            work = build_time_work(self._site, name, client)
            going = entry if entry is not None and entry.status in OPEN else None
            return await do_work(self._site, hold, work, going)
        except PortError as error:
            log.info("%s: %s", name, error)
            return blocked(error, name)

    async def _find_entry(self, hold: Hold, node: Node, bmc: BmcRef) -> LedgerEntry | None:
        """Return the newest row of this operation's act at one BMC."""
        action = name_act(f"{node.id}/{bmc.name}")
        own = await hold.list_own_entries()
        return max((e for e in own if e.action == action), key=lambda e: e.attempt, default=None)
