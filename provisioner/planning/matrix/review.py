"""Re-reads a matrix that is well formed: what blocks its use, and what a person should know.

`parse` refuses what contradicts itself; this lists what is missing. Pure.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.versions import compare, key
from provisioner.planning.path.reachability import moves, pinned_kinds, reachable, unreachable
from provisioner.planning.path.switch_upgrades import forbidden_edges


class Weight(StrEnum):
    """What a finding means for using the matrix."""

    BLOCKS = "blocks"  # never usable: a release cannot be reached
    PRODUCTION = "production"  # refused in production mode, allowed in a laboratory
    NOTE = "note"


class Remark(Record):
    """One thing that the review found."""

    weight: Weight
    where: str  # "spectrum-x-1.3.0/hgx-h100-bf3: host.bios"
    problem: str
    remedy: str


class Readiness(Record):
    """Whether one profile of one release may be used in production, and if not, why not."""

    release: str
    profile: str
    unknown: tuple[str, ...]  # kinds without a published version
    no_digest: tuple[str, ...]  # kinds whose file or SHA-256 is missing
    no_evidence: tuple[str, ...]  # kinds whose pin names no source

    @property
    def ready(self) -> bool:
        """True if production mode takes it."""
        return not (self.unknown or self.no_digest or self.no_evidence)


# methods that push or serve a file of ours; the others install from a package repository, set
# parameters, or come with another component
FILE_METHODS = frozenset(
    {"redfish_push", "bluefield_bfb", "playbook_nic_firmware", "nvue_image", "sonic_installer"}
)
FILELESS = frozenset(n for n, k in components.ALL.items() if k.method not in FILE_METHODS)


def review(matrix: Matrix, *, fileless: frozenset[str] = FILELESS) -> tuple[Remark, ...]:
    """Every remark, weightiest first. `fileless`: kinds that are installed without a file."""
    remarks = [
        Remark(
            weight=Weight.BLOCKS,
            where=f"{u.release}/{u.profile}: {u.kind}",
            problem=f"{u.target} cannot be reached from {u.start.version} ({u.start.origin})",
            remedy=f"Add an edge under edges.{u.kind}, or correct `supersedes`.",
        )
        for u in unreachable(matrix)
    ]
    remarks += _unmarked_downgrades(matrix) + _unreadable(matrix)
    remarks += [
        Remark(
            weight=Weight.BLOCKS,
            where=where,
            problem=said,
            remedy="Give the edge the method that is published for it, or another start.",
        )
        for where, said in forbidden_edges(matrix)
    ]
    remarks += _dead_edges(matrix) + _edges_without_evidence(matrix) + _images(matrix)
    for state in readiness(matrix, fileless=fileless):
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


def readiness(matrix: Matrix, *, fileless: frozenset[str] = FILELESS) -> tuple[Readiness, ...]:
    """For each release and profile whether production mode takes it."""
    return tuple(
        Readiness(
            release=release_name,
            profile=name,
            unknown=tuple(k for k, p in profile.pins.items() if not p.known),
            no_digest=_without_file(matrix, profile, fileless),
            no_evidence=tuple(k for k, p in profile.pins.items() if p.known and not p.evidence),
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
    )


def _without_file(matrix: Matrix, profile: Profile, fileless: frozenset[str]) -> tuple[str, ...]:
    """Kinds that are pushed as a file, but the pin (or each edge into it) names none."""
    missing = []
    for kind, pin in profile.pins.items():
        if not pin.known or kind in fileless or (pin.artifact and pin.sha256):
            continue
        into = [e for e in matrix.edges.get(kind, ()) if e.to == pin.version]
        if not into or not all(e.artifact and e.sha256 for e in into):
            missing.append(kind)
    return tuple(missing)


def _dead_edges(matrix: Matrix) -> list[Remark]:
    """Edges that lead to no pin of any release: a spelling mistake, or left over."""
    remarks = []
    for kind, edges in matrix.edges.items():
        pins = {
            version
            for release in matrix.releases.values()
            for profile in release.profiles.values()
            if kind in profile.pins
            for version in (profile.pins[kind].version, *profile.pins[kind].also)
        }
        open_pin = kind not in pinned_kinds(matrix) or "unknown" in pins
        steps = moves(matrix, kind)
        for edge in edges:
            if pins & reachable(steps, edge.to):
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


def _images(matrix: Matrix) -> list[Remark]:
    """Images that nodes boot: a site builds its own; production boots none without a digest."""
    remarks = []
    for name, image in matrix.images.items():
        if not image.known:
            lacking = "no site has built it yet"
        elif not (image.artifact and image.sha256):
            lacking = "no file name or no SHA-256"
        elif not image.evidence:
            lacking = "nothing says where it was built"
        else:
            continue
        remarks.append(
            Remark(
                weight=Weight.PRODUCTION,
                where=f"images.{name}",
                problem=lacking,
                remedy="Run `make image` and put the lines that it prints into an overlay.",
            )
        )
    return remarks


def _unmarked_downgrades(matrix: Matrix) -> list[Remark]:
    """Edges to an older version that do not say so: the planner would take them for upgrades."""
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


def _unreadable(matrix: Matrix) -> list[Remark]:
    """Pins that their component's grammar cannot read: no device would ever print them."""
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
        if pin.known and key(_grammar(kind), pin.version) is None
    ]


def _grammar(kind: str) -> str:
    return components.ALL[kind].grammar if kind in components.ALL else "opaque"


def _edges_without_evidence(matrix: Matrix) -> list[Remark]:
    return [
        Remark(
            weight=Weight.PRODUCTION,
            where=f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}",
            problem="nobody vouches for this move",
            remedy="Add `evidence`: the document that allows it.",
        )
        for kind, edges in matrix.edges.items()
        for edge in edges
        if not edge.evidence
    ]
