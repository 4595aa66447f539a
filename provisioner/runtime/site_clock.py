"""The clock for commands on a data directory: the same clock that its daemon uses.

It is this machine's clock, unless the daemon drives a simulated site whose time runs fast. Then the
daemon writes the speed beside its database, so that every command has the same time.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.runtime.wall_clock import WallClock

CLOCK_FILE = "clock.json"  # {"speed": ..., "epoch": ...}; absent: real time
SPEED_MAX = 10_000.0  # the limit of `provisioner sim serve`
SIZE_MAX = 4096


def write_clock(directory: Path, clock: WallClock) -> None:
    """Write the clock for commands on this directory. Raises OSError."""
    file = directory / CLOCK_FILE
    if clock.speed == 1.0:
        file.unlink(missing_ok=True)
        return
    new = directory / f"{CLOCK_FILE}.new"
    new.touch(mode=0o600)
    new.write_text(json.dumps({"speed": clock.speed, "epoch": clock.epoch}), encoding="utf-8")
    new.replace(file)


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
