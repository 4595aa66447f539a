"""One writer for each switch: every write to a switch happens within that switch's turn.

Each of two overlapping revisions is applied to the configuration that existed when it was created.
The later one may then be refused, or be read as done while the earlier one still settles. All
writers share the turns: requests of the API, moves of ports, the drain and the reboot of a switch,
and other daemons on the same database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Protocol

from provisioner.runtime import process_scope


class Shared(Protocol):
    """Turns among processes; a name that one process took is free again when it ends."""

    async def take(self, name: str) -> None:
        """Wait for the turn. A caller that is cancelled while it waits does not have it."""
        ...

    async def give_back(self, name: str) -> None: ...


_held: ContextVar[frozenset[str]] = ContextVar("turns that are held", default=frozenset())


def list_held_turns() -> frozenset[str]:
    """Return the switches whose turns this task, or the one that created it, is inside of."""
    return _held.get()


@contextmanager
def share_turns(turns: Shared) -> Iterator[None]:
    """Take turns among all processes that share them, while inside."""
    among = process_scope.get_scope().turns
    among.append(turns)
    try:
        yield
    finally:
        among.remove(turns)


@asynccontextmanager
async def turn(switch: str) -> AsyncIterator[None]:
    """Hold one switch's turn, from the reading that decides to the reading that proves the result.

    It is not reentrant: code that is called inside a turn does not take the same one again.
    """
    assert switch not in _held.get(), f"the turn of {switch} is taken within itself"
    scope = process_scope.get_scope()
    mine = scope.locks.setdefault(asyncio.get_running_loop(), {})
    async with mine.setdefault(switch, asyncio.Lock()):
        taken: list[Shared] = []
        try:
            for turns in tuple(scope.turns):
                await turns.take(switch)
                taken.append(turns)
            inside = _held.set(_held.get() | {switch})
            try:
                yield
            finally:
                _held.reset(inside)
        finally:
            for turns in taken:
                await turns.give_back(switch)
