"""How several daemons share a site's operations: what each may take, and when it gives away."""

from __future__ import annotations

SLACK = 1.25  # of a share; below it nothing is moved to and fro


def share(active: int, daemons: int, operations_max: int) -> int:
    """How many operations each daemon may drive: all together can drive all there are.

    `active` of the whole site, among `daemons` that live; `operations_max` of one daemon.
    """
    return max(1, min(operations_max, -(-active // max(daemons, 1))))


def too_many(driven: int, part: int) -> bool:
    """Whether a daemon that drives so many should leave some to its peers; `part`: its share."""
    return driven > part * SLACK + 1
