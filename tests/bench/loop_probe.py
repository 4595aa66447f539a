"""Where an event loop stands still, by function, and for how long.

A beat runs in the loop each millisecond. A thread beside looks at the CPU time of the loop's thread
since the last beat: once that passes `LOOK_MS`, it notes the innermost frame of this program in
the loop's stack, some hundred times a second, and what that frame called. So a hold is counted in
CPU time of the loop's own thread, which neighbours on the machine do not make longer; what other
threads do meanwhile, and collections of garbage in them, are counted apart.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import provisioner

BEAT_S = 0.001
LOOK_MS = 4.0  # from here on the stack is looked at
SAMPLE_S = 0.002
LONGEST = 5  # holds of which all that was seen is told
PROGRAM = str(Path(provisioner.__file__).parent)


class LoopProbe:
    """`async with`: measures the running loop until its end."""

    def __init__(self) -> None:
        self.beats: list[float] = []  # CPU milliseconds of the loop between two beats
        self.holds: dict[str, list[float]] = {}
        self.collections: list[tuple[int, float]] = []  # generation, CPU milliseconds
        self._cpu = 0.0
        self.longest: list[tuple[float, Counter[str]]] = []
        self._frames: Counter[str] = Counter()
        self._called: Counter[str] = Counter()
        self._ended = threading.Event()
        self._collecting = 0.0
        self._stopped = False

    def stop(self) -> None:
        """Count nothing any more, also while it is still entered."""
        self._stopped = True

    async def __aenter__(self) -> LoopProbe:
        loop_thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(loop_thread)
        self._beating = asyncio.create_task(self._beat())
        self._thread = threading.Thread(target=self._watch, args=(loop_thread,), daemon=True)
        self._cpu = time.clock_gettime(self._clock)
        self._thread.start()
        gc.callbacks.append(self._count_collection)
        return self

    async def __aexit__(self, *_: object) -> None:
        gc.callbacks.remove(self._count_collection)
        self._ended.set()
        self._thread.join()
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)

    async def _beat(self) -> None:
        while not self._stopped:
            now = time.clock_gettime(self._clock)
            held_ms = 1000 * (now - self._cpu)
            self._cpu = now
            frames = self._frames
            called = self._called
            self._frames = Counter()
            self._called = Counter()
            self.beats.append(held_ms)
            if held_ms >= LOOK_MS and frames:
                ((name, _),) = frames.most_common(1)
                self.holds.setdefault(name, []).append(held_ms)
            if held_ms >= LOOK_MS:
                self.longest.append((held_ms, called))
                self.longest = sorted(self.longest, key=lambda one: -one[0])[:LONGEST]
            await asyncio.sleep(BEAT_S)

    def _watch(self, loop_thread: int) -> None:
        while not self._ended.wait(SAMPLE_S):
            if 1000 * (time.clock_gettime(self._clock) - self._cpu) < LOOK_MS:
                continue
            frame = sys._current_frames().get(loop_thread)
            inner = frame.f_code.co_qualname if frame is not None else ""
            while frame is not None and not frame.f_code.co_filename.startswith(PROGRAM):
                frame = frame.f_back
            outer = frame.f_code.co_qualname if frame is not None else ""
            self._called[inner if outer in ("", inner) else f"{inner} by {outer}"] += 1
            if outer:
                self._frames[outer] += 1

    def _count_collection(self, phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        elif not self._stopped:
            took_ms = 1000 * (time.thread_time() - self._collecting)
            self.collections.append((told["generation"], took_ms))

    def list_lines(self) -> list[str]:
        """Return lines of what held the loop: each function, the longest hold first."""
        lines = [
            f"{max(times):8.1f} ms longest, {len(times):4} times, {sum(times):8.0f} ms in all "
            f"(CPU): {name}"
            for name, times in sorted(self.holds.items(), key=lambda held: -max(held[1]))
        ]
        for held_ms, called in self.longest:
            seen = ", ".join(f"{name} {count}" for name, count in called.most_common(8))
            lines.append(f"{held_ms:8.1f} ms in one turn, {called.total()} looks: {seen}")
        for generation in range(3):
            took = [ms for of, ms in self.collections if of == generation]
            if took:
                lines.append(
                    f"{max(took):8.1f} ms longest, {len(took):4} times, {sum(took):8.0f} ms in all "
                    f"(CPU): collection of generation {generation}"
                )
        return lines

    def compute_figures(self) -> dict[str, Any]:
        """Return how long an event that comes at any time waits for the loop, in CPU time."""
        total = sum(self.beats)
        waits = sorted(self.beats)
        passed = 0.0
        busy_p99 = 0.0
        for held in waits:  # a hold of t ms is met by events in proportion to t
            passed += held
            if passed >= 0.99 * total:
                busy_p99 = held
                break
        return {
            "loop_held_max_ms": round(max(waits), 1),
            "loop_held_p99_of_busy_ms": round(busy_p99, 1),
            "loop_busy_cpu_s": round(total / 1000, 2),
            "collections_max_ms": round(max((ms for _, ms in self.collections), default=0.0), 1),
        }
