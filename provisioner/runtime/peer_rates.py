"""Rates of requests, one bucket for each address that asks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

# An agent asks some five times when it boots, then every few seconds at most (it repeats a failed
# heartbeat after 5 to 10 s): twice that is let through.
BURST = 30.0
PER_SECOND = 0.4
PEERS_MAX = 65536  # addresses whose rate is known; 100 bytes each


class Rate:
    """A token bucket for each peer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # peer -> left, at

    def admits(self, peer: str) -> bool:
        """Return whether this peer may ask once more now."""
        now = self._now()
        allowance, at = self._left.pop(peer, (BURST, now))
        allowance = min(BURST, allowance + (now - at) * PER_SECOND)
        admitted = allowance >= 1.0
        self._left[peer] = (allowance - 1.0 if admitted else allowance, now)
        while len(self._left) > PEERS_MAX:
            self._left.popitem(last=False)
        return admitted
