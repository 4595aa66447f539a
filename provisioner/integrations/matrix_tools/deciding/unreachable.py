"""Pins that no chain of edges reaches from the releases before. Pure."""

from __future__ import annotations

from provisioner.model.base import Record
from provisioner.model.machine.settings import NVME_FIRMWARE
from provisioner.model.matrix import Matrix
from provisioner.planning.path.conditions import grammar_of, is_pinned
from provisioner.planning.path.distances import Ways


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


def find_unreachable(matrix: Matrix, ways: Ways | None = None) -> tuple[Unreachable, ...]:
    """Return every listed start from which a pin cannot be reached."""
    missing: list[Unreachable] = []
    ways = ways or Ways(matrix)
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
                        for version in ways.list_reachable(kind, start.version)
                    )
                ]
    return tuple(missing)
