"""Comparison of whole distributions of step times instead of their means. Pure.

A gray failure appears as a tail: every tenth step is slow, while the mean hardly moves. After the
SuperBench/Anubis paper (USENIX ATC 2024, arXiv 2402.06194), which clusters nodes by the similarity
of their distributions. Its full text was not available: the formulas are a reconstruction from the
abstract and the published code, and are to be checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from provisioner.model.base import Record

SAMPLES_MIN = 30  # steps; fewer show no tail
SAMPLES_MAX = 100_000


class StepPolicy(Record):
    """`similarity`: alpha of the paper's reconstruction; `repeatability`: below it a benchmark
    differs from itself too much to judge a node.
    """

    similarity: float = 0.95
    repeatability: float = 0.97


class Criteria(Record):
    """The node whose distribution is the reference, and the nodes that differ from it."""

    reference: str
    members: tuple[str, ...]
    defective: Mapping[str, float]  # node -> similarity to the reference, slower side only


def measure_similarity(a: Sequence[float], b: Sequence[float]) -> float:
    """Return 1 for equal distributions, towards 0 for disjoint ones."""
    both, either = _areas(sorted(a), sorted(b), one_sided=False)
    return 1 - both / either if either else 1.0


def measure_slower_similarity(a: Sequence[float], reference: Sequence[float]) -> float:
    """Return `similarity` with only those differences in which `a` is slower."""
    slower, either = _areas(sorted(a), sorted(reference), one_sided=True)
    return 1 - slower / either if either else 1.0


def _areas(a: Sequence[float], b: Sequence[float], *, one_sided: bool) -> tuple[float, float]:
    """Return the area between the two distribution functions of times, and under the higher tail.

    With survival functions S = 1 - F: slower steps make S larger, and the area under S is the mean
    time, so that the quotient is a share of the time.
    """
    _check(a)
    _check(b)
    points = sorted({0.0, *a, *b})
    between = under = 0.0
    i = j = 0
    for low, high in pairwise(points):
        while i < len(a) and a[i] <= low:
            i += 1
        while j < len(b) and b[j] <= low:
            j += 1
        mine = 1 - i / len(a)
        theirs = 1 - j / len(b)
        gap = mine - theirs
        between += (max(gap, 0.0) if one_sided else abs(gap)) * (high - low)
        under += max(mine, theirs) * (high - low)
    return between, under


def _check(samples: Sequence[float]) -> None:
    """Raise ValueError for values that are no step times."""
    if not SAMPLES_MIN <= len(samples) <= SAMPLES_MAX:
        raise ValueError(f"{len(samples)} steps; {SAMPLES_MIN} to {SAMPLES_MAX} are needed")
    if not 0 < samples[0] <= samples[-1] < float("inf"):
        raise ValueError("step times are positive and finite")


def find_defective_nodes(nodes: Mapping[str, Sequence[float]], policy: StepPolicy) -> Criteria:
    """Return the nodes that are unlike the others; the most central node is the reference.

    Defective nodes leave, and the reference is chosen again among the remaining nodes until no node
    leaves. Raises ValueError for fewer than three nodes, or for samples that are no step times.
    """
    if len(nodes) < 3:
        raise ValueError("a reference needs at least three nodes")
    members = sorted(nodes)
    cache: dict[tuple[str, str], float] = {}
    defective: dict[str, float] = {}
    while True:
        reference = max(
            members, key=lambda n: (fmean(_cached(cache, nodes, n, m) for m in members), n)
        )
        similarities = {n: measure_slower_similarity(nodes[n], nodes[reference]) for n in members}
        bad = {n: s for n, s in similarities.items() if s < policy.similarity and n != reference}
        if not bad or len(members) - len(bad) < 2:
            return Criteria(
                reference=reference,
                members=tuple(n for n in members if n not in bad),
                defective={**defective, **bad},
            )
        defective.update(bad)
        members = [n for n in members if n not in bad]


def _cached(
    known: dict[tuple[str, str], float], nodes: Mapping[str, Sequence[float]], a: str, b: str
) -> float:
    key = (a, b) if a < b else (b, a)
    if key not in known:
        known[key] = 1.0 if a == b else measure_similarity(nodes[a], nodes[b])
    return known[key]


def is_repeatable(runs: Sequence[Sequence[float]], policy: StepPolicy) -> bool:
    """Return whether a benchmark, run several times on one good node, is like itself."""
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[:i]]
    if not pairs:
        return False
    return fmean(measure_similarity(a, b) for a, b in pairs) >= policy.repeatability
