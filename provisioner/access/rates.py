"""How often a caller may do something: a bucket of permissions that fills up again with time.

A bucket holds what may be done in one period and fills evenly, so that a caller may spend all of it
at once and has the average afterwards. The number of buckets is bounded: a full bucket is the same
as none, and of the others the one that was used least recently is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict

BUCKETS_MAX = 4096  # callers that are counted at the same time


class Rate:
    """One rate for many callers. Times are seconds of any clock that never steps back."""

    def __init__(self, count: int, period_s: float) -> None:
        self.count, self.period_s = count, period_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (left, at)

    def take(self, caller: str, now: float, count: int = 1) -> float:
        """Return 0.0 if the caller may, and how many seconds it has to wait otherwise."""
        wait_s = self.wait_s(caller, now, count)
        if not wait_s:
            self._keep(caller, self._left(caller, now) - count, now)
        return wait_s

    def wait_s(self, caller: str, now: float, count: int = 1) -> float:
        """Return how many seconds the caller has to wait; takes nothing."""
        lacking = min(count, self.count) - self._left(caller, now)
        return max(0.0, lacking * self.period_s / self.count)

    def _left(self, caller: str, now: float) -> float:
        left, at = self._buckets.get(caller, (float(self.count), now))
        return min(float(self.count), left + (now - at) * self.count / self.period_s)

    def _keep(self, caller: str, left: float, now: float) -> None:
        self._buckets[caller] = (left, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
