"""What a process and all below it use."""

from __future__ import annotations

import os
import threading
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += children.get(one, [])
    return found


def used(pid: int) -> tuple[float, float]:
    """CPU seconds and MiB of a process and all below it."""
    cpu, kib = 0.0, 0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        cpu += (int(fields[11]) + int(fields[12])) / TICKS
        kib += sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
    return cpu, kib / 1024


class Peak(threading.Thread):
    """Looks at the memory of a family of processes once a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.mib, self._over = pid, 0.0, threading.Event()

    def run(self) -> None:
        """Until `end`."""
        while not self._over.wait(1):
            self.mib = max(self.mib, used(self.pid)[1])

    def end(self) -> float:
        """The most that was seen, MiB."""
        self._over.set()
        self.join()
        return max(self.mib, used(self.pid)[1])
