"""One writer for each switch: whatever writes to a switch does so in that switch's turn.

Two revisions that overlap are each applied on what was there when it was made; the later one may
then be refused, or be read as done while the earlier one still settles. All who write share the
turns: what the API asks for, the moves of ports, the drain and the reboot of a switch, and other
daemons on the same database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from provisioner import process_scope


class Shared(Protocol):
    """Turns among processes; a name that one process took is free again when it ends."""

    async def take(self, name: str) -> None:
        """Wait for the turn. A caller that is cancelled while it waits does not have it."""
        ...

    async def give(self, name: str) -> None: ...


@contextmanager
def shared(turns: Shared) -> Iterator[None]:
    """While inside, turns are taken among all processes that share them."""
    among = process_scope.current().turns
    among.append(turns)
    try:
        yield
    finally:
        among.remove(turns)


@asynccontextmanager
async def turn(switch: str) -> AsyncIterator[None]:
    """One switch's turn: from the look that decides to the proof that ends it.

    It is not reentrant: code that is called inside a turn does not take the same one again.
    """
    scope = process_scope.current()
    mine = scope.locks.setdefault(asyncio.get_running_loop(), {})
    async with mine.setdefault(switch, asyncio.Lock()):
        taken: list[Shared] = []
        try:
            for turns in tuple(scope.turns):
                await turns.take(switch)
                taken.append(turns)
            yield
        finally:
            for turns in taken:
                await turns.give(switch)
