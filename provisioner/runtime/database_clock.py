"""The clock of a daemon among several: the database's, carried on by this machine's boot clock.

Rows that one daemon wrote are judged by another (how old a report is, whether an intent's window is
over). Two machines' own clocks may differ by minutes; the database has one. Each beat of the seat
reads it, and between two beats the boot clock, which nobody sets, counts on.

The rule that a reader would otherwise break: time never goes back. Where the database's clock is
found to be behind, this one runs at half its speed until both agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from provisioner.runtime.wall_clock import STEP_MAX_S, WallClock
from provisioner.runtime.wall_clock import since_boot as since_boot

SLOWED = 0.5  # part of the boot clock's speed that is taken off to fall back
SURE_S = 1.0  # a reading that took longer than this tells the time too roughly


@dataclass(frozen=True)
class Reading:
    """The database's clock at `boot_s` of this machine, give or take `error_s`.

    `wall_s` is this machine's own clock at the same moment.
    """

    database_s: float
    boot_s: float
    error_s: float
    wall_s: float

    @property
    def difference_s(self) -> float:
        """How far this machine's clock is ahead of the database's; 0 within the error."""
        apart = self.wall_s - self.database_s
        return 0.0 if abs(apart) <= self.error_s else apart


def take_reading(
    ask: Callable[[], float],
    boot: Callable[[], float] = since_boot,
    wall: Callable[[], float] = time.time,
) -> Reading:
    """Ask the database for its time, and return it with how exact it is."""
    before = boot()
    told = ask()
    after = boot()
    middle = (before + after) / 2
    return Reading(told, middle, (after - before) / 2, wall() - (after - middle))


class DatabaseClock(WallClock):
    """`follow` corrects it; until the first reading it is this machine's own clock."""

    def __init__(
        self,
        speed: float = 1.0,
        epoch: float | None = None,
        boot: Callable[[], float] = since_boot,
    ) -> None:
        super().__init__(speed, epoch)
        self._boot = boot
        self._offset: float | None = None  # from the boot clock to the database's
        self._target = 0.0
        self._fallen_at = 0.0  # boot clock, when `_offset` was last brought nearer

    def follow(self, reading: Reading) -> None:
        """Go by this reading from now on; one that is too rough is left out, but for the first.

        One that steps by minutes is left out too, and `step_s` says so.
        """
        target = reading.database_s - reading.boot_s
        apart = 0.0 if self._offset is None else target - self._offset
        self.step_s = apart if abs(apart) > STEP_MAX_S else 0.0
        if self.step_s:
            return
        if self._offset is None:
            self._offset, self._target = target, target
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
        """Go by the next reading, whatever it is."""
        self._offset, self.step_s = None, 0.0

    def _settle(self) -> None:
        """Fall back towards the target, by a part of the time that has passed."""
        assert self._offset is not None
        boot_s = self._boot()
        if self._offset > self._target:
            back_s = SLOWED * max(boot_s - self._fallen_at, 0.0)
            self._offset = max(self._target, self._offset - back_s)
        self._fallen_at = boot_s
