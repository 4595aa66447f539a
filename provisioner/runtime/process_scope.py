"""State that belongs to one process: its permit to act, and the turns that it takes.

In production there is one daemon in a process, and one scope. A simulation runs several daemons in
one process: each of them runs in a context of its own, in which `simulated` has put its scope.
The default is the process's own scope in every thread and every context, so that no task can lose
the permit because of where it was created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]


@dataclass(eq=False)
class Scope:
    """`checks` and `closed` decide what may leave; `turns` are shared with other processes."""

    checks: list[Callable[[], None]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)  # why nothing may be written to devices
    turns: list[Any] = field(default_factory=list)  # of `leaf_turns.Shared`
    notices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by subject, for people
    locks: Locks = field(default_factory=WeakKeyDictionary)


_PROCESS = Scope()
_simulated: ContextVar[Scope | None] = ContextVar("simulated process", default=None)


def current() -> Scope:
    """Return the scope of the process that runs this code."""
    return _simulated.get() or _PROCESS


def simulate(scope: Scope) -> None:
    """Make this context, and the tasks that are created in it, a process of its own."""
    _simulated.set(scope)
