"""What a daemon has too much of, and what it leaves off first: pure, from measured loads.

The order of importance: what is under way on a device is always gone on with, and a node is always
taken back from its tenant; new work waits before that, and routine looks before new work.
"""

from __future__ import annotations

from enum import IntEnum

from provisioner.model.base import Record

LAG_S = (1.0, 5.0)  # of the event loop: a lease is renewed, an agent answered, within seconds
DESCRIPTORS = (0.80, 0.92)  # of the process's limit: a BMC takes three, a play some ten
WAITING = (2_000, 10_000)  # writes before the store: at some 5,000 a second, a part of a second
DATABASE_WAIT_S = (5.0, 30.0)  # of one transaction, which takes milliseconds
DISK_BYTES = (2 * 1024**3, 256 * 1024**2)  # left where the database is; its journal only grows


class Level(IntEnum):
    """How much is left off."""

    CALM = 0
    STRAINED = 1  # routine looks at nodes that serve are put off
    SEVERE = 2  # and nothing new is begun, but to take nodes back


class Load(Record):
    """What was measured. None: cannot be told here."""

    lag_s: float = 0.0
    descriptors: int | None = None
    descriptors_max: int | None = None
    waiting: int = 0
    disk_free_bytes: int | None = None
    database_wait_s: float = 0.0


class Strain(Record):
    """One thing that there is too much, or too little, of."""

    by: str  # "event_loop" | "descriptors" | "store" | "disk" | "database"
    level: Level
    detail: str


def strains(load: Load) -> tuple[Strain, ...]:
    """Everything that strains the daemon now, the worst first."""
    found = [
        _above("event_loop", load.lag_s, LAG_S, f"it runs {load.lag_s:.1f} s late"),
        _above("store", load.waiting, WAITING, f"{load.waiting} writes wait"),
        _above(
            "database",
            load.database_wait_s,
            DATABASE_WAIT_S,
            f"a transaction has waited {load.database_wait_s:.0f} s for the database",
        ),
    ]
    if load.descriptors is not None and load.descriptors_max:
        share = load.descriptors / load.descriptors_max
        told = f"{load.descriptors} of {load.descriptors_max} file descriptors are open"
        found.append(_above("descriptors", share, DESCRIPTORS, told))
    if load.disk_free_bytes is not None:
        limits = (-DISK_BYTES[0], -DISK_BYTES[1])
        told = f"{load.disk_free_bytes // 1024**2} MiB are left for the database"
        found.append(_above("disk", -load.disk_free_bytes, limits, told))
    return tuple(sorted((s for s in found if s.level), key=lambda s: -s.level))


def level(found: tuple[Strain, ...]) -> Level:
    """How much is left off because of all of them."""
    return max((s.level for s in found), default=Level.CALM)


def _above(by: str, value: float, limits: tuple[float, float], detail: str) -> Strain:
    reached = Level(sum(value >= limit for limit in limits))
    return Strain(by=by, level=reached, detail=detail)
