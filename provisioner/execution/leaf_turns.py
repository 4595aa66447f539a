"""One writer for each switch: tenants' revisions and moves of ports take turns on a leaf.

Two revisions that overlap are each applied on what was there when it was made; the later one may
then be refused, or be read as done while the earlier one still settles. All who write share the
turns: what the API asks for, the moves of the daemon, and other daemons on the same database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

Turns = dict[str, asyncio.Lock]
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


class Shared(Protocol):
    """Turns among processes; a name that one process took is free again when it ends."""

    async def take(self, name: str) -> None: ...

    async def give(self, name: str) -> None: ...


_shared: list[Shared] = []  # of this process; none: it is the only one


@contextmanager
def shared(turns: Shared) -> Iterator[None]:
    """While inside, turns are taken among all processes that share them."""
    _shared.append(turns)
    try:
        yield
    finally:
        _shared.remove(turns)


@asynccontextmanager
async def turn(switch: str) -> AsyncIterator[None]:
    """One switch's turn: from the look that decides to the proof that ends it."""
    mine = _turns.setdefault(asyncio.get_running_loop(), {})
    async with mine.setdefault(switch, asyncio.Lock()):
        among = tuple(_shared)
        for turns in among:
            await turns.take(switch)
        try:
            yield
        finally:
            for turns in among:
                await turns.give(switch)
