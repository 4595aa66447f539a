"""Real time, which may run fast for a site that is simulated: the one clock of a daemon.

The machine's clock can be wrong for a moment (a virtual machine that was resumed, a real-time clock
without a battery, a bad NTP answer), and what was decided in that moment stays: expiries, notices,
windows. The boot clock cannot be set, so the two are compared at each reading. A small difference
is followed. A large one is a step, which is not: time goes on by the boot clock, `step_s` says by
how much the machine differs, and whoever decides stops until a person has accepted the new time or
the machine's clock has come back by itself (`control/watch/time_standing.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# An NTP client slews at 500 ppm, 43 s in a day, and steps what is more at its start: within seconds
# of a boot. A step of minutes while a daemon runs has another cause, and a person should know it.
STEP_MAX_S = 300.0


def since_boot() -> float:
    """Seconds that nobody can set; they go on while the machine is suspended, where it can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WallClock:
    """Seconds since the epoch, `speed` times as fast from the moment it was made.

    A `speed` of 1 is real time. `epoch` and `speed` are shared with a simulated site, so that both
    sides tell the same time. `boot` and `machine` are the two clocks of the machine.

    It never goes back by itself: a clock that is set back would hold every wait, and every limit,
    for as long. Set forward by little, it is followed: an intent that is suddenly old goes the
    cautious way.
    """

    def __init__(
        self,
        speed: float = 1.0,
        epoch: float | None = None,
        *,
        boot: Callable[[], float] = since_boot,
        machine: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.speed = speed
        self.machine = machine
        self._since_boot = boot
        self.epoch = machine() if epoch is None else epoch
        self._ahead = machine() - boot()
        self.step_s = 0.0  # by which the machine's clock differs and is not followed

    def now(self) -> float:
        """Seconds since the epoch."""
        ahead = self.machine() - self._since_boot()
        apart = ahead - self._ahead
        self.step_s = apart if abs(apart) > STEP_MAX_S else 0.0
        if not self.step_s:
            self._ahead = max(self._ahead, ahead)
        return self.epoch + (self._ahead + self._since_boot() - self.epoch) * self.speed

    def accept(self) -> None:
        """Go by the machine's clock as it is now, also where that is back in time."""
        self._ahead = self.machine() - self._since_boot()
        self.step_s = 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock."""
        await asyncio.sleep(max(seconds, 0.0) / self.speed)
