"""The upgrades of Cumulus Linux that NVIDIA publishes: from which release, by which method.

The matrix's edges list the moves that a site makes; these rules forbid edges that contradict the
published ones. Sources: Cumulus Linux guide, "Upgrading Cumulus Linux", and the release notes of
5.11.4, 5.11.5 and 5.13. Pure.
"""

from __future__ import annotations

from itertools import pairwise

from provisioner.model.matrix import Matrix
from provisioner.model.versions import parse_version
from provisioner.planning.path.hops import IMAGE, ONIE, PACKAGES

KIND = "switch.os"
Train = tuple[int, ...]  # (5, 11, 4): the build number does not decide
_FIRST_WITHOUT_WAY_BACK: Train = (5, 13)
_LAST_BEFORE: Train = (5, 11)
# target -> method -> releases (or trains, of two numbers) that it may start from. A target that is
# not listed has no published table: only the two general rules below hold for it.
_PUBLISHED: dict[Train, dict[str, tuple[Train, ...]]] = {
    (5, 11, 4): {
        IMAGE: ((5, 11, 3),),
        PACKAGES: ((5, 11, 0), (5, 11, 1), (5, 11, 2), (5, 11, 3), (5, 10), (5, 9, 4)),
    },
    (5, 11, 5): {IMAGE: ((5, 11, 3), (5, 11, 4)), PACKAGES: ((5, 11, 3), (5, 11, 4), (5, 9, 4))},
}


def find_violation(start: str, to: str, method: str) -> str:
    """Return the published rule that forbids this move, "" if none does. ONIE is always allowed."""
    start_train = _parse_train(start)
    target_train = _parse_train(to)
    if method == ONIE or not start_train or not target_train:
        return ""
    if start_train[:2] >= _FIRST_WITHOUT_WAY_BACK and target_train[:2] <= _LAST_BEFORE:
        return "from 5.13 or newer back to 5.11 or older goes by ONIE only"
    if target_train in _PUBLISHED:
        allowed = _PUBLISHED[target_train].get(method, ())
        if not any(start_train[: len(a)] == a for a in allowed):
            return f"no published way by {method} from {start}; other starts go by ONIE"
    elif method == PACKAGES and start_train[:2] != target_train[:2]:
        return "a new train is installed as an image, never as packages"
    return ""


def find_forbidden_edges(matrix: Matrix, own_method: str = IMAGE) -> tuple[tuple[str, str], ...]:
    """Return (place, sentence) for each edge that the published rules forbid."""
    return tuple(
        (f"edges.{KIND}: {start} → {stop}", violation)
        for edge in matrix.edges.get(KIND, ())
        for stops in ((*edge.via, edge.to),)
        for start, stop in (*((s, stops[0]) for s in edge.from_versions), *pairwise(stops))
        if (violation := find_violation(start, stop, edge.method or own_method))
    )


def _parse_train(version: str) -> Train:
    numbers = parse_version("cumulus", version)
    return numbers[:3] if numbers else ()
