"""Drives the requests of people to reset a host's GPUs: each is an operation with one act.

A host that does not answer is asked again, TRIES_MAX times. Then the operation is parked with the
reason, an act without a certain outcome is settled as unclear, and a person asks anew.
"""

from __future__ import annotations

from provisioner.control.context import Context
from provisioner.control.node.power_switch import PASSING, TRIES_MAX
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.steps.requested_gpu_reset import GPUS, build_reset_work, list_idle_gpus
from provisioner.model.events.node_events import StepEnded
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry, OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.gpu_requests import WANT, WANT_FOR_TENANT, find_objection
from provisioner.planning.path.history import OPEN
from provisioner.ports import PortError

AGAIN = PASSING - {Reason.BUSY}  # a process on a GPU does not end by itself


class GpuResetter:
    """Carries out GPU resets; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def drive(self, hold: Hold) -> None:
        """Reset the GPUs, or go on with it, and end the operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        await hold.enter_phase(f"{WANT}: waits for the host")
        problem = await self._attempt(hold, node)
        for _ in range(TRIES_MAX - 1):
            if problem is None or problem.reason not in AGAIN:
                break
            await hold.enter_phase(f"{WANT}: tried again, {problem}")
            await self._clock.sleep(self._settings.poll_s)
            problem = await self._attempt(hold, node)
        entry = await self._find_entry(hold)
        if entry is not None and entry.status in OPEN:  # nothing but this operation takes it up
            await hold.settle_entry(entry, ActionStatus.UNCLEAR, outcome=str(problem))
        problems = () if problem is None else (str(problem),)
        event = StepEnded(about=node.id, step=WANT, problems=problems)
        await self._store.journal.append(event, self._clock.now())
        status = OperationStatus.DONE if problem is None else OperationStatus.PARKED
        count = 0 if entry is None else len(entry.before.get(GPUS, ()))
        note = f"{count} GPUs were reset and answer" if problem is None else str(problem)
        await self._store.operations.end(hold.operation, status, note)

    async def _attempt(self, hold: Hold, node: Node) -> Blocker | None:
        entry = await self._find_entry(hold)
        if entry is not None and entry.status is ActionStatus.CONFIRMED:
            return None  # by a predecessor
        going = entry if entry is not None and entry.status in OPEN else None
        gpus: tuple[str, ...] = ()
        try:
            if going is None:
                for_tenant = hold.operation.want == WANT_FOR_TENANT
                objection = find_objection(node, for_tenant=for_tenant)
                if objection is not None:
                    return objection  # it changed since the request
                idle = await list_idle_gpus(self._site, node)
                if isinstance(idle, Blocker):
                    return idle
                gpus = idle
            return await do_work(self._site, hold, build_reset_work(self._site, node, gpus), going)
        except PortError as error:
            return blocked(error, f"{node.id}/gpus")

    async def _find_entry(self, hold: Hold) -> LedgerEntry | None:
        """Return the newest row of this operation's act."""
        own = await hold.list_own_entries()
        return max(own, key=lambda entry: entry.attempt, default=None)
