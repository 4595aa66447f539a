"""Review a well-formed matrix: list the faults that block its use, and notes for the operator.

`parse` refuses contradictions; this module lists gaps. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.versions import compare, parse_version
from provisioner.planning.path.reachability import (
    find_reachable,
    find_unreachable,
    list_pinned_kinds,
    map_moves,
)
from provisioner.planning.path.switch_upgrades import find_forbidden_edges


class Weight(StrEnum):
    """The effect of a remark on the use of the matrix."""

    BLOCKS = "blocks"  # never usable: a release cannot be reached
    PRODUCTION = "production"  # refused in production mode, allowed in a laboratory
    NOTE = "note"


class Remark(Record):
    """One result of the review."""

    weight: Weight
    where: str  # "spectrum-x-1.3.0/hgx-h100-bf3: host.bios"
    problem: str
    remedy: str


class Readiness(Record):
    """Whether one profile of one release may be used in production, and the gaps if not."""

    release: str
    profile: str
    unknown: tuple[str, ...]  # kinds without a published version
    no_digest: tuple[str, ...]  # kinds whose file or SHA-256 is missing
    no_evidence: tuple[str, ...]  # kinds whose pin names no source

    @property
    def ready(self) -> bool:
        """Return whether production mode accepts it."""
        return not (self.unknown or self.no_digest or self.no_evidence)


# methods that push or serve a file from the artifact store; the others install from a package
# repository, set parameters, or come with another component
FILE_METHODS = frozenset(
    {"redfish_push", "bluefield_bfb", "playbook_nic_firmware", "nvue_image", "sonic_installer"}
)
FILELESS = frozenset(n for n, k in components.ALL.items() if k.method not in FILE_METHODS)


def review_matrix(matrix: Matrix, *, fileless: frozenset[str] = FILELESS) -> tuple[Remark, ...]:
    """Return every remark, the most serious first.

    `fileless` are the kinds that are installed without a file.
    """
    remarks = [
        Remark(
            weight=Weight.BLOCKS,
            where=f"{u.release}/{u.profile}: {u.kind}",
            problem=f"{u.target} cannot be reached from {u.start.version} ({u.start.origin})",
            remedy=f"Add an edge under edges.{u.kind}, or correct `supersedes`.",
        )
        for u in find_unreachable(matrix)
    ]
    remarks += _find_unmarked_downgrades(matrix) + _find_unreadable_pins(matrix)
    remarks += [
        Remark(
            weight=Weight.BLOCKS,
            where=where,
            problem=violation,
            remedy="Give the edge the method that is published for it, or another start.",
        )
        for where, violation in find_forbidden_edges(matrix)
    ]
    remarks += (
        _find_dead_edges(matrix) + _find_edges_without_evidence(matrix) + _review_images(matrix)
    )
    for state in judge_readiness(matrix, fileless=fileless):
        where = f"{state.release}/{state.profile}"
        for kinds, problem, remedy in (
            (state.unknown, "no published version", "Close the pin in an overlay."),
            (state.no_digest, "no file name or no SHA-256", "Add `artifact` and `sha256`."),
            (state.no_evidence, "the pin names no source", "Add `evidence`."),
        ):
            remarks += [
                Remark(
                    weight=Weight.PRODUCTION,
                    where=f"{where}: {kind}",
                    problem=problem,
                    remedy=remedy,
                )
                for kind in kinds
            ]
    order = list(Weight)
    return tuple(sorted(remarks, key=lambda r: order.index(r.weight)))


def judge_readiness(
    matrix: Matrix, *, fileless: frozenset[str] = FILELESS
) -> tuple[Readiness, ...]:
    """Return for each release and profile whether production mode accepts it."""
    return tuple(
        Readiness(
            release=release_name,
            profile=name,
            unknown=tuple(k for k, p in profile.pins.items() if not p.known),
            no_digest=_find_missing_files(matrix, profile, fileless),
            no_evidence=tuple(k for k, p in profile.pins.items() if p.known and not p.evidence),
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
    )


def _find_missing_files(
    matrix: Matrix, profile: Profile, fileless: frozenset[str]
) -> tuple[str, ...]:
    """Return the kinds that need a file, but have none in their pin or the edges to it."""
    missing = []
    for kind, pin in profile.pins.items():
        if not pin.known or kind in fileless or (pin.artifact and pin.sha256):
            continue
        into = [e for e in matrix.edges.get(kind, ()) if e.to == pin.version]
        if not into or not all(e.artifact and e.sha256 for e in into):
            missing.append(kind)
    return tuple(missing)


def _find_dead_edges(matrix: Matrix) -> list[Remark]:
    """Return a note for each edge that leads to no pin: a spelling mistake, or a leftover."""
    remarks = []
    for kind, edges in matrix.edges.items():
        pins = {
            version
            for release in matrix.releases.values()
            for profile in release.profiles.values()
            if kind in profile.pins
            for version in (profile.pins[kind].version, *profile.pins[kind].also)
        }
        open_pin = kind not in list_pinned_kinds(matrix) or "unknown" in pins
        steps = map_moves(matrix, kind)
        for edge in edges:
            if pins & find_reachable(steps, edge.to):
                continue
            remarks.append(
                Remark(
                    weight=Weight.NOTE,
                    where=f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}",
                    problem="leads to no pin"
                    + (" (one is still unknown)" if open_pin else " of any release"),
                    remedy="Pin the version it leads to, or remove the edge.",
                )
            )
    return remarks


def _review_images(matrix: Matrix) -> list[Remark]:
    """Return remarks on images without a version, file, digest or evidence."""
    remarks = []
    for name, image in matrix.images.items():
        if not image.known:
            gap = "no site has built it yet"
        elif not (image.artifact and image.sha256):
            gap = "no file name or no SHA-256"
        elif not image.evidence:
            gap = "nothing says where it was built"
        else:
            continue
        remarks.append(
            Remark(
                weight=Weight.PRODUCTION,
                where=f"images.{name}",
                problem=gap,
                remedy="Run `make image` and put the lines that it prints into an overlay.",
            )
        )
    return remarks


def _find_unmarked_downgrades(matrix: Matrix) -> list[Remark]:
    """Return edges to an older version that are not marked, and would pass for upgrades."""
    return [
        Remark(
            weight=Weight.BLOCKS,
            where=f"edges.{kind}: {start} → {edge.to}",
            problem="leads to an older version",
            remedy="Add `downgrade: true` if that is meant.",
        )
        for kind, edges in matrix.edges.items()
        for edge in edges
        for start in edge.from_versions
        if not edge.downgrade and compare(_grammar(kind), start, edge.to) == 1
    ]


def _find_unreadable_pins(matrix: Matrix) -> list[Remark]:
    """Return pins that the grammar of their component cannot parse: no device would report them."""
    return [
        Remark(
            weight=Weight.BLOCKS,
            where=f"{release_name}/{name}: {kind}",
            problem=f"'{pin.version}' is no version as this component writes them",
            remedy="Write it as the device prints it.",
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
        for kind, pin in profile.pins.items()
        if pin.known and parse_version(_grammar(kind), pin.version) is None
    ]


def _grammar(kind: str) -> str:
    return components.ALL[kind].grammar if kind in components.ALL else "opaque"


def _find_edges_without_evidence(matrix: Matrix) -> list[Remark]:
    return [
        Remark(
            weight=Weight.PRODUCTION,
            where=f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}",
            problem="the edge has no evidence",
            remedy="Add `evidence`: the document that allows it.",
        )
        for kind, edges in matrix.edges.items()
        for edge in edges
        if not edge.evidence
    ]
