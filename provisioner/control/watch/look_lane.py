"""Looks of one kind: the longest overdue first, so many at the same time and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from provisioner.ports import StoreFailed

log = logging.getLogger(__name__)


class LookLane:
    """`begin` makes the look at a node of this name; None: it is not to be looked at any more."""

    def __init__(
        self, most: int, begin: Callable[[str], Coroutine[None, None, None] | None]
    ) -> None:
        self._most = most
        self._begin = begin
        self._waiting: list[str] = []  # the next one last
        self.running: dict[str, asyncio.Task[None]] = {}
        self._lost: StoreFailed | None = None

    def due(self, names: Sequence[str]) -> None:
        """Look at these, the first one first, instead of those that were due; none may be running.

        Raises `StoreFailed` if the store failed in an earlier look: the daemon ends then.
        """
        if self._lost is not None:
            raise self._lost
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
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreFailed):
            self._lost = error
        elif error is not None:
            log.error("watch of %s failed", name, exc_info=error)
        self._fill()
