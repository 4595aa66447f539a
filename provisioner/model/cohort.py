"""What a node measured, and what its fleet taught: words of the fleet's comparison."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.base import Record


class Sample(Record):
    """What one node measured when it was last judged with one set of versions."""

    node: str
    rack: str
    profile: str
    versions: str  # digest of its version set
    measured: Mapping[str, float]  # "name/part", the unit in the name
    sound: bool  # no check found a fault: only then does it teach
    taken_at: float = 0.0


class Baseline(Record):
    """A learned level and the floor that follows (a ceiling, where less is better)."""

    metric: str  # the group: "busbw_gb_s", or with a rail
    profile: str
    versions: str
    level: float
    floor: float
    anchor: float  # the first level, or the published value
    nodes: int
    racks: int
    below: int  # sound nodes that are worse than the floor
    learned_at: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes in {self.racks} racks share {self.level:.6g}"
