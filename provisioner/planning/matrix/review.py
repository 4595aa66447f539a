"""Review a well-formed matrix: list the faults that block its use, and notes for the operator.

`parse` refuses contradictions; this module lists gaps. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.versions import parse_version
from provisioner.planning.matrix.contradictions import Fault, find_contradictions
from provisioner.planning.matrix.diff import compare_releases
from provisioner.planning.matrix.located_yaml import Located, Path, format_path
from provisioner.planning.matrix.pinned_files import find_reference_gaps
from provisioner.planning.path.distances import (
    find_reachable,
    find_unreachable,
    list_ancestors,
    list_pinned_kinds,
    map_moves,
    normalize_version,
)
from provisioner.planning.path.hops import find_forbidden_edges
from provisioner.planning.path.refusals import name_sought


class Use(NamedTuple):
    """The part of a matrix that a site uses; empty: all of it."""

    releases: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()

    def has(self, release: str, profile: str = "") -> bool:
        """Return whether a release, or one of its profiles, is used."""
        if self.releases and release not in self.releases:
            return False
        return not (profile and self.profiles) or profile in self.profiles


EVERYTHING = Use()


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
    file: str = ""  # where it is written; "" if only the matrix without its text was reviewed
    line: int = 0


Placed = tuple[Path, Remark]  # a remark with the path at which its cause is written


class Gap(NamedTuple):
    """One obstacle to production, and the component kinds of a profile that have it."""

    problem: str
    remedy: str
    kinds: tuple[str, ...]


class Readiness(Record):
    """Whether one profile of one release may be used in production, and the gaps if not."""

    release: str
    profile: str
    unknown: tuple[str, ...]  # kinds without a published version
    no_digest: tuple[str, ...]  # kinds whose file or SHA-256 is missing
    no_evidence: tuple[str, ...]  # kinds whose pin names no source
    published: tuple[str, ...] = ()  # kinds whose version a named source states

    @property
    def ready(self) -> bool:
        """Return whether production mode accepts it."""
        return not self.list_gaps()

    def list_gaps(self) -> tuple[Gap, ...]:
        """Return all that is missing, each with its remedy; nothing where it is usable."""
        gaps = (
            Gap("no published version", "Close the pin in an overlay.", self.unknown),
            Gap("no file name or no SHA-256", "Add `artifact` and `sha256`.", self.no_digest),
            Gap("the pin names no source", "Add `evidence`.", self.no_evidence),
        )
        return tuple(gap for gap in gaps if gap.kinds)


# methods that push or serve a file from the artifact store; the others install from a package
# repository, set parameters, or come with another component
FILE_METHODS = frozenset(
    {
        "redfish_push",
        "bluefield_bfb",
        "playbook_nic_firmware",
        "playbook_drive_firmware",
        "nvue_image",
        "sonic_installer",
    }
)
FILELESS = frozenset(n for n, k in components.ALL.items() if k.method not in FILE_METHODS)


def review_matrix(
    matrix: Matrix,
    *,
    fileless: frozenset[str] = FILELESS,
    located: Located | None = None,
    use: Use = EVERYTHING,
) -> tuple[Remark, ...]:
    """Return every remark on the part that is used, the most serious first.

    `fileless` are the kinds that are installed without a file. `located` is the text that the
    matrix was read from, for the lines.
    """
    remarks: list[Placed] = []
    for fault in (
        *find_contradictions(matrix),
        *find_reference_gaps(matrix),
        *_find_faults_of_text(located),
    ):
        weight = Weight.BLOCKS if fault.blocks else Weight.NOTE
        remarks.append(
            (
                fault.path,
                Remark(
                    weight=weight, where=fault.where, problem=fault.problem, remedy=fault.remedy
                ),
            )
        )
    unreachable = find_unreachable(matrix)
    for u in unreachable:
        remark = Remark(
            weight=Weight.BLOCKS,
            where=f"{u.release}/{u.profile}: {u.kind}",
            problem=f"{u.target} cannot be reached from {u.start.version} ({u.start.origin})",
            remedy=f"Add an edge under edges.{u.kind}, or correct `supersedes`.",
        )
        remarks.append((_path_of_pin(u.release, u.profile, u.kind), remark))
    remarks += _find_refused_moves(matrix, {(u.release, u.profile) for u in unreachable})
    remarks += _find_unreadable_pins(matrix)
    for where, violation in find_forbidden_edges(matrix):
        remark = Remark(
            weight=Weight.BLOCKS,
            where=where,
            problem=violation,
            remedy="Give the edge the method that is published for it, or another start.",
        )
        remarks.append((("edges",), remark))
    remarks += _find_dead_edges(matrix)
    remarks += _find_edges_without_evidence(matrix)
    remarks += _review_images(matrix)
    remarks += _find_gaps(matrix, fileless)
    order = list(Weight)
    used = [entry for entry in remarks if _is_used(matrix, use, *entry)]
    in_order = sorted(used, key=lambda entry: order.index(entry[1].weight))
    return tuple(_locate(path, remark, located) for path, remark in in_order)


def _is_used(matrix: Matrix, use: Use, path: Path, remark: Remark) -> bool:
    """Return whether a remark concerns what a site uses; what cannot be placed concerns all."""
    if path[:1] == ("releases",) and len(path) > 1:
        profile = str(path[3]) if len(path) > 3 else ""
        return use.has(str(path[1]), profile)
    if path[:1] == ("edges",) and len(path) == 3 and use != EVERYTHING:
        kind = str(path[1])
        edge = matrix.edges[kind][int(path[2])]
        pins = {
            normalize_version(matrix, kind, version)
            for name, release in matrix.releases.items()
            for profile_name, profile in release.profiles.items()
            if use.has(name, profile_name) and kind in profile.pins
            for version in (profile.pins[kind].version, *profile.pins[kind].also)
        }
        stops = (normalize_version(matrix, kind, v) for v in (*edge.via, edge.to))
        return any(pins & find_reachable(map_moves(matrix, kind), stop) for stop in stops)
    return True


def _locate(path: Path, remark: Remark, located: Located | None) -> Remark:
    if located is None:
        return remark
    file, line = located.find_line(path)
    return remark.model_copy(update={"file": file, "line": line})


def _path_of_pin(release: str, profile: str, kind: str) -> Path:
    return ("releases", release, "profiles", profile, "pins", kind)


def _find_gaps(matrix: Matrix, fileless: frozenset[str]) -> list[Placed]:
    remarks: list[Placed] = []
    for state in judge_readiness(matrix, fileless=fileless):
        for gap in state.list_gaps():
            for kind in gap.kinds:
                pin = matrix.releases[state.release].profiles[state.profile].pins[kind]
                sought = "" if pin.known else pin.sought or matrix.sought.get(kind, "")
                where = f"{state.release}/{state.profile}: {kind}"
                remark = Remark(
                    weight=Weight.PRODUCTION,
                    where=where,
                    problem=gap.problem,
                    remedy=gap.remedy + name_sought(sought),
                )
                remarks.append((_path_of_pin(state.release, state.profile, kind), remark))
    return remarks


def _find_refused_moves(matrix: Matrix, reported: set[tuple[str, str]]) -> list[Placed]:
    """Return what the planner refuses of the moves between releases that `matrix diff` prints.

    A profile of which a single component cannot reach its pin is reported already.
    """
    remarks: list[Placed] = []
    for name in matrix.releases:
        for older in list_ancestors(matrix, name):
            for move in compare_releases(matrix, older, name):
                if (name, move.profile) in reported or not move.blockers:
                    continue
                reported = {*reported, (name, move.profile)}
                remarks += [
                    (
                        ("releases", name, "profiles", move.profile),
                        Remark(
                            weight=Weight.BLOCKS,
                            where=f"{name}/{move.profile}: {blocker.subject}",
                            problem=f"no plan leads there from {older}: {blocker.detail}",
                            remedy=blocker.unblock,
                        ),
                    )
                    for blocker in move.blockers
                ]
    return remarks


def _find_faults_of_text(located: Located | None) -> Iterator[Fault]:
    """Return what only the text shows: a base without `schema`, `override` where nothing is."""
    if located is None or not isinstance(located.tree, dict):
        return
    if "schema" not in located.tree:
        yield Fault(
            (), "schema", "the file does not state its schema", "Write `schema: 1` at its top."
        )
    for path in located.overrides:
        yield Fault(
            path,
            format_path(path[:-1]),
            f"`{path[-1]}` has a meaning only in an overlay that changes a published value",
            "Remove it, or write it into the overlay.",
            blocks=False,
        )


def judge_readiness(
    matrix: Matrix, *, fileless: frozenset[str] = FILELESS, use: Use = EVERYTHING
) -> tuple[Readiness, ...]:
    """Return for each release and profile that is used whether production mode accepts it."""
    return tuple(
        Readiness(
            release=release_name,
            profile=name,
            unknown=tuple(k for k, p in profile.pins.items() if not p.known),
            no_digest=_find_missing_files(matrix, profile, fileless),
            no_evidence=tuple(k for k, p in profile.pins.items() if p.known and not p.evidence),
            published=tuple(k for k, p in profile.pins.items() if p.known and p.evidence),
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
        if use.has(release_name, name)
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


def _find_dead_edges(matrix: Matrix) -> list[Placed]:
    """Return a note for each edge that leads to no pin: a spelling mistake, or a leftover."""
    remarks: list[Placed] = []
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
        pins = {normalize_version(matrix, kind, version) for version in pins}
        for index, edge in enumerate(edges):
            stops = (normalize_version(matrix, kind, v) for v in (*edge.via, edge.to))
            if any(pins & find_reachable(steps, stop) for stop in stops):
                continue
            remarks.append(
                (
                    ("edges", kind, index),
                    Remark(
                        weight=Weight.NOTE,
                        where=f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}",
                        problem="leads to no pin"
                        + (" (one is still unknown)" if open_pin else " of any release"),
                        remedy="Pin the version it leads to, or remove the edge.",
                    ),
                )
            )
    return remarks


def _review_images(matrix: Matrix) -> list[Placed]:
    """Return remarks on images without a version, file, digest or evidence."""
    remarks: list[Placed] = []
    for name, image in matrix.images.items():
        if not image.known:
            gap = "no site has built it yet"
        elif not (image.artifact and image.sha256):
            gap = "no file name or no SHA-256"
        elif not image.evidence:
            gap = "nothing says where it was built"
        else:
            continue
        remark = Remark(
            weight=Weight.PRODUCTION,
            where=f"images.{name}",
            problem=gap,
            remedy="Run `make image` and put the lines that it prints into an overlay.",
        )
        remarks.append((("images", name), remark))
    return remarks


def _find_unreadable_pins(matrix: Matrix) -> list[Placed]:
    """Return pins that the grammar of their component cannot parse: no device would report them."""
    return [
        (
            _path_of_pin(release_name, name, kind),
            Remark(
                weight=Weight.BLOCKS,
                where=f"{release_name}/{name}: {kind}",
                problem=f"'{pin.version}' is no version as this component writes them",
                remedy="Write it as the device prints it.",
            ),
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
        for kind, pin in profile.pins.items()
        if pin.known and parse_version(_grammar(kind), pin.version) is None
    ]


def _grammar(kind: str) -> str:
    return components.ALL[kind].grammar if kind in components.ALL else "opaque"


def _find_edges_without_evidence(matrix: Matrix) -> list[Placed]:
    return [
        (
            ("edges", kind, index),
            Remark(
                weight=Weight.PRODUCTION,
                where=f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}",
                problem="the edge has no evidence",
                remedy="Add `evidence`: the document that allows it." + name_sought(edge.sought),
            ),
        )
        for kind, edges in matrix.edges.items()
        for index, edge in enumerate(edges)
        if not edge.evidence
    ]
