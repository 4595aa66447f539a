"""The simulator's time: one clock, and one schedule of future acts.

Nothing in the simulator sleeps. Every caller first calls `Schedule.advance(now)`, which runs
everything that became due in between, in order. So the same machine behaves alike under virtual
time, under a wall clock and under a wall clock that runs fast.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Protocol


class SimClock(Protocol):
    """Seconds since the epoch in the simulated site."""

    def now(self) -> float: ...


class FastClock:
    """The wall clock, accelerated by `speed` from the moment of its creation."""

    def __init__(self, speed: float = 1.0, start: float | None = None) -> None:
        self.speed = speed
        self._began = time.monotonic()
        self._start = time.time() if start is None else start

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start + (time.monotonic() - self._began) * self.speed


class HandClock:
    """A clock that a test advances."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.time = start

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.time

    def move(self, seconds: float) -> float:
        """Advance the clock; return the new time."""
        self.time += seconds
        return self.time


Act = Callable[[float], None]  # called with its due time


class Schedule:
    """Future acts in order of time, then of planning. One per simulated site."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Act]] = []
        self._planned = 0
        self.next_due = float("inf")

    def plan_act(self, due: float, act: Act) -> None:
        """Plan `act` for the time `due` (seconds since the epoch)."""
        heapq.heappush(self._due, (due, self._planned, act))
        self._planned += 1
        self.next_due = self._due[0][0]

    def advance(self, now: float) -> None:
        """Run everything that is due; an act may plan further acts, also for the past."""
        while self.next_due <= now:
            due, _, act = heapq.heappop(self._due)
            self.next_due = self._due[0][0] if self._due else float("inf")
            act(due)

    def __len__(self) -> int:
        return len(self._due)
