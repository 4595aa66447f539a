"""Reachability over the matrix's edges, one component at a time.

This proves facts about single components. Rules between components may still forbid every order,
which only the planner can find. A version that is unreachable here is unreachable for the planner
too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.matrix import Edge, Matrix
from provisioner.planning.path.pins import grammar_of, is_pinned


class Start(Record):
    """A version from which a node may come, and the place that lists it."""

    kind: str
    version: str
    origin: str  # "release spectrum-x-1.2.0" or "edge"


class Unreachable(Record):
    """A pin that no chain of edges reaches from a listed start."""

    release: str
    profile: str
    kind: str
    start: Start
    target: str


def map_moves(matrix: Matrix, kind: str) -> dict[str, tuple[str, ...]]:
    """Return, for each version of a kind, the versions that one whole edge leads to.

    Bundles and packages that carry the kind count as edges too.
    """
    targets_of: dict[str, list[str]] = {}
    for edge in matrix.edges.get(kind, ()):
        for start in edge.from_versions:
            targets_of.setdefault(start, []).append(edge.to)
    for carrier, edges in matrix.edges.items():
        for edge in edges:
            before = [
                _find_carried_version(matrix, carrier, None, v, kind) for v in edge.from_versions
            ]
            after = _find_carried_version(matrix, carrier, edge, edge.to, kind)
            if after:
                for version in before:
                    if version and version != after:
                        targets_of.setdefault(version, []).append(after)
    return {version: tuple(dict.fromkeys(targets)) for version, targets in targets_of.items()}


def _find_carried_version(
    matrix: Matrix, carrier: str, edge: Edge | None, version: str, kind: str
) -> str:
    """Return the version of `kind` that comes with a carrier at a version, "" if it is not listed.

    The version that a carrier brought along at the start of an edge is read from its bundle, or
    from the release that pins the two together.
    """
    if edge and kind in edge.carries:
        return edge.carries[kind]
    bundled = matrix.bundles.get(carrier, {}).get(version, {}).get(kind, "")
    if bundled or edge:
        return bundled
    for release in matrix.releases.values():
        for profile in release.profiles.values():
            pins = profile.pins
            if carrier in pins and kind in pins and pins[carrier].version == version:
                return pins[kind].version if pins[kind].known else ""
    return ""


def find_reachable(steps: Mapping[str, Sequence[str]], start: str) -> frozenset[str]:
    """Return every version that `start` leads to, including `start`."""
    visited, todo = {start}, deque([start])
    while todo:
        for target in steps.get(todo.popleft(), ()):
            if target not in visited:
                visited.add(target)
                todo.append(target)
    return frozenset(visited)


def list_ancestors(matrix: Matrix, release: str) -> tuple[str, ...]:
    """Return the releases that this one supersedes, nearest first."""
    chain: list[str] = []
    older = matrix.releases[release].supersedes
    while older and older not in chain:
        chain.append(older)
        older = matrix.releases[older].supersedes
    return tuple(chain)


def list_starts(matrix: Matrix, release: str, profile: str, kind: str) -> tuple[Start, ...]:
    """Return the versions from which a release must be reachable: the pins of its ancestors."""
    start_of: dict[str, Start] = {}
    for older in list_ancestors(matrix, release):
        pins = matrix.releases[older].profiles.get(profile)
        if pins and kind in pins.pins and pins.pins[kind].known:
            version = pins.pins[kind].version
            start_of.setdefault(
                version, Start(kind=kind, version=version, origin=f"release {older}")
            )
    return tuple(start_of.values())


def find_unreachable(matrix: Matrix) -> tuple[Unreachable, ...]:
    """Return every listed start from which a pin cannot be reached."""
    missing: list[Unreachable] = []
    steps = {kind: map_moves(matrix, kind) for kind in list_pinned_kinds(matrix)}
    for release_name, release in matrix.releases.items():
        for profile_name, profile in release.profiles.items():
            for kind, pin in profile.pins.items():
                if not pin.known:
                    continue
                missing += [
                    Unreachable(
                        release=release_name,
                        profile=profile_name,
                        kind=kind,
                        start=start,
                        target=pin.version,
                    )
                    for start in list_starts(matrix, release_name, profile_name, kind)
                    if not any(
                        is_pinned(grammar_of(kind), version, pin)
                        for version in find_reachable(steps[kind], start.version)
                    )
                ]
    return tuple(missing)


def list_pinned_kinds(matrix: Matrix) -> tuple[str, ...]:
    """Return the component kinds that any profile pins, in the order of the file."""
    kinds = {
        kind: None
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        for kind in profile.pins
    }
    return tuple(kinds)


def find_cycle(steps: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a cycle in a graph, its first element repeated at the end; () if there is none."""
    visited: set[str] = set()
    for root in steps:
        trail: list[str] = []
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                if node in visited:
                    continue
                if node in trail:
                    return (*trail[trail.index(node) :], node)
                trail.append(node)
            targets = steps.get(node, ())
            if index < len(targets):
                stack.append((node, index + 1))
                stack.append((targets[index], 0))
            else:
                trail.remove(node)
                visited.add(node)
    return ()
