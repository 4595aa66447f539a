"""Every await and every commit of the reconcile path as a place where the process can die.

A task of the daemon runs inside `Traced`, which sees each await that suspends: the chain of our own
lines that wait there, for which kind of node, in which state. `CrashLane` suspends before and
behind each transaction, so that commits are such places too. A place that was not seen before is a
new point: the process forks there, and in the child the daemon is gone. Not cancelled: no
`finally` and no `except` of it runs, its coroutines are never resumed, as after SIGKILL. What had
left for a device goes on, since devices are no part of the process.

An await that does not suspend needs no point: between two suspensions nothing outside the process
changes but by commits and requests, and both suspend here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar

from provisioner.runtime.log_context import get_log_context
from provisioner.store.database.lanes import Counting, Lane, Work

Result = TypeVar("Result")
ROOT = Path(__file__).parents[2]
OURS = str(ROOT / "provisioner") + "/"
OUTSIDE = (
    OURS + "integrations/sim/",
    OURS + "integrations/twin/",
)  # devices and wires: they outlive the daemon
# loops that decide what is begun: with no node of their own, they count by their task's name
LOOPS = (
    "scheduler",
    "release watch",
    "repairs",
    "tickets",
    "campaigns",
    "recovery",
    "watch of leaves",
)
LOOKS = {"LeafWatch.look": "watch of leaves"}  # a task without a name of its own, by its coroutine
LIFE: ContextVar[int] = ContextVar("life", default=0)  # which daemon a task is of; 0: none

# kind of node or loop, the node's state, "file:line" from the outermost to the innermost
Place = tuple[str, ...]


class Lives:
    """Which daemon lives, and who is told of each place. 0 is nobody's life."""

    def __init__(self) -> None:
        self.now = 0
        self.met: Callable[[Place], None] | None = None
        self.graves: list[object] = []  # kept, or Python would run their `finally` blocks

    def context(self) -> Context:
        """Where a daemon of this life is started: its tasks inherit it."""
        context = copy_context()
        context.run(LIFE.set, self.now)
        return context


class Traced(Coroutine[Any, Any, Any]):
    """A coroutine of one life: each of its suspensions is a place; after its life it waits."""

    def __init__(self, inner: Coroutine[Any, Any, Any], lives: Lives) -> None:
        self.inner, self.lives, self.life = inner, lives, lives.now
        self.__name__, self.__qualname__ = inner.__name__, inner.__qualname__
        lives.graves.append(self)

    def send(self, value: Any) -> Any:
        if self.life != self.lives.now:
            return _never()
        try:
            given = self.inner.send(value)
        except BaseException:
            self.lives.graves.remove(self)
            raise
        return self._suspended(given)

    def throw(self, *error: Any) -> Any:
        if self.life != self.lives.now:
            return _never()
        try:
            given = self.inner.throw(*error)
        except BaseException:
            self.lives.graves.remove(self)
            raise
        return self._suspended(given)

    def _suspended(self, given: Any) -> Any:
        met = self.lives.met
        who = get_log_context().get("node") or _loop() or LOOKS.get(self.__qualname__)
        if met is not None and who:
            met((who, *chain(self.inner)))
            if self.life != self.lives.now:  # it was here that the daemon died
                return _never()
        return given

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.inner.__await__()


def _loop() -> str:
    task = asyncio.current_task()
    name = task.get_name() if task is not None else ""
    return name if name in LOOPS else ""


def _never() -> Any:
    future = asyncio.get_running_loop().create_future()
    future._asyncio_future_blocking = True
    return future


def chain(coroutine: Any) -> list[str]:
    """Our own lines that wait, from the task's first to the innermost."""
    lines = []
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if code is None or frame is None:
            break
        if code.co_filename.startswith(OURS):
            lines.append(f"{code.co_filename.removeprefix(OURS)}:{frame.f_lineno}")
        elif code.co_filename == __file__:
            lines.append(code.co_name)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return lines


def trace(loop: asyncio.AbstractEventLoop, lives: Lives) -> None:
    """From now on, tasks of a living daemon are traced."""

    def made(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        life = context.get(LIFE) or 0 if context is not None else LIFE.get()
        code = getattr(work, "cr_code", None)
        ours = code is not None and not code.co_filename.startswith(OUTSIDE)
        if life and ours:
            if life != lives.now:  # a timer of a dead daemon wants to begin something
                return asyncio.Task(_grave(lives, work), loop=loop, **options)
            if lives.met is not None:  # nobody asks where a second daemon waits
                work = Traced(work, lives)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(made)  # type: ignore[arg-type]


async def _grave(lives: Lives, work: Any) -> None:
    lives.graves.append(work)
    await asyncio.get_running_loop().create_future()


class CrashLane:
    """A lane whose transactions can be died before and behind; `way_s`: how far its database is."""

    def __init__(self, inner: Lane, way_s: Callable[[], float]) -> None:
        self._inner, self._way_s = inner, way_s

    async def run(self, work: Work[Result]) -> Result:
        await before_commit(self._way_s())
        result = await self._inner.run(work)
        await behind_commit(self._way_s())
        return result

    def count_by(self, counting: Counting | None) -> None:
        self._inner.count_by(counting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def before_commit(way_s: float) -> None:
    await asyncio.sleep(way_s)


async def behind_commit(way_s: float) -> None:
    """It is committed, and nobody here knows it for so long."""
    await asyncio.sleep(way_s)
