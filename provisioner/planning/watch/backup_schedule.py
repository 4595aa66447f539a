"""When a scheduled backup is due, and which older ones are removed: by the names of the files.

No other file is ever counted or removed: a person's own backups beside them stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

NAME = re.compile(r"provisioner-(\d{8}T\d{6}Z)\.tar", re.ASCII)
TIME = "%Y%m%dT%H%M%SZ"
RETRY_S = 3600.0  # after a backup that failed
AHEAD_S = 3600.0  # a file that is newer than this from now was named by a wrong clock


def name_backup(now: float) -> str:
    """Return the name of a backup that is made now."""
    return f"provisioner-{datetime.fromtimestamp(now, UTC).strftime(TIME)}.tar"


def read_time(name: str) -> float | None:
    """Return when a backup was made, by its name; None for any other file."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:  # 31 February
        return None


def find_newest(names: Iterable[str], now: float) -> float:
    """Return when the newest backup was made; 0.0 if there is none. A future one does not count."""
    times = [at for name in names if (at := read_time(name)) is not None]
    return max((at for at in times if at <= now + AHEAD_S), default=0.0)


def choose_removals(names: Iterable[str], keep: int) -> tuple[str, ...]:
    """Return the backups beyond the newest `keep`, the oldest first."""
    ours = sorted(name for name in names if read_time(name) is not None)
    return tuple(ours[: max(0, len(ours) - keep)])
