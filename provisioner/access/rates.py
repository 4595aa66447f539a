"""Limits on how often a caller may do something: buckets of permissions that refill with time.

A bucket holds the permissions of one period and refills evenly, so that a caller may spend all of
them at once and has the average afterwards. The number of buckets is bounded: a full bucket equals
none, and of the others the least recently used one is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict

BUCKETS_MAX = 4096  # callers that are counted at the same time


class Rate:
    """One rate for many callers. Times are seconds of any clock that never steps back."""

    def __init__(self, count: int, period_s: float) -> None:
        self.count = count
        self.period_s = period_s
        # (permissions, time of the last use)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take_permissions(self, caller: str, now: float, count: int = 1) -> float:
        """Take permissions; return 0.0, or the seconds to wait if there are too few of them."""
        wait_s = self.wait_s(caller, now, count)
        if not wait_s:
            self._keep(caller, self._left(caller, now) - count, now)
        return wait_s

    def wait_s(self, caller: str, now: float, count: int = 1) -> float:
        """Return how many seconds the caller has to wait, without taking a permission."""
        lacking = min(count, self.count) - self._left(caller, now)
        return max(0.0, lacking * self.period_s / self.count)

    def _left(self, caller: str, now: float) -> float:
        remaining, at = self._buckets.get(caller, (float(self.count), now))
        return min(float(self.count), remaining + (now - at) * self.count / self.period_s)

    def _keep(self, caller: str, left: float, now: float) -> None:
        self._buckets[caller] = (left, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
