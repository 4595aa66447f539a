"""How long to wait between looks at something that takes an unknown time.

Short things are seen soon, long ones are not asked about more often than `poll_s`: a forty-second
update costs seconds of waiting instead of half a minute, a forty-minute one eight more looks.
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST = 1 / 8  # of `poll_s`
GROWTH = 1.3


def grow_waits(poll_s: float) -> Iterator[float]:
    """Yield the seconds to wait before the first look, the second, and so on; without end."""
    wait_s = poll_s * FIRST
    while True:
        yield wait_s
        wait_s = min(poll_s, wait_s * GROWTH)
