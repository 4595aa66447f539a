"""Who drives operations: the port, and the embedded engine, one process that drives every one.

A file lock keeps the embedded one single. At start it drives every active operation again: that,
and nothing else, is crash recovery. `engine_shared.py` is for several daemons.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from provisioner.ports import StoreFailed
from provisioner.runtime.event_loop import end_tasks
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

WAITING_MAX = 64  # pieces of work, for which the store needs some ten milliseconds


class Engine(Protocol):
    """`drive(operation)` runs under one live owner, and again after that owner's death."""

    @property
    def running(self) -> int:
        """Return how many operations are driven or queued in this process."""
        ...

    async def failed(self) -> None:
        """Wait until the store fails a driver, or a loop of the engine fails; raise its error.

        It ends the daemon. Operations stay active, and the next daemon drives them again.
        """
        ...

    def leaves(self, operation_id: str) -> bool:
        """Whether a peer shall go on with this one: its driver, which waits, then ends at once."""
        ...

    async def start(self) -> None: ...

    async def submit(self, operation_id: str) -> None:
        """Have an operation driven, unless it is driven already."""
        ...

    async def stop(self) -> None:
        """Stop driving; actions on devices continue, and are found again."""
        ...


class FirstFailure:
    """The first failure of several tasks, for one waiter; later ones add nothing."""

    def __init__(self) -> None:
        self._reported = asyncio.Event()
        self._error: BaseException = StoreFailed("the store failed")

    def report(self, error: BaseException) -> None:
        if not self._reported.is_set():
            self._error = error
            self._reported.set()

    def watch(self, task: asyncio.Task[Any], *, ends: bool = False) -> asyncio.Task[Any]:
        """Report the error of a task; without `ends`, its end as well, but not its cancelling."""

        def ended(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                log.error("%s failed", task.get_name(), exc_info=error)
                self.report(error)
            elif not ends:
                self.report(AssertionError(f"{task.get_name()} ended, and should never have"))

        task.add_done_callback(ended)
        return task

    async def wait(self) -> None:
        """Wait until something failed, and then raise that."""
        await self._reported.wait()
        raise self._error


class EmbeddedEngine:
    """`drive` runs under one live owner per operation, at most `operations_max` at once.

    A driver that only waits for its next turn is `away` and takes no place: a few hundred hosts
    that wait for partners or for a copy would else keep a fleet from being taken in.
    """

    def __init__(
        self, store: SqlStore, drive: Callable[[str], Awaitable[None]], operations_max: int
    ) -> None:
        self._store = store
        self._drive = drive
        self._slots = asyncio.Semaphore(operations_max)
        self._away: set[str] = set()  # operations without a place
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taking_up: asyncio.Task[None] | None = None
        self._failure = FirstFailure()

    async def failed(self) -> None:
        """Wait until the store fails a driver, or the taking up of operations fails."""
        await self._failure.wait()

    async def start(self) -> None:
        """Begin to take up every operation that was active when the last process ended."""
        active = [o.id for o in await self._store.operations.list_active()]
        self._taking_up = asyncio.create_task(self._take_up(active), name="taking up")
        self._failure.watch(self._taking_up, ends=True)

    async def _take_up(self, left: Sequence[str]) -> None:
        """Take up operations at the store's pace: of thousands, the first continues before the last
        is read.
        """
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
        """Return False: there is no peer."""
        return False

    @asynccontextmanager
    async def away(self, operation_id: str) -> AsyncIterator[None]:
        """Give an operation's place to another one meanwhile, and wait for a place at the end."""
        self._away.add(operation_id)
        self._slots.release()
        yield
        await self._slots.acquire()
        self._away.discard(operation_id)

    async def _run(self, operation_id: str) -> None:
        await self._slots.acquire()
        try:
            await self._drive(operation_id)
        except StoreFailed as error:
            self._failure.report(error)
        finally:
            if operation_id in self._away:  # it was stopped while it waited
                self._away.discard(operation_id)
            else:
                self._slots.release()

    @property
    def running(self) -> int:
        """Return how many operations are driven or queued now."""
        return len(self._tasks)

    async def stop(self) -> None:
        """Stop driving; actions on devices continue and are found again at the start."""
        await end_tasks(self._taking_up, *self._tasks.values())
