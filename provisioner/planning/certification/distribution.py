"""The distribution of each measured value over the fleet, with the floor that was learned. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from provisioner.model.base import Record
from provisioner.model.cohort import Baseline, Sample
from provisioner.planning.certification.cohort import group_of

BINS = 16


class Spread(Record):
    """One metric of one profile over the nodes. `bins`: counts between `least` and `most`."""

    profile: str
    metric: str
    values: int
    nodes: int
    least: float
    tenth: float  # a tenth of the values are smaller
    median: float
    most: float
    bins: tuple[int, ...]
    floor: float | None  # learned; None: none yet


def describe_spreads(
    samples: Sequence[Sample], baselines: Sequence[Baseline]
) -> tuple[Spread, ...]:
    """Return the distribution of every metric, by profile and name."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sample in samples:
        for metric, value in sample.measured.items():
            key = sample.profile, group_of(metric)
            values[key].append(value)
            nodes[key].add(sample.node)
    floors = {(b.profile, b.metric): b.floor for b in baselines}
    return tuple(
        _describe(key, sorted(values[key]), len(nodes[key]), floors.get(key))
        for key in sorted(values)
    )


def _describe(
    key: tuple[str, str], ordered: list[float], nodes: int, floor: float | None
) -> Spread:
    least = ordered[0]
    most = ordered[-1]
    bins = [0] * BINS
    width = (most - least) / BINS
    for value in ordered:
        bins[min(BINS - 1, int((value - least) / width)) if width else 0] += 1
    return Spread(
        profile=key[0],
        metric=key[1],
        values=len(ordered),
        nodes=nodes,
        least=least,
        tenth=ordered[len(ordered) // 10],
        median=ordered[len(ordered) // 2],
        most=most,
        bins=tuple(bins),
        floor=floor,
    )
