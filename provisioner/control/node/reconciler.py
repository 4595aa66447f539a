"""One node, one turn: observe, decide, act, record. Start, event, timer and crash are one path.

The reconciler gets only the operation to drive, never the change that caused it. It may be stopped
at any await; the next driver of the operation begins with the open actions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from provisioner.control.context import Context
from provisioner.control.node.credential_rotator import (
    CertificateExchanger,
    CredentialRotator,
    LockdownBracket,
)
from provisioner.control.node.observer import Observer
from provisioner.control.node.performer import Performer
from provisioner.control.node.requested_acts import RequestedActs, is_requested
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.model.events.node_events import NodeParked, NodeWaits
from provisioner.model.node import Node
from provisioner.model.operation import OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import BMC_CERTIFICATES_WANT as CERTIFICATES
from provisioner.planning.lifecycle.credential_rotation import WANT as ROTATION
from provisioner.planning.lifecycle.decide import (
    Enter,
    Execute,
    Rest,
    Turn,
    Wait,
    decide,
    decide_after_failure,
)
from provisioner.planning.lifecycle.journey import JOURNEY
from provisioner.planning.path.history import find_open_entries
from provisioner.ports import DamagedRow, Fenced, PortError, StaleWrite, StoreFailed
from provisioner.runtime.log_context import set_log_context

log = logging.getLogger(__name__)
WAITS_MAX = 8  # blockers of one wait that are written down


@dataclass(frozen=True)
class Drivers:
    """What drives operations that are no journey; without one, its operations take turns."""

    requested: RequestedActs | None = None
    rotator: CredentialRotator | None = None
    exchanger: CertificateExchanger | None = None
    lockdown: LockdownBracket | None = None  # None: a BMC in lockdown waits for a person


def _stays(_: str) -> bool:
    return False


def _beside(_: str) -> AbstractAsyncContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class Engaged:
    """What an engine asks of the operations that it drives, by their ids."""

    leaves: Callable[[str], bool] = _stays  # whether a peer shall continue it
    # what it is inside of while it only waits
    away: Callable[[str], AbstractAsyncContextManager[None]] = _beside


class Reconciler:
    """Drives operations; one instance serves all nodes of a daemon."""

    def __init__(
        self,
        context: Context,
        observer: Observer,
        performer: Performer,
        sure: Callable[[], Awaitable[None]] | None = None,
        drivers: Drivers = Drivers(),
        end_look: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._performer = performer
        self._sure = sure  # waits while the time is in doubt
        self._drivers = drivers
        self._lockdown = drivers.lockdown
        self._end_look = end_look  # at a node that rests, which an operation takes over

    async def drive(self, operation_id: str, engaged: Engaged = Engaged()) -> None:
        """Drive one operation until its node rests. Re-enterable from any point."""
        try:
            known = await self._store.operations.get(operation_id)
            if known is not None and known.is_outside:
                return
            operation = await self._store.operations.take(operation_id)
        except Fenced:
            return  # it is over
        except DamagedRow as error:
            log.error("operation %s is not driven: %s", operation_id, error)
            return
        if self._end_look is not None:
            await self._end_look(operation.node)
        hold = Hold(self._store, self._clock, operation)
        with set_log_context(node=operation.node, operation=operation.id):
            await self._driven(hold, engaged)

    async def _driven(self, hold: Hold, engaged: Engaged) -> None:
        operation = hold.operation
        drivers = self._drivers
        try:
            if operation.want == ROTATION and drivers.rotator is not None:
                await drivers.rotator.drive(hold)
            elif operation.want == CERTIFICATES and drivers.exchanger is not None:
                await drivers.exchanger.drive(hold)
            elif drivers.requested is not None and is_requested(operation.want):
                await drivers.requested.drive(hold)
            else:
                await self._turns(hold, engaged)
        except Fenced:
            log.info("operation %s: another driver has taken it over", operation.id)
        except DamagedRow as error:  # of this node: whatever else is stored, it is not driven
            log.error("operation %s of %s: parked: %s", operation.id, operation.node, error)
            await self._park(hold, error.blocker())
        except StoreFailed:
            raise  # ends the daemon: the node is not to blame, and its successor observes again
        except Exception:  # our own bug: parked and reported, never retried
            log.exception("operation %s of %s: parked", operation.id, operation.node)
            await self._park(hold, _bug(operation.node))

    async def _turns(self, hold: Hold, engaged: Engaged) -> None:
        failures = unseen = 0  # in a row: acts that failed, looks that showed nothing
        while True:
            if self._sure is not None:
                await self._sure()
            node = await self._store.nodes.get(hold.operation.node)
            assert node is not None
            if (damaged := self._store.nodes.find_damaged().get(node.id)) is not None:
                await self._park(hold, damaged)
                return
            try:
                turn, blockers = await self._turn(hold, node)
                unseen = unseen + 1 if blockers and isinstance(turn, Wait) else 0
                failures = failures + 1 if blockers and not unseen else failures
                if blockers:
                    turn = await self._fail(hold, tuple(blockers), unseen or failures)
            except StaleWrite:
                continue  # another writer (a person, the allocator) changed the node: observe again
            except DamagedRow as error:
                if error.node in ("", node.id):
                    raise
                log.error("%s waits: %s", node.id, error)  # another node's row: that one is parked
                await self._clock.sleep(self._settings.retry_s)
                continue
            if not (blockers or isinstance(turn, Wait)) or isinstance(turn, Enter):
                failures = 0  # waiting is no success of what failed before
            if isinstance(turn, Rest):
                left = await self._lock_again(hold)
                if left is None:
                    await self._store.operations.end(hold.operation, OperationStatus.DONE, turn.why)
                    return
                why = f"its lockdown is not restored: {left}"
                turn = Wait(after_s=self._settings.retry_s, why=why)
            if isinstance(turn, Wait):
                await self._note(hold, turn.why, blockers)
            if not failures and not unseen and engaged.leaves(hold.operation.id):
                return  # between two turns nothing is known here that is not stored
            if isinstance(turn, Wait):
                async with engaged.away(hold.operation.id):
                    await self._clock.sleep(min(turn.after_s, self._settings.retry_max_s))

    async def _lock_again(self, hold: Hold) -> Blocker | None:
        """Restore a lockdown that was lifted; return why it is not restored."""
        if self._lockdown is None:
            return None
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        return await self._lockdown.restore(hold, node)

    async def _fail(self, hold: Hold, blockers: tuple[Blocker, ...], failures: int) -> Turn:
        """Return the turn after a failed one; a lasting failure is entered at once."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        turn = decide_after_failure(
            node, blockers, failures=failures, retry_s=self._settings.retry_s
        )
        if isinstance(turn, Enter):
            await self._performer.perform(hold, node, turn, None)
        return turn

    async def _turn(self, hold: Hold, node: Node) -> tuple[Turn, Sequence[Blocker]]:
        """Run one turn; return the decision and its blockers."""
        try:
            unfinished = find_open_entries(await self._store.operations.list_entries(node.id))
            if unfinished:
                problem = await self._performer.resume(hold, node, unfinished)
                if problem is not None:
                    return Rest(why=str(problem)), (problem,)
            if self._lockdown is not None:
                refused = await self._lockdown.enter(hold, node)
                if refused is not None:
                    return Rest(why=str(refused)), (refused,)
            view = await self._observer.observe(node, hold.operation.id)
            if self._lockdown is not None and self._lockdown.is_stale(hold, node, view.inventory):
                why = "its lockdown is lifted, and its BMC is read again"
                return Wait(after_s=self._settings.poll_s, why=why), ()
            if view.placement is not None:  # the newest proof of where its ports are
                unrecorded = view.placement is not node.placement
                view = view.model_copy(update={"unrecorded": unrecorded})
                node = node.model_copy(update={"placement": view.placement, "vrf": view.vrf})
            turn = decide(node, view, self._settings.poll_s)
            if view.unseen:
                return turn, view.unseen
            if isinstance(turn, Execute):
                waiting = await self._performer.admit(hold, node, turn.step)
                if waiting:
                    return Wait(after_s=self._settings.poll_s, why=waiting[0]), ()
            problems = await self._performer.perform(hold, node, turn, view)
        except PortError as error:
            problem = blocked(error, node.id)
            return Rest(why=str(problem)), (problem,)
        return self._within_limit(node, turn), problems

    def _within_limit(self, node: Node, turn: Turn) -> Turn:
        """Report a wait beyond the state's limit; it does not change the state."""
        limit_s = JOURNEY[node.state].limit_s
        if isinstance(turn, Wait) and self._clock.now() - node.entered_at > limit_s:
            log.warning(
                "%s is %s for longer than %.0f s: %s", node.id, node.state, limit_s, turn.why
            )
        return turn

    async def _note(self, hold: Hold, why: str, blockers: Sequence[Blocker]) -> None:
        """Record the node's reason to wait where people look for it, with the remedies."""
        node = await self._store.nodes.get(hold.operation.node)
        if node is not None and node.note != why:
            events = [NodeWaits(blockers=tuple(blockers[:WAITS_MAX]))] if blockers else []
            await hold.record(node=node.model_copy(update={"note": why}), events=events)

    async def _park(self, hold: Hold, why: Blocker) -> None:
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        await self._lock_again(hold)
        parked = node.model_copy(update={"blockers": (why,), "note": str(why)})
        events = [NodeParked(why=str(why))]
        try:
            await hold.record(node=parked, events=events)
        except StaleWrite:  # its own row is damaged, and nothing is written over that
            await hold.record(events=events)
        now = self._clock.now()
        await self._store.operations.end(hold.operation, OperationStatus.PARKED, str(why), now)


def _bug(node: str) -> Blocker:
    return Blocker(
        reason=Reason.OUR_BUG,
        subject=node,
        detail="the provisioner failed an assertion of its own; see its log",
        unblock="Report it with the log; then retry the node.",
    )
