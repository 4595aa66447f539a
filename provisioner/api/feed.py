"""Wakes the listeners that wait for new rows of the journal.

One query per second serves all of them together, and none is made while there is no listener; the
journal's number is the cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from provisioner.ports import StoreFailed

LOOK_S = 1.0  # seconds of delay of an event; another process may have written it


class Feed:
    """The feed of new rows. `head` reads the number of the newest row."""

    def __init__(self, head: Callable[[], Awaitable[int]]) -> None:
        self._head = head
        self._seen = 0
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.listeners = 0  # number of listeners that wait now

    async def wait_for_newer(self, than: int, timeout_s: float) -> bool:
        """Return whether there is a row after `than` within this time."""
        self.listeners += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look(), name="journal feed")
            async with asyncio.timeout(timeout_s):
                while self._seen <= than:
                    await self._news.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.listeners -= 1

    async def _look(self) -> None:
        while self.listeners:
            try:
                head = await self._head()
            except StoreFailed:
                return  # the daemon ends by itself
            if head > self._seen:
                self._seen = head
                self._news.set()
                self._news = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Stop the queries."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
