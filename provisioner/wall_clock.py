"""Real time, which may run fast for a site that is simulated: the one clock of a daemon."""

from __future__ import annotations

import asyncio
import time


class WallClock:
    """Seconds since the epoch, `speed` times as fast from the moment it was made.

    A `speed` of 1 is real time. `epoch` and `speed` are shared with a simulated site, so that both
    sides tell the same time.

    It never goes back: a machine's clock that is set back would hold every wait, and every limit,
    for as long. Then it stays ahead until the next start. Set forward, it is followed: an intent
    that is suddenly old goes the cautious way.
    """

    def __init__(self, speed: float = 1.0, epoch: float | None = None) -> None:
        self.speed = speed
        self.epoch = time.time() if epoch is None else epoch
        self._ahead = time.time() - _since_boot()

    def now(self) -> float:
        """Seconds since the epoch."""
        self._ahead = max(self._ahead, time.time() - _since_boot())
        return self.epoch + (self._ahead + _since_boot() - self.epoch) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock."""
        await asyncio.sleep(max(seconds, 0.0) / self.speed)


def _since_boot() -> float:
    """Seconds that nobody can set; they go on while the machine is suspended, where it can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
