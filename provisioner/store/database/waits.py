"""Waits on the database: reported after some seconds, and ended after a limit.

A commit waits without end for a synchronous standby that is gone, and nothing in the daemon would
say so: its seat, which only takes locks, goes on. Whatever may wait for the database is registered
here, in the thread in which it waits, and one thread looks how long.

The registry is the process's own: there is one daemon in it, and one database.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

from provisioner.runtime.database_clock import read_boot_clock

log = logging.getLogger(__name__)

REPORT_S = 5.0  # a transaction takes milliseconds
AGAIN_S = 30.0  # between two reports of one wait


@dataclass(frozen=True)
class Wait:
    """One thing that waits for the database. `limited`: it ends the daemon if it takes too long."""

    what: str
    since_s: float  # of the boot clock
    limited: bool


_waits: dict[int, Wait] = {}  # changed by single operations only, which are atomic
_numbers = count()
_mine = threading.local()  # the numbers of this thread's waits


@contextmanager
def on(what: str, *, limited: bool = True) -> Iterator[None]:
    """Count this thread as waiting for the database, while inside."""
    number = next(_numbers)
    _waits[number] = Wait(what, read_boot_clock(), limited)
    numbers = _mine.__dict__.setdefault("numbers", [])
    numbers.append(number)
    try:
        yield
    finally:
        numbers.remove(number)
        del _waits[number]


@contextmanager
def without_limit() -> Iterator[None]:
    """Wait as long as it takes, while inside: an end of the process would make it worse."""
    numbers = list(_mine.__dict__.get("numbers", []))
    before = {number: _waits[number] for number in numbers}
    for number in numbers:
        _waits[number] = replace(before[number], limited=False)
    try:
        yield
    finally:
        for number in numbers:
            _waits[number] = replace(before[number], since_s=read_boot_clock())


def longest() -> tuple[str, float]:
    """Return the longest wait of now, and its seconds; ("", 0.0) if nothing waits."""
    waits = list(_waits.values())
    if not waits:
        return "", 0.0
    first = min(waits, key=lambda w: w.since_s)
    return first.what, read_boot_clock() - first.since_s


def too_long(limit_s: float) -> tuple[str, float] | None:
    now = read_boot_clock()
    over = [(w.what, now - w.since_s) for w in list(_waits.values()) if w.limited]
    return max((o for o in over if o[1] >= limit_s), key=lambda o: o[1], default=None)


class WaitWatch:
    """Reports waits of this process while it runs.

    `why` asks the server for its own reason to wait; "" if it gives none. `over` ends the process.
    """

    def __init__(
        self,
        limit_s: float,
        why: Callable[[], str],
        over: Callable[[str], None],
        report_s: float = REPORT_S,
    ) -> None:
        self._limit_s = limit_s
        self._why = why
        self._over = over
        self._report_s = report_s
        self._stopped = threading.Event()
        self._reported_at = 0.0
        self._reported = False

    def __enter__(self) -> WaitWatch:
        threading.Thread(target=self._run, name="waits", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(min(1.0, self._report_s / 4)):
            self.look()

    def look(self) -> None:
        """Report waits that are too long now, and those that have ended."""
        subject, waited_s = longest()
        if waited_s < self._report_s:
            if self._reported:
                log.warning("the database answers again")
            self._reported = False
            return
        now = read_boot_clock()
        if not self._reported or now - self._reported_at >= AGAIN_S:
            self._reported = True
            self._reported_at = now
            log.warning(
                "%s has waited %.0f s for the database%s", subject, waited_s, self._reason()
            )
        over = too_long(self._limit_s)
        if over is not None:
            name, passed_s = over
            self._over(f"{name} has waited {passed_s:.0f} s for the database{self._reason()}")

    def _reason(self) -> str:
        why = self._why()
        return f": {why}" if why else ""
