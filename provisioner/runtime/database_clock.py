"""The clock of a daemon among several: the database's clock, extended by this machine's boot clock.

One daemon judges rows that another one wrote (the age of a report, the window of an intent). The
clocks of two machines may differ by minutes; the database has one clock. Each heartbeat of the
lease reads it, and between two heartbeats the boot clock, which cannot be set, continues it.

Time never goes back: where the database's clock turns out to be behind, this one runs at half its
speed until both agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.runtime.wall_clock import STEP_MAX_S, WallClock
from provisioner.runtime.wall_clock import read_boot_clock as read_boot_clock

SLOWED = 0.5  # part of the boot clock's speed that is removed while this clock is ahead
SURE_S = 1.0  # a reading that took longer than this is too inaccurate


@dataclass(frozen=True)
class Reading:
    """The database's clock at `boot_s` of this machine, with an accuracy of `error_s`.

    `wall_s` is this machine's own clock at the same moment.
    """

    database_s: float
    boot_s: float
    error_s: float
    wall_s: float

    @property
    def difference_s(self) -> float:
        """The seconds by which this machine's clock is ahead of the database's; 0 within error."""
        apart = self.wall_s - self.database_s
        return 0.0 if abs(apart) <= self.error_s else apart


def take_reading(
    ask: Callable[[], float],
    boot: Callable[[], float] = read_boot_clock,
    wall: Callable[[], float] = time.time,
) -> Reading:
    before = boot()
    database_s = ask()
    after = boot()
    middle = (before + after) / 2
    return Reading(database_s, middle, (after - before) / 2, wall() - (after - middle))


class DatabaseClock(WallClock):
    """A clock that `follow` corrects; before the first reading it is this machine's clock."""

    def __init__(
        self,
        speed: float = 1.0,
        epoch: float | None = None,
        boot: Callable[[], float] = read_boot_clock,
    ) -> None:
        super().__init__(speed, epoch)
        self._boot = boot
        self._offset: float | None = None  # from the boot clock to the database's clock
        self._target = 0.0
        self._fallen_at = 0.0  # boot clock, when `_offset` last approached the target

    def follow(self, reading: Reading) -> None:
        """Follow this reading from now on, unless it is inaccurate and not the first.

        A reading that steps by minutes is not followed; `step_s` is then the step in seconds.
        """
        target = reading.database_s - reading.boot_s
        apart = 0.0 if self._offset is None else target - self._offset
        self.step_s = apart if abs(apart) > STEP_MAX_S else 0.0
        if self.step_s:
            return
        if self._offset is None:
            self._offset = target
            self._target = target
        elif reading.error_s <= SURE_S / 2:
            self._settle()
            self._target = target
            self._offset = max(self._offset, target)
        self._fallen_at = self._boot()

    def now(self) -> float:
        """Return seconds since the epoch, by the database."""
        if self._offset is None:
            return super().now()
        self._settle()
        return self.epoch + (self._offset + self._boot() - self.epoch) * self.speed

    def accept(self) -> None:
        """Follow the next reading, even if it is a step."""
        self._offset = None
        self.step_s = 0.0

    def _settle(self) -> None:
        """Approach the target by a part of the time that has passed."""
        assert self._offset is not None
        boot_s = self._boot()
        if self._offset > self._target:
            back_s = SLOWED * max(boot_s - self._fallen_at, 0.0)
            self._offset = max(self._target, self._offset - back_s)
        self._fallen_at = boot_s
