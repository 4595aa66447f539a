"""A reading that callers share: each answer is of after the question, and one is read at a time.

The first caller is answered at once. Those who ask while that is read are answered together by the
next reading, which begins when it is over. So no caller waits for others to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class SharedReading(Generic[Answer]):
    """Readings by `read`, which returns a failure as a value."""

    def __init__(self, read: Callable[[], Awaitable[Answer]], name: str) -> None:
        self._read = read
        self._name = name
        self._next: asyncio.Task[Answer] | None = None  # has not begun to read
        self._last: asyncio.Task[Answer] | None = None

    async def ask(self) -> Answer:
        """Return an answer that was read after this was called."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._last), name=self._name)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Stop reading."""
        tasks = [task for task in (self._next, self._last) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_after(self, before: asyncio.Task[Answer] | None) -> Answer:
        try:
            if before is not None and not before.done():
                await asyncio.wait([before])
        finally:
            self._last = self._next
            self._next = None
        return await self._read()
