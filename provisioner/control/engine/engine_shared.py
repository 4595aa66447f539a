"""The engine of several daemons: each takes its share of one queue, and takes over from dead peers.

An operation may begin again from its top, in another daemon or with newer code: its actions are
recorded in our own rows and on the device. A daemon that finds the lease of a dead one queues that
one's operations again. A sweep submits any active operation without a living driver, so that the
queue's own tables may be dropped at any time (docs/sources/engine.md#disposable).

Each of the three loops runs for ever. One that fails ends the daemon: without adoption and sweep a
site would stand still although every daemon lives, leads and beats.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from provisioner.control.engine.engine import FirstFailure
from provisioner.planning.lifecycle.admission import compute_share, has_too_many
from provisioner.ports import StoreFailed
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.sql_store import SqlStore

if TYPE_CHECKING:  # it needs the extra "postgresql"
    from provisioner.control.engine.cluster import Cluster

log = logging.getLogger(__name__)

ADOPT_S = 1.0  # between two looks for dead daemons
SPREAD_S = 1.0  # between two looks at how many there are to share the work
SWEEP_LEASES = 3.0  # between two sweeps; one that is missed twice is submitted anew


class WorkQueue(Protocol):
    """A queue that all daemons share; it records which executor took what."""

    async def open(self, executor: str, run: Callable[[str], Awaitable[None]]) -> None:
        """Begin to take operations, as this executor; `run` drives one to its end."""
        ...

    async def put(self, operation_id: str, *, again: bool = False) -> None:
        """Queue an operation; once, unless `again`: then it may have been queued before."""
        ...

    async def requeue(self, executor: str) -> int:
        """Queue again the operations that a dead executor had taken; return their number."""
        ...

    async def driven_by(self, living: frozenset[str]) -> frozenset[str]:
        """Return the operations that are queued, or that one of these executors has taken."""
        ...

    async def allow(self, count: int) -> None: ...

    async def forget(self) -> None:
        """Remove the records of operations that ended long ago."""
        ...

    def close(self) -> None: ...


class SharedEngine:
    """One per process. The queue, and how many each may take of it, is everybody's."""

    def __init__(
        self,
        store: SqlStore,
        drive: Callable[[str], Awaitable[None]],
        operations_max: int,
        cluster: Cluster,
        queue: WorkQueue,
    ) -> None:
        self._store = store
        self._drive = drive
        self._operations_max = operations_max
        self._cluster = cluster
        self._queue = queue
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._ticking: list[asyncio.Task[None]] = []
        self._stopping = False
        self._missed: frozenset[str] = frozenset()
        self._failure = FirstFailure()
        self._part = operations_max  # of all operations, as was counted last
        self._left: set[str] = set()  # to peers, as soon as their drivers have ended

    @property
    def running(self) -> int:
        """Return how many operations are driven here now."""
        return len(self._driven)

    async def failed(self) -> None:
        """Wait until the store fails a driver, or one of the engine's loops fails."""
        await self._failure.wait()

    async def start(self) -> None:
        """Begin to drive queued operations, and to take over from dead daemons."""
        await self._queue.open(self._cluster.id, self._here)
        self._ticking = [
            self._failure.watch(asyncio.create_task(self._adopt(), name="adopting")),
            self._failure.watch(asyncio.create_task(self._sweep(), name="sweeping")),
            self._failure.watch(asyncio.create_task(self._spread(), name="spreading")),
        ]

    async def submit(self, operation_id: str) -> None:
        """Queue an operation, once for any number of submissions."""
        await self._queue.put(operation_id)

    def leaves(self, operation_id: str) -> bool:
        """Return whether a peer shall go on with this one: the caller then ends at once."""
        if not has_too_many(len(self._driven) - len(self._left), self._part):
            return False
        self._left.add(operation_id)
        return True

    async def stop(self) -> None:
        """Stop driving. Operations taken so far stay as they are: a peer takes them over."""
        self._stopping = True
        await end_tasks(*self._ticking, *self._driven.values())
        self._queue.close()

    async def _here(self, operation_id: str) -> None:
        """Drive one operation in the daemon's own loop."""
        if operation_id in self._driven:
            return
        task = asyncio.ensure_future(self._drive(operation_id))
        self._driven[operation_id] = task
        try:
            await asyncio.wait({task})
            if operation_id in self._left:
                await self._queue.put(operation_id, again=True)
        finally:
            del self._driven[operation_id]
            self._left.discard(operation_id)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreFailed):
            self._failure.report(error)
        if self._stopping or isinstance(error, StoreFailed):
            await asyncio.Event().wait()  # it is not recorded as done: it is not
        if error is not None:
            log.error("operation %s is driven no more", operation_id, exc_info=error)

    async def _adopt(self) -> None:
        """Queue the operations of dead daemons again, for ever."""
        while True:
            await asyncio.sleep(ADOPT_S)
            for peer in await self._cluster.find_dead():
                count = await self._queue.requeue(peer.id)
                await self._cluster.let_go(peer)
                if count:
                    log.warning("took over %d operations of %s", count, peer.id)

    async def _spread(self) -> None:
        """Count this daemon's share of all operations, for ever; the leader sets it for all.

        Without it the first daemon to look takes all, and its peers have nothing to do.
        """
        while True:
            active = await self._cluster.count_active()
            daemons = await self._cluster.count_fit()
            self._part = compute_share(active, daemons, self._operations_max)
            if self._cluster.leads:
                await self._queue.allow(self._part)
            await asyncio.sleep(SPREAD_S)

    async def _sweep(self) -> None:
        """Submit active operations without a driver again, for ever; the leader does so."""
        await self._cluster.wait_for_lead()
        while True:
            living = await self._cluster.find_living()
            known = await self._store.operations.list_active()
            active = frozenset(o.id for o in known if not o.is_outside)
            missed = active - await self._queue.driven_by(living)
            for operation_id in sorted(missed & self._missed):
                log.warning("operation %s had no driver", operation_id)
                await self._queue.put(operation_id, again=True)
            self._missed = missed
            await self._queue.forget()
            await asyncio.sleep(SWEEP_LEASES * self._cluster.lease_s)
