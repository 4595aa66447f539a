"""Decide from measured loads which work an overloaded daemon postpones. Pure.

Work under way on a device always continues, and nodes are always reclaimed from their tenants.
Routine observations are postponed first, then new work.
"""

from __future__ import annotations

from enum import IntEnum

from provisioner.model.base import Record

# each limit: (strained, severe)
LAG_S = (1.0, 5.0)  # delay of the event loop: leases and agents need an answer within seconds
DESCRIPTORS = (0.80, 0.92)  # share of the process's limit: a BMC takes three, a play some ten
WAITING = (2_000, 10_000)  # queued writes: at some 5,000 a second, 0.4 and 2 seconds
DATABASE_WAIT_S = (5.0, 30.0)  # wait of one transaction, which takes milliseconds
DISK_BYTES = (2 * 1024**3, 256 * 1024**2)  # free space for the database, whose journal only grows


class Level(IntEnum):
    """How much work is postponed."""

    CALM = 0
    STRAINED = 1  # routine observations of serving nodes are postponed
    SEVERE = 2  # and no new work is started, except to reclaim nodes


class Load(Record):
    """The measured loads. None: this platform cannot measure it."""

    lag_s: float = 0.0
    descriptors: int | None = None
    descriptors_max: int | None = None
    waiting: int = 0
    disk_free_bytes: int | None = None
    database_wait_s: float = 0.0


class Strain(Record):
    """One resource that is short."""

    by: str  # "event_loop" | "descriptors" | "store" | "disk" | "database"
    level: Level
    detail: str


def find_strains(load: Load) -> tuple[Strain, ...]:
    """Return every resource that is short now, the worst first."""
    measured = [
        _measure_strain("event_loop", load.lag_s, LAG_S, f"it runs {load.lag_s:.1f} s late"),
        _measure_strain("store", load.waiting, WAITING, f"{load.waiting} writes wait"),
        _measure_strain(
            "database",
            load.database_wait_s,
            DATABASE_WAIT_S,
            f"a transaction has waited {load.database_wait_s:.0f} s for the database",
        ),
    ]
    if load.descriptors is not None and load.descriptors_max:
        share = load.descriptors / load.descriptors_max
        detail = f"{load.descriptors} of {load.descriptors_max} file descriptors are open"
        measured.append(_measure_strain("descriptors", share, DESCRIPTORS, detail))
    if load.disk_free_bytes is not None:
        limits = (-DISK_BYTES[0], -DISK_BYTES[1])
        detail = f"{load.disk_free_bytes // 1024**2} MiB are left for the database"
        measured.append(_measure_strain("disk", -load.disk_free_bytes, limits, detail))
    return tuple(sorted((s for s in measured if s.level), key=lambda s: -s.level))


def highest_level(strains: tuple[Strain, ...]) -> Level:
    """Return the highest level of all strains."""
    return max((s.level for s in strains), default=Level.CALM)


def _measure_strain(by: str, value: float, limits: tuple[float, float], detail: str) -> Strain:
    reached = Level(sum(value >= limit for limit in limits))
    return Strain(by=by, level=reached, detail=detail)
