"""Reachability over the matrix's edges, one component at a time.

This proves facts about single components. Rules between components may still forbid every order,
which only the planner can find. A version that is unreachable here is unreachable for the planner
too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.machine.drive_firmware import NVME_FIRMWARE
from provisioner.model.matrix import Matrix
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.pins import grammar_of, is_pinned
from provisioner.planning.path.switch_upgrades import ASKS_LEAVE


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
    """Return, for each version of a kind that the matrix names, the versions of its next hops.

    These are the planner's own hops: stops of `via`, edges from "*" and other spellings count, and
    hops that no plan may take do not. Bundles and packages that carry the kind count as edges too.
    """
    moves = _list_moves(matrix)
    targets_of: dict[str, list[str]] = {}
    for version in _list_versions(matrix, moves, kind):
        for hop in moves.find_hops(kind, version):
            if not hop.objections:
                targets_of.setdefault(version, []).append(hop.to)
    for carrier in matrix.edges:
        for start in _list_versions(matrix, moves, carrier):
            before = _find_carried_version(matrix, moves, carrier, start, kind)
            for hop in moves.find_hops(carrier, start) if before else ():
                after = dict(hop.carries).get(kind)
                if after and after != before and not hop.objections:
                    targets_of.setdefault(before, []).append(after)
    return {version: tuple(dict.fromkeys(targets)) for version, targets in targets_of.items()}


def normalize_version(matrix: Matrix, kind: str, version: str) -> str:
    """Return the spelling of a version that `map_moves` uses."""
    return _list_moves(matrix).normalize_version(kind, version)


def _list_moves(matrix: Matrix) -> Moves:
    return Moves(matrix, {}, components.ALL, production=False, leave=ASKS_LEAVE)


def _list_versions(matrix: Matrix, moves: Moves, kind: str) -> tuple[str, ...]:
    """Return every version of a kind that an edge, a bundle or a pin names, in one spelling."""
    pinned = [
        version
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        if kind in profile.pins and profile.pins[kind].known
        for version in (profile.pins[kind].version, *profile.pins[kind].also)
    ]
    names = (*moves.list_versions(kind), *pinned)
    return tuple(dict.fromkeys(moves.normalize_version(kind, v) for v in names))


def _find_carried_version(
    matrix: Matrix, moves: Moves, carrier: str, version: str, kind: str
) -> str:
    """Return the version of `kind` that runs beside a carrier's version, "" if nothing states it.

    It is read from the bundle, from an edge that ends at that version, or from the release that
    pins the two together.
    """
    if bundled := moves.get_contents(carrier, version).get(kind):
        return bundled
    for edge in matrix.edges.get(carrier, ()):
        if kind in edge.carries and moves.normalize_version(carrier, edge.to) == version:
            return moves.normalize_version(kind, edge.carries[kind])
    for release in matrix.releases.values():
        for profile in release.profiles.values():
            pins = profile.pins
            together = carrier in pins and kind in pins and pins[kind].known
            if together and moves.normalize_version(carrier, pins[carrier].version) == version:
                return moves.normalize_version(kind, pins[kind].version)
    return ""


def find_reachable(steps: Mapping[str, Sequence[str]], start: str) -> frozenset[str]:
    """Return every version that `start` leads to, including `start`."""
    visited = {start}
    todo = deque([start])
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
            pin = pins.pins[kind]
            # of drives each version is of another model
            for version in (pin.version, *(pin.also if kind == NVME_FIRMWARE else ())):
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
                        for version in find_reachable(
                            steps[kind], normalize_version(matrix, kind, start.version)
                        )
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
