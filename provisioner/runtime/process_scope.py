"""State of one process: its permit to act, and the switch turns that it takes.

In production a process holds one daemon and one scope. A simulation runs several daemons in one
process: each runs in a context of its own, in which `simulate` has set its scope. The default is
the process's own scope in every thread and every context, so that no task can lose the permit
because of the place where it was created.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]


@dataclass(eq=False)
class Scope:
    """`checks` and `closed` decide on requests; `turns` are shared with other processes."""

    checks: list[Callable[[], None]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)  # reasons why no device may be changed
    observes: bool = False  # it was started to read alone (`serve --observe`)
    names_acts: bool = False  # adopted nodes exist: each write has to be named to their gate
    turns: list[Any] = field(default_factory=list)  # of `leaf_turns.Shared`
    notices: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by subject, for people
    limited: Counter[str] = field(default_factory=Counter)  # requests over a limit, by its kind
    log_messages: Counter[str] = field(default_factory=Counter)  # of machines, by their outcome
    counts: dict[str, int] = field(default_factory=dict)  # gauges of this process, by name
    locks: Locks = field(default_factory=WeakKeyDictionary)


_PROCESS = Scope()
_simulated: ContextVar[Scope | None] = ContextVar("simulated process", default=None)


def get_scope() -> Scope:
    """Return the scope of the process that runs this code."""
    return _simulated.get() or _PROCESS


def set_simulated_scope(scope: Scope) -> None:
    """Make this context, and the tasks that are created in it, a process of its own."""
    _simulated.set(scope)
