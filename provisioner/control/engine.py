"""Who drives operations: the port, and the embedded engine, one process that drives every one.

A file lock keeps the embedded one single. At start it drives every active operation again: that,
and nothing else, is crash recovery. `engine_dbos.py` is for several daemons on one database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from provisioner.ports import Store, StoreFailed

WAITING_MAX = 64  # pieces of work: what the store does in some ten milliseconds


class Engine(Protocol):
    """`drive(operation)` runs under one live owner, and again after that owner's death."""

    @property
    def running(self) -> int:
        """How many operations are driven or queued in this process."""
        ...

    async def failed(self) -> None:
        """Until the store fails one that drives: raises its `StoreFailed`, which ends the daemon.

        The operation stays active, and is driven again by whoever comes next.
        """
        ...

    def leaves(self, operation_id: str) -> bool:
        """Whether a peer shall go on with this one: its driver, which waits, then ends at once."""
        ...

    async def start(self) -> None:
        """Take up what is active."""
        ...

    async def submit(self, operation_id: str) -> None:
        """Have an operation driven, unless it is driven already."""
        ...

    async def stop(self) -> None:
        """Drive no more; what is under way on devices goes on, and is found again."""
        ...


class StoreLoss:
    """The first failure of the store under an operation, for whoever waits for it."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self._error = StoreFailed("the store failed")

    def tell(self, error: StoreFailed) -> None:
        """It failed; later ones say nothing new."""
        if not self._told.is_set():
            self._error = error
            self._told.set()

    async def wait(self) -> None:
        """Until it failed, and then raise that."""
        await self._told.wait()
        raise self._error


class EmbeddedEngine:
    """`drive` runs under one live owner per operation, at most `operations_max` at once."""

    def __init__(
        self, store: Store, drive: Callable[[str], Awaitable[None]], operations_max: int
    ) -> None:
        self._store = store
        self._drive = drive
        self._slots = asyncio.Semaphore(operations_max)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taking_up: asyncio.Task[None] | None = None
        self._loss = StoreLoss()

    async def failed(self) -> None:
        """Until the store fails one that drives."""
        await self._loss.wait()

    async def start(self) -> None:
        """Begin to take up every operation that was active when the last process ended."""
        left = [o.id for o in await self._store.active_operations()]
        self._taking_up = asyncio.create_task(self._take_up(left), name="taking up")

    async def _take_up(self, left: Sequence[str]) -> None:
        """At the store's pace: of thousands, the first goes on before the last is looked at."""
        for operation_id in left:
            await self.submit(operation_id)
            await asyncio.sleep(0)
            while self._store.waiting > WAITING_MAX:  # noqa: ASYNC110  (a thread's queue)
                await asyncio.sleep(0.002)

    async def submit(self, operation_id: str) -> None:
        """Drive an operation, unless this process drives it already."""
        if operation_id in self._tasks:
            return
        task = asyncio.create_task(self._run(operation_id), name=operation_id)
        self._tasks[operation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation_id, None))

    def leaves(self, operation_id: str) -> bool:
        """Never: there is no peer."""
        return False

    async def _run(self, operation_id: str) -> None:
        async with self._slots:
            try:
                await self._drive(operation_id)
            except StoreFailed as error:
                self._loss.tell(error)

    @property
    def running(self) -> int:
        """How many operations are driven or queued now."""
        return len(self._tasks)

    async def stop(self) -> None:
        """Stop driving; what is under way on devices goes on and is found again at the start."""
        tasks = [*([self._taking_up] if self._taking_up else []), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
