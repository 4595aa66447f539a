"""Measurements of nodes, and the baselines that the fleet's comparison learns from them."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant


class Sample(Record):
    """The measurements of one node when it was last judged with one set of versions."""

    node: str
    rack: str
    profile: str
    versions: str  # digest of its version set
    measured: Mapping[str, float]  # "name/part", the unit in the name
    sound: bool  # no check reported a fault; only then it contributes to a baseline
    taken_at: float = 0.0


class Baseline(Record):
    """A learned level and the floor that follows from it (a ceiling for metrics where less is
    better).
    """

    metric: str  # the group: "busbw_gb_s", or with a rail
    profile: str
    versions: str
    level: float
    floor: float
    anchor: float  # the first level, or the published value
    nodes: int
    racks: int
    below: int  # sound nodes that are worse than the floor
    learned_at: Instant

    def __str__(self) -> str:
        return f"{self.nodes} nodes in {self.racks} racks share {self.level:.6g}"
