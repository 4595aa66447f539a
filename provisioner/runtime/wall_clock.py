"""Real time, or a faster time for a simulated site: the one clock of a daemon.

The machine's clock can be wrong for a moment (a virtual machine that was resumed, a real-time clock
without a battery, a bad NTP answer), and decisions of that moment remain: expiries, notices,
windows. The boot clock cannot be set, so the two are compared at each reading. A small difference
is followed. A large one is a step, which is not followed: time continues by the boot clock,
`step_s` is the difference, and the daemon makes no decisions until a person has accepted the new
time or the machine's clock has returned by itself (`control/watch/watch_standing.py`).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.runtime.whole_files import replace_file

# An NTP client slews at 500 ppm, 43 s in a day, and makes larger steps at its start: within seconds
# of a boot. A step of minutes while a daemon runs has another cause, of which a person should know.
STEP_MAX_S = 300.0


def read_boot_clock() -> float:
    """Return seconds since boot, which cannot be set; they count suspended time if possible."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WallClock:
    """Seconds since the epoch, `speed` times as fast from the clock's creation on.

    A `speed` of 1 is real time. `epoch` and `speed` are shared with a simulated site, so that both
    sides have the same time. `boot` and `machine` are the two clocks of the machine.

    The clock never goes back by itself, because a clock that is set back would extend every wait
    and every limit. A small step forward is followed: an intent that suddenly counts as old is
    handled in the cautious way.
    """

    def __init__(
        self,
        speed: float = 1.0,
        epoch: float | None = None,
        *,
        boot: Callable[[], float] = read_boot_clock,
        machine: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.speed = speed
        self.machine = machine
        self._since_boot = boot
        self.epoch = machine() if epoch is None else epoch
        self._ahead = machine() - boot()
        self.step_s = 0.0  # difference of the machine's clock that is not followed

    def now(self) -> float:
        """Return seconds since the epoch."""
        ahead = self.machine() - self._since_boot()
        apart = ahead - self._ahead
        self.step_s = apart if abs(apart) > STEP_MAX_S else 0.0
        if not self.step_s:
            self._ahead = max(self._ahead, ahead)
        return self.epoch + (self._ahead + self._since_boot() - self.epoch) * self.speed

    def accept(self) -> None:
        """Follow the machine's clock as it is now, even if that is back in time."""
        self._ahead = self.machine() - self._since_boot()
        self.step_s = 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock."""
        await asyncio.sleep(max(seconds, 0.0) / self.speed)


# ------------------------------------------------------------------------------
# The clock for commands on a data directory: the same clock that its daemon uses.
#
# It is this machine's clock, unless the daemon drives a simulated site whose time runs fast. Then
# the daemon writes the speed beside its database, so that every command has the same time.


CLOCK_FILE = "clock.json"  # {"speed": ..., "epoch": ...}; absent: real time
SPEED_MAX = 10_000.0  # the limit of `provisioner sim serve`
SIZE_MAX = 4096


def write_clock(directory: Path, clock: WallClock) -> None:
    """Write the clock for commands on this directory. Raises OSError."""
    file = directory / CLOCK_FILE
    if clock.speed == 1.0:
        file.unlink(missing_ok=True)
        return
    replace_file(file, json.dumps({"speed": clock.speed, "epoch": clock.epoch}))


def read_clock(directory: Path) -> WallClock:
    """Return the clock of this data directory, whether the directory exists or not.

    Raises `InputError` if the file does not hold a valid clock, because a wrong time is worse than
    none.
    """
    file = directory / CLOCK_FILE
    try:
        with file.open("rb") as opened:
            document = json.loads(opened.read(SIZE_MAX))
        speed = float(document["speed"])
        epoch = float(document["epoch"])
        if not 0.0 < speed <= SPEED_MAX or not math.isfinite(epoch):
            raise ValueError("out of bounds")
    except (FileNotFoundError, NotADirectoryError):  # the command that opens the directory reports
        return WallClock()
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        remedy = "Delete it; a daemon on a simulated site writes it again when it starts."
        raise InputError(str(file), "", f"this tells no clock ({error})", remedy) from None
    return WallClock(speed, epoch)
