"""How much of a process's CPU time a simulated site took, and how much the program.

A signal comes after every few milliseconds of CPU time and looks at the stack, from the innermost
frame out to the event loop's: time below a frame of the simulator, its wires, or a test is the
site's; all other time is the program's, the loop's own and a collection of garbage included.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Self

import provisioner

PROGRAM = Path(provisioner.__file__).parent
SIMULATED = PROGRAM / "integrations"
SITE = (str(SIMULATED / "sim"), str(SIMULATED / "twin"), str(Path(__file__).parents[1]))
TICK_S = 0.002


class CpuSides:
    """A context manager for the main thread; `samples` of each side afterwards."""

    def __init__(self) -> None:
        self.samples = {"site": 0, "program": 0}

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, self._before)

    def compute_program_share(self) -> float:
        """Return the program's part of all samples, 0 to 1."""
        return self.samples["program"] / max(1, sum(self.samples.values()))

    def _look(self, _: int, frame: FrameType | None) -> None:
        side = "program"
        while frame is not None and frame.f_code.co_qualname != "Handle._run":
            if frame.f_code.co_filename.startswith(SITE):
                side = "site"
                break
            frame = frame.f_back
        self.samples[side] += 1
