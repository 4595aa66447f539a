"""Which version leads to which over the matrix's edges, one component at a time.

A proof over single components: rules between components may still forbid every order, which only
the planner can tell. What is unreachable here is unreachable for the planner too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.matrix import Edge, Matrix
from provisioner.planning.path.pins import grammar_of, is_pinned


class Start(Record):
    """One version that a node may come from, and where it is listed."""

    kind: str
    version: str
    origin: str  # "release spectrum-x-1.2.0" or "edge"


class Unreachable(Record):
    """A pin that nothing leads to from a listed start."""

    release: str
    profile: str
    kind: str
    start: Start
    target: str


def moves(matrix: Matrix, kind: str) -> dict[str, tuple[str, ...]]:
    """version → versions one whole edge away, also by bundles and packages that carry the kind."""
    found: dict[str, list[str]] = {}
    for edge in matrix.edges.get(kind, ()):
        for start in edge.from_versions:
            found.setdefault(start, []).append(edge.to)
    for carrier, edges in matrix.edges.items():
        for edge in edges:
            before = [_carried(matrix, carrier, None, v, kind) for v in edge.from_versions]
            after = _carried(matrix, carrier, edge, edge.to, kind)
            if after:
                for version in before:
                    if version and version != after:
                        found.setdefault(version, []).append(after)
    return {version: tuple(dict.fromkeys(targets)) for version, targets in found.items()}


def _carried(matrix: Matrix, carrier: str, edge: Edge | None, version: str, kind: str) -> str:
    """The version of `kind` that comes with a carrier at a version, "" if nobody says.

    What a carrier brought along at the start of an edge is known from its bundle, or from the
    release that pins the two together.
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


def reachable(steps: Mapping[str, Sequence[str]], start: str) -> frozenset[str]:
    """Everything that `start` leads to, itself included."""
    seen, todo = {start}, deque([start])
    while todo:
        for target in steps.get(todo.popleft(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return frozenset(seen)


def ancestors(matrix: Matrix, release: str) -> tuple[str, ...]:
    """The releases that this one supersedes, nearest first."""
    chain: list[str] = []
    older = matrix.releases[release].supersedes
    while older and older not in chain:
        chain.append(older)
        older = matrix.releases[older].supersedes
    return tuple(chain)


def starts(matrix: Matrix, release: str, profile: str, kind: str) -> tuple[Start, ...]:
    """The versions from which a release must be reachable: the pins of what it supersedes."""
    found: dict[str, Start] = {}
    for older in ancestors(matrix, release):
        pins = matrix.releases[older].profiles.get(profile)
        if pins and kind in pins.pins and pins.pins[kind].known:
            version = pins.pins[kind].version
            found.setdefault(version, Start(kind=kind, version=version, origin=f"release {older}"))
    return tuple(found.values())


def unreachable(matrix: Matrix) -> tuple[Unreachable, ...]:
    """Every listed start from which a pin cannot be reached."""
    missing: list[Unreachable] = []
    steps = {kind: moves(matrix, kind) for kind in pinned_kinds(matrix)}
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
                    for start in starts(matrix, release_name, profile_name, kind)
                    if not any(
                        is_pinned(grammar_of(kind), version, pin)
                        for version in reachable(steps[kind], start.version)
                    )
                ]
    return tuple(missing)


def pinned_kinds(matrix: Matrix) -> tuple[str, ...]:
    """The component kinds that any profile pins, in the order of the file."""
    found = {
        kind: None
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        for kind in profile.pins
    }
    return tuple(found)


def cycle_of(steps: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A circle in a graph, first element repeated at the end; () if there is none."""
    done: set[str] = set()
    for root in steps:
        trail: list[str] = []
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            node, index = stack.pop()
            if index == 0:
                if node in done:
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
                done.add(node)
    return ()
