"""Rules of a matrix about one thing written twice: versions are compared by their grammar.

"2.0" and "2.0.0" are one version to a device, and so one edge written with both is one edge, and a
way back written with the other one is a circle. Raises InputError at the place of the fault.
"""

from __future__ import annotations

from itertools import pairwise

from provisioner.model.matrix import Edge, Matrix
from provisioner.model.versions import parse_version
from provisioner.planning.matrix.located_yaml import Located, Path
from provisioner.planning.path.hops import ANY
from provisioner.planning.path.pins import grammar_of
from provisioner.planning.path.reachability import find_cycle


def check_spellings(matrix: Matrix, located: Located) -> None:
    """Refuse edges and bundle versions that are the same in two spellings, and circles of them."""
    for kind, edges in matrix.edges.items():
        for index, edge in enumerate(edges):
            _check_stops(("edges", kind, index), kind, edge, located)
        _check_edges(kind, edges, located)
        _check_circles(kind, edges, located)
    for kind, versions in matrix.bundles.items():
        written: dict[object, str] = {}
        for version in versions:
            first = written.setdefault(spell(kind, version), version)
            if first != version:
                raise located.build_error(
                    ("bundles", kind, version),
                    f"{version} and {first} are one version",
                    "Keep one of the two.",
                )


def spell(kind: str, version: str) -> object:
    """Return the same value for all spellings of one version of a component."""
    if version == ANY:
        return ANY
    grammar = grammar_of(kind)
    key = None if grammar == "opaque" else parse_version(grammar, version)
    return version.strip() if key is None else key


def _check_stops(path: Path, kind: str, edge: Edge, located: Located) -> None:
    starts = [spell(kind, v) for v in edge.from_versions]
    stops = [spell(kind, v) for v in (*edge.via, edge.to)]
    if len(set(starts)) < len(starts):
        raise located.build_error(
            (*path, "from"), "it lists one version twice", "List each version once."
        )
    if stops[-1] in starts:
        raise located.build_error(
            (*path, "to"),
            f"the edge leads from {edge.to} to itself in another spelling",
            "Correct one of them.",
        )
    if len(set(stops)) < len(stops) or set(stops) & set(starts):
        raise located.build_error(
            (*path, "via"), "the way passes one version twice", "List each stop once."
        )


def _check_edges(kind: str, edges: tuple[Edge, ...], located: Located) -> None:
    moves: dict[tuple[object, object], int] = {}
    for index, edge in enumerate(edges):
        for start in edge.from_versions:
            key = (spell(kind, start), spell(kind, edge.to))
            if (first := moves.setdefault(key, index)) != index:
                raise located.build_error(
                    ("edges", kind, index),
                    f"the move {start} → {edge.to} is already number {first + 1} here",
                    "Keep one of the two; an overlay replaces an edge with `override: true` "
                    "and a `reason`.",
                )


def _check_circles(kind: str, edges: tuple[Edge, ...], located: Located) -> None:
    names: dict[object, str] = {}
    upgrades: dict[str, list[str]] = {}
    for edge in edges:
        for start in edge.from_versions if not edge.downgrade else ():
            stops = [names.setdefault(spell(kind, v), v) for v in (start, *edge.via, edge.to)]
            for start_version, target_version in pairwise(stops):
                upgrades.setdefault(start_version, []).append(target_version)
    if circle := find_cycle(upgrades):
        raise located.build_error(
            ("edges", kind),
            f"upgrades run in a circle: {' → '.join(circle)}",
            "Mark the way back with `downgrade: true`, or remove it.",
        )
