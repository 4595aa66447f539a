"""Share a site's operations between several daemons: the number that each may drive."""

from __future__ import annotations

SLACK = 1.25  # times the share; fewer operations are not moved, so that none goes back and forth


def compute_share(active: int, daemons: int, operations_max: int) -> int:
    """Return how many operations each daemon may drive, so that together they can drive all.

    `active` operations of the whole site are shared among `daemons` live ones; `operations_max` is
    the limit of one daemon.
    """
    return max(1, min(operations_max, -(-active // max(daemons, 1))))


def has_too_many(driven: int, part: int) -> bool:
    """Return whether a daemon with `driven` operations should release some; `part` is its share."""
    return driven > part * SLACK + 1
