"""The operations that people open by a request, and who drives each of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site, do_work
from provisioner.execution.observe.inband import boot_id
from provisioner.execution.steps.requested_acts import (
    GPUS,
    build_power_work,
    build_reset_work,
    build_time_work,
    list_idle_gpus,
    name_act,
)
from provisioner.model.events.node_events import StepEnded
from provisioner.model.node import BmcRef, Boots, Node
from provisioner.model.operation import ActionStatus, LedgerEntry, OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.gpu_requests import WANT as GPU_REQUESTS_WANT
from provisioner.planning.lifecycle.gpu_requests import WANT_FOR_TENANT, is_gpu_reset
from provisioner.planning.lifecycle.gpu_requests import (
    find_objection as gpu_requests_find_objection,
)
from provisioner.planning.lifecycle.operator_requests import WANT, list_clocks
from provisioner.planning.lifecycle.power_requests import (
    HOST,
    PowerAct,
    find_objection,
    is_for_tenant,
    read_want,
    write_want,
)
from provisioner.planning.path.history import OPEN
from provisioner.ports import PortError

# ------------------------------------------------------------------------------
# Drives the power requests of people: each is an operation with one physical act.
#
# A BMC that does not answer is asked again, TRIES_MAX times. Then the operation is parked with the
# reason, an act without a certain outcome is settled as unclear, and a person asks anew.


log = logging.getLogger(__name__)
TRIES_MAX = 5
PASSING = frozenset({Reason.UNREACHABLE, Reason.BUSY, Reason.ACCOUNT_LOCKED})


class RequestDriver:
    """What the drivers below share; one instance of each serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site

    async def _repeat(
        self,
        attempt: Callable[[], Awaitable[Blocker | None]],
        passing: Collection[Reason],
        tell: Callable[[str], Awaitable[object]] | None = None,
    ) -> Blocker | None:
        """Attempt an act up to TRIES_MAX times while its problem may pass; return the last one."""
        problem = await attempt()
        for _ in range(TRIES_MAX - 1):
            if problem is None or problem.reason not in passing:
                break
            if tell is not None:
                await tell(f"tried again, {problem}")
            await self._clock.sleep(self._settings.poll_s)
            problem = await attempt()
        return problem

    async def _settle(self, hold: Hold, entry: LedgerEntry | None, problem: Blocker | None) -> None:
        """Leave no row open: nothing but this operation takes it up."""
        if entry is not None and entry.status in OPEN:
            await hold.settle_entry(entry, ActionStatus.UNCLEAR, outcome=str(problem))

    async def _record(self, node: Node, step: str, problems: Sequence[Blocker]) -> None:
        event = StepEnded(about=node.id, step=step, problems=tuple(map(str, problems)))
        await self._store.journal.append(event, self._clock.now())


class PowerSwitch(RequestDriver):
    """Carries out power requests."""

    async def drive(self, hold: Hold, act: PowerAct) -> None:
        """Carry out an act, or go on with it, and end its operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        for_tenant = is_for_tenant(hold.operation.want)
        before = await boot_id(self._site, node) if for_tenant else None
        await hold.enter_phase(f"power {act.value}: waits for the BMC")
        problem = await self._repeat(
            partial(self._attempt, hold, node, act),
            PASSING,
            lambda words: hold.enter_phase(f"power {act.value}: {words}"),
        )
        await self._settle(hold, await self._find_entry(hold), problem)
        await self._record(node, write_want(act), () if problem is None else (problem,))
        status = OperationStatus.DONE if problem is None else OperationStatus.PARKED
        note = f"it is {act.end}" if problem is None else str(problem)
        if problem is None and for_tenant and act is not PowerAct.OFF:
            note += await self._prove_boot(hold, node, before)
        await self._store.operations.end(hold.operation, status, note, self._clock.now())

    async def _attempt(self, hold: Hold, node: Node, act: PowerAct) -> Blocker | None:
        entry = await self._find_entry(hold)
        if entry is None and (blocker := self._object(hold, node)) is not None:
            return blocker  # it changed since the request
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


# ------------------------------------------------------------------------------
# Drives the requests of people to set the time of a node's BMCs: one physical act at each.
#
# A BMC that does not answer is asked again, TRIES_MAX times. A failure at one BMC keeps none of the
# others; then the operation is parked with the reasons, and a person asks anew.


class ClockSetter(RequestDriver):
    """Sets the time of BMCs."""

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
        await self._record(node, WANT, problems)
        note = f"the time of {len(bmcs) - len(problems)} of {len(bmcs)} BMCs is set"
        note += "".join(f"; {problem}" for problem in problems)
        status = OperationStatus.PARKED if problems else OperationStatus.DONE
        await self._store.operations.end(hold.operation, status, note, self._clock.now())

    async def _set(self, hold: Hold, node: Node, bmc: BmcRef) -> Blocker | None:
        problem = await self._repeat(partial(self._attempt, hold, node, bmc), PASSING)
        await self._settle(hold, await self._find_entry(hold, node, bmc), problem)
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


# ------------------------------------------------------------------------------
# Drives the requests of people to reset a host's GPUs: each is an operation with one act.
#
# A host that does not answer is asked again, TRIES_MAX times. Then the operation is parked with the
# reason, an act without a certain outcome is settled as unclear, and a person asks anew.


AGAIN = PASSING - {Reason.BUSY}  # a process on a GPU does not end by itself


class GpuResetter(RequestDriver):
    """Carries out GPU resets."""

    async def drive(self, hold: Hold) -> None:
        """Reset the GPUs, or go on with it, and end the operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        await hold.enter_phase(f"{GPU_REQUESTS_WANT}: waits for the host")
        problem = await self._repeat(
            partial(self._attempt, hold, node),
            AGAIN,
            lambda words: hold.enter_phase(f"{GPU_REQUESTS_WANT}: {words}"),
        )
        entry = await self._find_entry(hold)
        await self._settle(hold, entry, problem)
        await self._record(node, GPU_REQUESTS_WANT, () if problem is None else (problem,))
        status = OperationStatus.DONE if problem is None else OperationStatus.PARKED
        count = 0 if entry is None else len(entry.before.get(GPUS, ()))
        note = f"{count} GPUs were reset and answer" if problem is None else str(problem)
        await self._store.operations.end(hold.operation, status, note, self._clock.now())

    async def _attempt(self, hold: Hold, node: Node) -> Blocker | None:
        entry = await self._find_entry(hold)
        if entry is not None and entry.status is ActionStatus.CONFIRMED:
            return None  # by a predecessor
        going = entry if entry is not None and entry.status in OPEN else None
        gpus: tuple[str, ...] = ()
        try:
            if going is None:
                for_tenant = hold.operation.want == WANT_FOR_TENANT
                objection = gpu_requests_find_objection(node, for_tenant=for_tenant)
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


def is_requested(want: str) -> bool:
    """Return whether an operation's purpose is a person's request, and not its node's journey."""
    return want == WANT or is_gpu_reset(want) or read_want(want) is not None


class RequestedActs:
    """Drives requests of people; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._power = PowerSwitch(context, site)
        self._gpus = GpuResetter(context, site)
        self._clocks = ClockSetter(context, site)

    async def drive(self, hold: Hold) -> None:
        """Carry out the request of an operation, or go on with it, and end the operation."""
        act = read_want(hold.operation.want)
        if act is not None:
            await self._power.drive(hold, act)
        elif is_gpu_reset(hold.operation.want):
            await self._gpus.drive(hold)
        else:
            await self._clocks.drive(hold)
