"""Review a well-formed matrix: list the faults that block its use, and notes for the operator.

`parse` refuses contradictions; this module lists gaps. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from provisioner import components
from provisioner.integrations.matrix_tools.deciding.contradictions import (
    Fault,
    find_contradictions,
    find_empty_condition,
)
from provisioner.integrations.matrix_tools.deciding.cumulus_moves import find_forbidden_edges
from provisioner.integrations.matrix_tools.deciding.reference_gaps import find_reference_gaps
from provisioner.integrations.matrix_tools.deciding.release_standing import (
    describe_notice,
    find_missing_moves,
)
from provisioner.integrations.matrix_tools.deciding.unreachable import (
    find_unreachable,
    list_ancestors,
)
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix, Profile
from provisioner.model.versions import parse_version
from provisioner.planning.matrix.diff import ProfileDiff, compare_profile
from provisioner.planning.matrix.located_yaml import Located, Path, format_path
from provisioner.planning.matrix.readiness import EVERYTHING, FILELESS, Use, judge_readiness
from provisioner.planning.matrix.standing import list_pin_notices
from provisioner.planning.path.distances import Ways, list_pinned_kinds, normalize_version
from provisioner.planning.path.refusals import name_sought


class Weight(StrEnum):
    """The effect of a remark on the use of the matrix."""

    BLOCKS = "blocks"  # never usable: a release cannot be reached
    PRODUCTION = "production"  # refused in production mode, allowed in a laboratory
    NOTE = "note"


class Remark(Record):
    weight: Weight
    where: str  # "spectrum-x-1.3.0/hgx-h100-bf3: host.bios"
    problem: str
    remedy: str
    file: str = ""  # where it is written; "" if only the matrix without its text was reviewed
    line: int = 0


Placed = tuple[Path, Remark]  # a remark with the path at which its cause is written


class Found(Record):
    weight: Weight
    problem: str
    remedy: str
    places: tuple[str, ...]
    lines: tuple[int, ...]  # of the file, 0: no text was given


def group_remarks(remarks: Sequence[Remark]) -> tuple[Found, ...]:
    """Return each fault once, in the order of the remarks."""
    groups: dict[tuple[Weight, str, str], list[Remark]] = {}
    for remark in remarks:
        groups.setdefault((remark.weight, remark.problem, remark.remedy), []).append(remark)
    return tuple(
        Found(
            weight=weight,
            problem=problem,
            remedy=remedy,
            places=tuple(r.where for r in group),
            lines=tuple(r.line for r in group),
        )
        for (weight, problem, remedy), group in groups.items()
    )


class UnknownPins(Record):
    """How many of the written pins have no version; those of a `like` are written once."""

    pins: int
    unknown: int
    by_kind: dict[str, int]
    by_release: dict[str, dict[str, int]]  # release -> kind -> number


def count_unknown(matrix: Matrix, located: Located, use: Use | None = None) -> UnknownPins:
    """Return the written pins of the used releases, and those of them without a version."""
    use = use or EVERYTHING
    by_kind: dict[str, int] = {}
    by_release: dict[str, dict[str, int]] = {}
    pins = 0
    for name, release in matrix.releases.items():
        for profile_name, profile in release.profiles.items():
            path: Path = ("releases", name, "profiles", profile_name)
            for kind, pin in profile.pins.items() if use.has(name, profile_name) else ():
                if path in located.borrowed and (*path, "pins", kind) not in located.places:
                    continue
                pins += 1
                if not pin.known:
                    by_kind[kind] = by_kind.get(kind, 0) + 1
                    of_release = by_release.setdefault(name, {})
                    of_release[kind] = of_release.get(kind, 0) + 1
    return UnknownPins(
        pins=pins,
        unknown=sum(by_kind.values()),
        by_kind=dict(sorted(by_kind.items())),
        by_release=by_release,
    )


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
    ways = Ways(matrix)
    unreachable = find_unreachable(matrix, ways)
    for u in unreachable:
        remark = Remark(
            weight=Weight.BLOCKS,
            where=f"{u.release}/{u.profile}: {u.kind}",
            problem=f"{u.target} cannot be reached from {u.start.version} ({u.start.origin})",
            remedy=f"Add an edge under edges.{u.kind}, or correct `supersedes`.",
        )
        remarks.append((_path_of_pin(u.release, u.profile, u.kind), remark))
    remarks += _find_refused_moves(matrix, use, {(u.release, u.profile) for u in unreachable})
    remarks += _find_unreadable_pins(matrix)
    for where, violation in find_forbidden_edges(matrix):
        remark = Remark(
            weight=Weight.BLOCKS,
            where=where,
            problem=violation,
            remedy="Give the edge the method that is published for it, or another start.",
        )
        remarks.append((("edges",), remark))
    remarks += _find_dead_edges(matrix, ways)
    remarks += _find_edges_without_evidence(matrix)
    remarks += _review_images(matrix)
    remarks += _find_gaps(matrix, fileless)
    remarks += _find_empty_notices(matrix)
    remarks += _find_issues(matrix, ways)
    order = list(Weight)
    used = [entry for entry in remarks if _is_used(matrix, ways, use, *entry)]
    in_order = sorted(used, key=lambda entry: order.index(entry[1].weight))
    return tuple(_locate(path, remark, located) for path, remark in in_order)


def _is_used(matrix: Matrix, ways: Ways, use: Use, path: Path, remark: Remark) -> bool:
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
        return any(pins & ways.list_reachable(kind, stop) for stop in (*edge.via, edge.to))
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


def _find_refused_moves(matrix: Matrix, use: Use, reported: set[tuple[str, str]]) -> list[Placed]:
    """Return what the planner refuses of the moves between releases that `matrix diff` prints.

    A profile of which a single component cannot reach its pin is reported already. Only what is
    used is planned: it takes most of the time of a review.
    """
    remarks: list[Placed] = []
    for name, release in matrix.releases.items():
        for older in list_ancestors(matrix, name):
            before = matrix.releases[older].profiles
            known: dict[object, ProfileDiff] = {}  # profiles with the same pins move alike
            for profile in release.profiles:
                if (name, profile) in reported or profile not in before:
                    continue
                if not use.has(name, profile):
                    continue
                alike = (
                    release.profiles[profile].match.kind,
                    _list_versions(before[profile]),
                    _list_versions(release.profiles[profile]),
                )
                move = known.get(alike) or compare_profile(matrix, older, name, profile)
                known[alike] = move
                if not move.blockers:
                    continue
                reported = {*reported, (name, profile)}
                remarks += [
                    (
                        ("releases", name, "profiles", profile),
                        Remark(
                            weight=Weight.BLOCKS,
                            where=f"{name}/{profile}: {blocker.subject}",
                            problem=f"no plan leads there from {older}: {blocker.detail}",
                            remedy=blocker.unblock,
                        ),
                    )
                    for blocker in move.blockers
                ]
    return remarks


def _list_versions(profile: Profile) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return tuple((kind, pin.version, pin.also) for kind, pin in profile.pins.items())


def _find_empty_notices(matrix: Matrix) -> list[Placed]:
    """Return the conditions of notices and bounds with which no version compares."""
    texts: list[tuple[Path, str, str, str]] = [
        (("security", name), f"security.{name}: {kind}", kind, text)
        for name, notice in matrix.security.items()
        for kind, conditions in notice.affected.items()
        for text in conditions
    ]
    texts += [
        (_path_of_pin(name, profile_name, kind), f"{name}/{profile_name}: {kind}", kind, pin.bounds)
        for name, release in matrix.releases.items()
        for profile_name, profile in release.profiles.items()
        for kind, pin in profile.pins.items()
        if pin.bounds
    ]
    return [
        (
            path,
            Remark(
                weight=Weight.BLOCKS,
                where=where,
                problem=why,
                remedy="Write the versions as the device prints them.",
            ),
        )
        for path, where, kind, text in texts
        if (why := find_empty_condition(kind, text))
    ]


def _find_issues(matrix: Matrix, ways: Ways) -> list[Placed]:
    """Return known issues, security notices, and lines without a published move, as remarks."""
    remarks: list[Placed] = []
    for name, release in matrix.releases.items():
        for number, issue in release.issues.items():
            blocks = issue.blocks and not issue.accepted
            remark = Remark(
                weight=Weight.PRODUCTION if blocks else Weight.NOTE,
                where=f"{name}: {', '.join(issue.kinds) or 'issue'}",
                problem=f"known issue {number}: {issue.says}",
                remedy=f"See {issue.evidence}"
                + ("; write `accepted: why` to use it all the same." if blocks else "."),
            )
            remarks.append((("releases", name, "issues", number), remark))
        for profile_name, profile in release.profiles.items():
            for kind, pin in profile.pins.items():
                remarks += [
                    (
                        _path_of_pin(name, profile_name, kind),
                        Remark(
                            weight=Weight.NOTE,
                            where=f"{name}/{profile_name}: {kind}",
                            problem=describe_notice(matrix, notice),
                            remedy=f"Corrected in {matrix.security[notice].fixed}.",
                        ),
                    )
                    for notice in list_pin_notices(matrix, kind, pin)
                ]
    for name, notice in matrix.security.items():
        remarks += [
            (
                ("security", name),
                Remark(
                    weight=Weight.NOTE,
                    where=f"security.{name}: {kind}",
                    problem=f"{describe_notice(matrix, name)}; a version does not tell: {why}",
                    remedy=f"Corrected in {notice.fixed}.",
                ),
            )
            for kind, why in notice.undecided.items()
            if not notice.accepted
        ]
    for name, older, profile_name, kinds in find_missing_moves(matrix, ways):
        remarks += [
            (
                _path_of_pin(name, profile_name, kind),
                Remark(
                    weight=Weight.NOTE,
                    where=f"{name}/{profile_name}: {kind}",
                    problem=f"no move from {older} is published",
                    remedy=f"Add the edge under edges.{kind} that your vendor supports."
                    + name_sought(matrix.releases[name].sought.get(kind, "")),
                ),
            )
            for kind in kinds
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


def _find_dead_edges(matrix: Matrix, ways: Ways) -> list[Placed]:
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
        pins = {normalize_version(matrix, kind, version) for version in pins}
        for index, edge in enumerate(edges):
            if any(pins & ways.list_reachable(kind, stop) for stop in (*edge.via, edge.to)):
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
