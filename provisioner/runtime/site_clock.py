"""The clock that the commands on a data directory go by: the one that its daemon goes by.

It is this machine's, unless the daemon drives a simulated site whose time runs fast: then the
daemon writes down how fast, beside its database, and every command tells the same time.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from provisioner.model.input_error import InputError
from provisioner.runtime.wall_clock import WallClock

CLOCK_FILE = "clock.json"  # {"speed": ..., "epoch": ...}; absent: real time
SPEED_MAX = 10_000.0  # what `provisioner sim serve` allows
SIZE_MAX = 4096


def keep_clock(directory: Path, clock: WallClock) -> None:
    """Write down what commands on this directory have to go by. Raises OSError."""
    file = directory / CLOCK_FILE
    if clock.speed == 1.0:
        file.unlink(missing_ok=True)
        return
    new = directory / f"{CLOCK_FILE}.new"
    new.touch(mode=0o600)
    new.write_text(json.dumps({"speed": clock.speed, "epoch": clock.epoch}), encoding="utf-8")
    new.replace(file)


def site_clock(directory: Path) -> WallClock:
    """The clock of this data directory, whether there is one or not.

    Raises `InputError` if a file says something else than a clock: no time is better than a
    wrong one.
    """
    file = directory / CLOCK_FILE
    try:
        with file.open("rb") as opened:
            told = json.loads(opened.read(SIZE_MAX))
        speed, epoch = float(told["speed"]), float(told["epoch"])
        if not 0.0 < speed <= SPEED_MAX or not math.isfinite(epoch):
            raise ValueError("out of bounds")
    except (FileNotFoundError, NotADirectoryError):  # whoever opens the directory says so
        return WallClock()
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        remedy = "Delete it; a daemon on a simulated site writes it again when it starts."
        raise InputError(str(file), "", f"this tells no clock ({error})", remedy) from None
    return WallClock(speed, epoch)
