"""Real time, which may run fast for a site that is simulated: the one clock of a daemon."""

from __future__ import annotations

import asyncio
import time


class WallClock:
    """Seconds since the epoch, `speed` times as fast from the moment it was made.

    A `speed` of 1 is real time. `epoch` and `speed` are shared with a simulated site, so that both
    sides tell the same time.
    """

    def __init__(self, speed: float = 1.0, epoch: float | None = None) -> None:
        self.speed = speed
        self.epoch = time.time() if epoch is None else epoch

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.epoch + (time.time() - self.epoch) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock."""
        await asyncio.sleep(max(seconds, 0.0) / self.speed)
