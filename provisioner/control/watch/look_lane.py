"""Looks of one kind: the longest overdue first, so many at the same time and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

log = logging.getLogger(__name__)


class LookLane:
    """`begin` makes the look at a node of this name; None: it is not to be looked at any more."""

    def __init__(
        self, most: int, begin: Callable[[str], Coroutine[None, None, None] | None]
    ) -> None:
        self._most, self._begin = most, begin
        self._waiting: list[str] = []  # the next one last
        self.running: dict[str, asyncio.Task[None]] = {}

    def due(self, names: Sequence[str]) -> None:
        """These are due, the first one first, instead of those that were; none may be running."""
        self._waiting = list(reversed(names))
        self._fill()

    async def close(self) -> None:
        """Stop looking."""
        self._waiting.clear()
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        # whenever one ends, not only in each round: else `most` a round is all that can be done
        while self._waiting and len(self.running) < self._most:
            name = self._waiting.pop()
            look = self._begin(name)
            if look is not None:
                task = asyncio.ensure_future(look)
                self.running[name] = task
                task.add_done_callback(partial(self._done, name))

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        self.running.pop(name, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("watch of %s failed", name, exc_info=task.exception())
        self._fill()
