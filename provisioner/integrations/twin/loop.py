"""An event loop whose clock jumps to the next timer when nothing is ready: hours pass in seconds.

The loop is single-threaded. Work in another thread would take no virtual time and the clock would
run ahead of it, so functions for an executor run at once in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
EPOCH = 1_790_000_000.0  # some day in 2026; nothing depends on the date


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything is ready, then jumps."""

    _timer_cancelled_count: int  # the base class's

    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = 0.0

    def time(self) -> float:
        return self._virtual_s

    def run_in_executor(  # type: ignore[override]  # a future, and no coroutine
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        self._drop_cancelled_timers()
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]  # of BaseEventLoop
            first = self._scheduled[0].when()  # type: ignore[attr-defined]  # of BaseEventLoop
            self._virtual_s = max(self._virtual_s, first)
        super()._run_once()  # type: ignore[misc]  # typeshed leaves it out

    def _drop_cancelled_timers(self) -> None:
        """Drop cancelled timers from the head, as the base class does after the jump.

        A jump to one of them would leave the base class waiting for the next one on the wall.
        """
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1


class VirtualClock:
    """The daemon's clock on a virtual event loop."""

    speed = 1.0

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end under virtual time; leftover tasks are cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
