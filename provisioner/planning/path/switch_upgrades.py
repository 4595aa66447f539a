"""Which Cumulus release may follow which, and by which method, as NVIDIA publishes it.

Three methods: the optimized image (the other partition, keeps the configuration), packages (keeps
it too), and ONIE (installs anew and destroys it). The matrix's edges say which moves a site makes;
here is what no edge may claim. Sources: Cumulus Linux guide, "Upgrading Cumulus Linux", and the
release notes of 5.11.4, 5.11.5 and 5.13.
"""

from __future__ import annotations

from itertools import pairwise

from provisioner.model.matrix import Matrix
from provisioner.model.versions import key

KIND = "switch.os"
IMAGE, PACKAGES, ONIE = "nvue_image", "nvue_packages", "onie"
# what a site must allow by name: the one destroys the configuration, the other takes versions
# from a package mirror whose content no image digest pins
ASKS_LEAVE = frozenset({PACKAGES, ONIE})

Train = tuple[int, ...]  # (5, 11, 4): the build number does not decide
_FIRST_WITHOUT_WAY_BACK: Train = (5, 13)
_LAST_BEFORE: Train = (5, 11)

# target -> method -> releases (or trains, of two numbers) that it may start from. A target that is
# not listed has no published table: only the two rules of `problem` hold for it.
_PUBLISHED: dict[Train, dict[str, tuple[Train, ...]]] = {
    (5, 11, 4): {
        IMAGE: ((5, 11, 3),),
        PACKAGES: ((5, 11, 0), (5, 11, 1), (5, 11, 2), (5, 11, 3), (5, 10), (5, 9, 4)),
    },
    (5, 11, 5): {
        IMAGE: ((5, 11, 3), (5, 11, 4)),
        PACKAGES: ((5, 11, 3), (5, 11, 4), (5, 9, 4)),
    },
}


def problem(start: str, to: str, method: str) -> str:
    """What the published rules say against this move; "": nothing. ONIE may go anywhere."""
    here, there = _train(start), _train(to)
    if method == ONIE or not here or not there:
        return ""
    if here[:2] >= _FIRST_WITHOUT_WAY_BACK and there[:2] <= _LAST_BEFORE:
        return "from 5.13 or newer back to 5.11 or older goes by ONIE only"
    if there in _PUBLISHED:
        allowed = _PUBLISHED[there].get(method, ())
        if not any(here[: len(a)] == a for a in allowed):
            return f"no published way by {method} from {start}; other starts go by ONIE"
    elif method == PACKAGES and here[:2] != there[:2]:
        return "a new train is installed as an image, never as packages"
    return ""


def forbidden_edges(matrix: Matrix, own_method: str = IMAGE) -> tuple[tuple[str, str], ...]:
    """(place, sentence) of each edge that the published rules speak against."""
    return tuple(
        (f"edges.{KIND}: {start} → {stop}", said)
        for edge in matrix.edges.get(KIND, ())
        for stops in ((*edge.via, edge.to),)
        for start, stop in (*((s, stops[0]) for s in edge.from_versions), *pairwise(stops))
        if (said := problem(start, stop, edge.method or own_method))
    )


def _train(version: str) -> Train:
    found = key("cumulus", version)
    return found[:3] if found else ()
