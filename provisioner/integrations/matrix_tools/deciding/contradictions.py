"""Find statements of a matrix that contradict each other, or that no node can ever meet. Pure.

The file as such is well formed; but a plan by it would be refused for each node, or the statement
would never do anything. Each fault comes with the path at which it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from provisioner import components
from provisioner.model.host_packages import MLNX_OFED, OFED_MIGRATION
from provisioner.model.inventory import Activation
from provisioner.model.matrix import Edge, Matrix, Profile, Release, Requirement
from provisioner.model.versions import compare, parse_version
from provisioner.planning.matrix.located_yaml import Path
from provisioner.planning.path import conditions
from provisioner.planning.path.conditions import grammar_of, is_pinned
from provisioner.planning.path.hops import ANY, ASKS_LEAVE, NEVER_ALONE, Moves

# ------------------------------------------------------------------------------
# Faults of a matrix, and the conditions in it that no version can meet. Pure.


class Fault(NamedTuple):
    """One fault. Without `blocks` it is worth a note only."""

    path: Path
    where: str
    problem: str
    remedy: str
    blocks: bool = True


def find_empty_condition(kind: str, text: str) -> str:
    """Return why a condition on a kind can never hold, "" if it can."""
    grammar = grammar_of(kind)
    terms = [term for term in conditions.parse_terms(text) if term[0] != "="]
    for operator, operand in terms:
        if grammar == "opaque" and operator not in ("==", "!="):
            return f"versions of {kind} have no order, so {operator}{operand} never holds"
        if grammar != "opaque" and parse_version(grammar, operand) is None:
            return f"'{operand}' is no version as {kind} writes them, so nothing compares with it"
    if len(terms) > 1 and not any(
        all(conditions.satisfies_term(grammar, version, term) for term in terms)
        for version in _list_candidates(grammar, terms)
    ):
        return f"no version of {kind} is {text}"
    return ""


def _list_candidates(grammar: str, terms: list[conditions.Term]) -> Iterator[str]:
    """Return versions of which one satisfies the terms if any version does.

    Beside the operands these are versions just above each operand: for numbers, the operand with
    one more part.
    """
    for _, operand in terms:
        yield operand
        for longer in (f"{operand}.1", f"{operand}.0.0.1", f"{operand}1"):
            if compare(grammar, longer, operand) == 1:
                yield longer


# ------------------------------------------------------------------------------
# Find edges of a matrix that no plan can take, or whose mark contradicts their direction. Pure.


def find_edge_faults(matrix: Matrix) -> Iterator[Fault]:
    """Return the faults of every edge, in the order of the file."""
    for kind, edges in matrix.edges.items():
        for index, edge in enumerate(edges):
            yield from _check_edge(matrix, kind, index, edge)


def _check_edge(matrix: Matrix, kind: str, index: int, edge: Edge) -> Iterator[Fault]:
    path: Path = ("edges", kind, index)
    where = f"edges.{kind}: {' · '.join(edge.from_versions)} → {edge.to}"
    method = edge.method or components.ALL[kind].method
    if method in NEVER_ALONE:
        yield Fault(
            path,
            where,
            f"{kind} is never updated by itself ({method})",
            "Give the edge to what carries it, or a `method`.",
        )
    if (method in _SWITCH_METHODS) != kind.startswith("switch."):
        yield Fault(path, where, f"{method} does not update {kind}", "Correct `method`.")
    yield from _check_migration(path, where, kind, edge, method)
    if (edge.activates_by is Activation.IMAGE_REBOOT) and not kind.startswith("switch."):
        yield Fault(
            (*path, "activates_by"),
            where,
            "only a switch boots another image",
            "Correct `activates_by`.",
        )
    if ANY in edge.from_versions and len(edge.from_versions) > 1:
        yield Fault(
            (*path, "from"),
            where,
            '"*" is every version, and others are listed beside it',
            "Keep one of the two.",
            blocks=False,
        )
    yield from _check_versions_of_edge(path, where, kind, edge)
    yield from _check_legs(matrix, path, kind, edge)
    yield from _check_conditions_of_edge(matrix, path, where, kind, edge)
    for part, version in edge.carries.items():
        if parse_version(grammar_of(part), version) is None:
            yield Fault(
                (*path, "carries", part),
                where,
                f"'{version}' is no version of {part}",
                "Write it as the device prints it.",
            )
        contents = matrix.bundles.get(kind, {}).get(edge.to, {})
        if part in contents and compare(grammar_of(part), contents[part], version) != 0:
            yield Fault(
                (*path, "carries", part),
                where,
                f"it brings {part} {version}, but the bundle contains {contents[part]}",
                "Correct one of the two.",
            )
    yield from _check_carried_pins(matrix, path, where, kind, edge)


def _check_migration(path: Path, where: str, kind: str, edge: Edge, method: str) -> Iterator[Fault]:
    """Only an edge that leads away from MLNX_OFED may remove it, and it must say so."""
    away = kind == "host.doca" and any(v.startswith(MLNX_OFED) for v in edge.from_versions)
    if away and method != OFED_MIGRATION:
        yield Fault(
            (*path, "method"),
            where,
            "it leads away from MLNX_OFED, which its method does not remove",
            f"Give it `method: {OFED_MIGRATION}`.",
        )
    only = all(v.startswith(MLNX_OFED) for v in edge.from_versions)
    if method == OFED_MIGRATION and not (away and only):
        yield Fault(
            (*path, "method"),
            where,
            f"{OFED_MIGRATION} leads from versions {MLNX_OFED}... of host.doca only",
            "Give the other versions an edge of their own, without `method`.",
        )


_SWITCH_METHODS = frozenset({"nvue_image", "sonic_installer"}) | ASKS_LEAVE


def _check_versions_of_edge(path: Path, where: str, kind: str, edge: Edge) -> Iterator[Fault]:
    grammar = grammar_of(kind)
    for field, versions in (("from", edge.from_versions), ("via", edge.via), ("to", (edge.to,))):
        for version in versions:
            if edge.method == OFED_MIGRATION and version.startswith(MLNX_OFED):
                continue  # as `ofed_info -s` writes it
            if version != ANY and parse_version(grammar, version) is None:
                # a card as delivered may print anything, but nothing is installed to it on purpose
                yield Fault(
                    (*path, field),
                    where,
                    f"'{version}' is no version as {kind} writes them",
                    "Write it as the device prints it.",
                    blocks=field != "from",
                )


def _check_legs(matrix: Matrix, path: Path, kind: str, edge: Edge) -> Iterator[Fault]:
    """Report legs that lead back without a mark, or back over a one-way edge."""
    grammar = grammar_of(kind)
    moves = Moves(matrix, {}, components.ALL, production=False, leave=ASKS_LEAVE)
    stops = (*edge.via, edge.to)
    starts = [v for v in edge.from_versions if v != ANY]
    legs = [*((start, stops[0]) for start in starts), *pairwise(stops)]
    backward = [leg for leg in legs if compare(grammar, *leg) == 1]
    for start, to in backward:
        if not edge.downgrade:
            yield Fault(
                path,
                f"edges.{kind}: {start} → {to}",
                "leads to an older version",
                "Add `downgrade: true` if that is meant.",
            )
    if edge.downgrade and legs and all(compare(grammar, *leg) == -1 for leg in legs):
        yield Fault(
            (*path, "downgrade"),
            f"edges.{kind}: {legs[0][0]} → {edge.to}",
            "it is marked as a downgrade and leads to a newer version",
            "Remove `downgrade`.",
            blocks=False,
        )
    for start, to in legs:
        if moves.find_one_way_edge(kind, start, to) is not None:
            yield Fault(
                path,
                f"edges.{kind}: {start} → {to}",
                "it leads back over a one-way edge, so it is never taken",
                "Remove it, or correct `one_way`.",
            )


def _check_conditions_of_edge(
    matrix: Matrix, path: Path, where: str, kind: str, edge: Edge
) -> Iterator[Fault]:
    for other, text in edge.requires.items():
        at = (*path, "requires", other)
        if problem := find_empty_condition(other, text):
            yield Fault(at, where, problem, "Correct the condition; the edge is never taken.")
            continue
        terms = conditions.parse_terms(text)
        if ("=", other) in terms:
            yield Fault(at, where, f"{other} is compared with itself", "Name another component.")
        elif other == kind:
            before = edge.via[-1:] or edge.from_versions
            if ANY not in before and not any(_holds(other, text, v) for v in before):
                yield Fault(
                    at,
                    where,
                    f"it never holds: the edge starts at {' · '.join(before)}",
                    "Correct `from`, or the condition.",
                )
        else:
            named = _list_named(matrix, other)
            if (
                named
                and all(op != "=" for op, _ in terms)
                and not any(_holds(other, text, v) for v in named)
            ):
                yield Fault(
                    at,
                    where,
                    f"no version of {other} in this file is {text}",
                    "Correct the condition, or add the edges that lead there.",
                )


def _holds(kind: str, text: str, version: str) -> bool:
    grammar = grammar_of(kind)
    return all(
        conditions.satisfies_term(grammar, version, term) is True
        for term in conditions.parse_terms(text)
        if term[0] != "="
    )


def _list_named(matrix: Matrix, kind: str) -> tuple[str, ...]:
    """Return every version of a kind that the matrix names; () if one of its pins is unknown."""
    pins = [
        profile.pins[kind]
        for release in matrix.releases.values()
        for profile in release.profiles.values()
        if kind in profile.pins
    ]
    if not pins or any(not pin.known for pin in pins):
        return ()
    moves = Moves(matrix, {}, components.ALL, production=False)
    return (*(v for pin in pins for v in (pin.version, *pin.also)), *moves.list_versions(kind))


def _check_carried_pins(
    matrix: Matrix, path: Path, where: str, kind: str, edge: Edge
) -> Iterator[Fault]:
    """Report an edge into a pin that brings another component to a version which is not pinned."""
    for name, release in matrix.releases.items():
        for profile in release.profiles.values():
            pin = profile.pins.get(kind)
            if pin is None or not pin.known or not is_pinned(grammar_of(kind), edge.to, pin):
                continue
            for part, version in edge.carries.items():
                other = profile.pins.get(part)
                if other is None or not other.known or matrix.edges.get(part):
                    continue
                if not is_pinned(grammar_of(part), version, other):
                    yield Fault(
                        (*path, "carries", part),
                        where,
                        f"it brings {part} {version}, but {name} pins {other.version}, and "
                        f"{part} has no edge of its own",
                        "Correct one of the two.",
                    )


_GRAMMARS = {name: kind.grammar for name, kind in components.ALL.items()}


def find_contradictions(matrix: Matrix) -> Iterator[Fault]:
    """Return every contradiction, in the order of the file."""
    for name, release in matrix.releases.items():
        yield from _check_release(name, release, matrix)
    yield from find_edge_faults(matrix)
    yield from _check_bundles(matrix)
    yield from _check_files(matrix)


def _check_release(name: str, release: Release, matrix: Matrix) -> Iterator[Fault]:
    at: Path = ("releases", name)
    for index, rule in enumerate(release.requires):
        path = (*at, "requires", index)
        for side, texts in (("when", rule.when), ("needs", rule.needs)):
            for kind, text in texts.items():
                if problem := find_empty_condition(kind, text):
                    yield Fault(
                        (*path, side, kind),
                        f"{name}: rule '{rule.name}'",
                        problem,
                        "Correct the condition.",
                    )
        for profile_name, profile in release.profiles.items():
            yield from _check_rule(path, name, profile_name, profile, release, rule)
    for profile_name, profile in release.profiles.items():
        yield from _check_profile((*at, "profiles", profile_name), name, profile_name, profile)
    if release.supersedes and not (
        release.profiles.keys() & matrix.releases[release.supersedes].profiles.keys()
    ):
        yield Fault(
            (*at, "supersedes"),
            name,
            f"it has no profile in common with {release.supersedes}",
            "Give the profiles the same names, or no way from there can be proved.",
            blocks=False,
        )


def _check_rule(
    path: Path, name: str, profile_name: str, profile: Profile, release: Release, rule: Requirement
) -> Iterator[Fault]:
    """Report a rule that a node breaks which runs exactly the pins."""
    kinds = conditions.list_kinds(rule.when) | conditions.list_kinds(rule.needs)
    if not kinds & profile.pins.keys():
        return
    where = f"{name}/{profile_name}: rule '{rule.name}'"
    remedy = "Pin versions that keep it, or correct the rule."
    main = _list_running(profile, release, also=False)
    if _breaks(rule, main):
        pinned = ", ".join(
            f"{k} {' and '.join(sorted(main[k]))}" for k in sorted(kinds & main.keys())
        )
        yield Fault(path, where, f"the pins break it: {pinned}", remedy)
    elif _breaks(rule, _list_running(profile, release, also=True)):
        yield Fault(
            path, where, "versions that a pin allows by `also` break it", remedy, blocks=False
        )


def _list_running(profile: Profile, release: Release, *, also: bool) -> dict[str, frozenset[str]]:
    """Return kind -> versions of a node at its pins, and of its neighbours at theirs."""
    running: dict[str, frozenset[str]] = {}
    for other in release.profiles.values():
        if other.match.kind != profile.match.kind:
            for kind, pin in other.pins.items():
                versions = {pin.version, *(pin.also if also else ())}
                running[kind] = running.get(kind, frozenset()) | versions
    for kind, pin in profile.pins.items():
        running[kind] = frozenset({pin.version, *(pin.also if also else ())})
    unknown = {
        kind
        for other in release.profiles.values()
        for kind, pin in other.pins.items()
        if not pin.known and (other is profile or kind not in profile.pins)
    }
    return {kind: versions for kind, versions in running.items() if kind not in unknown}


def _breaks(rule: Requirement, running: Mapping[str, frozenset[str]]) -> bool:
    kinds = conditions.list_kinds(rule.when) | conditions.list_kinds(rule.needs)
    if not kinds <= running.keys():
        return False  # what runs there is not stated here
    concerned = all(
        conditions.any_version_satisfies(text, kind, _GRAMMARS, running.get)
        for kind, text in rule.when.items()
    )
    return concerned and not all(
        conditions.all_versions_satisfy(text, kind, _GRAMMARS, running.get)
        for kind, text in rule.needs.items()
    )


def _check_profile(at: Path, name: str, profile_name: str, profile: Profile) -> Iterator[Fault]:
    match = profile.match
    switch = match.kind == "switch"
    if switch and match.gpu_models:
        yield Fault(
            (*at, "match", "gpu_models"),
            f"{name}/{profile_name}",
            "a switch has no GPUs, so no node fits",
            "Use `models`.",
        )
    if switch and match.cards:
        yield Fault(
            (*at, "match", "cards"),
            f"{name}/{profile_name}",
            "a switch has no network cards, so no node fits",
            "Use `models`.",
        )
    if any(not glob.strip("* ") and glob != "*" for glob in (*match.models, *match.gpu_models)):
        yield Fault(
            (*at, "match"),
            f"{name}/{profile_name}",
            "an empty model fits no node",
            "Write a model, or leave the list out.",
        )
    for kind, pin in profile.pins.items():
        path = (*at, "pins", kind)
        where = f"{name}/{profile_name}: {kind}"
        if kind.startswith("switch.") != switch:
            has = "switch" if switch else "host"
            yield Fault(
                path, where, f"a {has} has no {kind}", "Pin it in a profile of its own kind."
            )
        if not pin.known and (pin.also or pin.artifact or pin.sha256):
            yield Fault(
                path,
                where,
                "the version is unknown, but files or alternatives are named",
                "Write the version.",
                blocks=False,
            )
        for number, other in enumerate(pin.also):
            if parse_version(grammar_of(kind), other) is None:
                yield Fault(
                    (*path, "also"),
                    where,
                    f"'{other}' is no version as it writes them",
                    "Write it as the device prints it.",
                )
            elif other in (pin.version, *pin.also[:number]):
                yield Fault(
                    (*path, "also"),
                    where,
                    f"{other} is listed twice",
                    "List it once.",
                    blocks=False,
                )
        if pin.sha256 and not pin.artifact:
            yield Fault(
                (*path, "sha256"),
                where,
                "a SHA-256 without a file name",
                "Add `artifact`.",
                blocks=False,
            )


def _check_bundles(matrix: Matrix) -> Iterator[Fault]:
    for kind, versions in matrix.bundles.items():
        contents: dict[frozenset[tuple[str, str]], str] = {}
        for version, parts in versions.items():
            first = contents.setdefault(frozenset(parts.items()), version)
            if first != version:
                yield Fault(
                    ("bundles", kind, version),
                    f"bundles.{kind}: {version}",
                    f"{first} has the same contents: no device shows which one runs",
                    "List a part that differs.",
                )
            for part, part_version in parts.items():
                if parse_version(grammar_of(part), part_version) is None:
                    yield Fault(
                        ("bundles", kind, version, part),
                        f"bundles.{kind}: {version}",
                        f"'{part_version}' is no version as {part} writes them",
                        "Write it as the device prints it.",
                    )
    for name, release in matrix.releases.items():
        for profile_name, profile in release.profiles.items():
            yield from _check_pinned_bundles(matrix, name, profile_name, profile)


def _check_pinned_bundles(
    matrix: Matrix, name: str, profile_name: str, profile: Profile
) -> Iterator[Fault]:
    for kind, pin in profile.pins.items():
        path: Path = ("releases", name, "profiles", profile_name, "pins", kind)
        where = f"{name}/{profile_name}: {kind}"
        listed = matrix.bundles.get(kind, {})
        version = next((v for v in listed if is_pinned(grammar_of(kind), v, pin)), None)
        if pin.known and version is None and components.ALL[kind].derived:
            yield Fault(
                path,
                where,
                "no device reports it, and `bundles` does not list its contents",
                f"Add bundles.{kind}.'{pin.version}'.",
            )
        for part, inside in listed[version].items() if version is not None and pin.known else ():
            other = profile.pins.get(part)
            if other and other.known and not is_pinned(grammar_of(part), inside, other):
                yield Fault(
                    path,
                    where,
                    f"it contains {part} {inside}, but {other.version} is pinned",
                    "Correct one of the two.",
                )


def _check_files(matrix: Matrix) -> Iterator[Fault]:
    """Report a file that is named with two digests."""
    digests: dict[str, str] = {}
    files: list[tuple[Path, str, str]] = [
        (("images", name), image.artifact, image.sha256) for name, image in matrix.images.items()
    ]
    for name, release in matrix.releases.items():
        for profile_name, profile in release.profiles.items():
            for kind, pin in profile.pins.items():
                path: Path = ("releases", name, "profiles", profile_name, "pins", kind)
                files.append((path, pin.artifact, pin.sha256))
    for kind, edges in matrix.edges.items():
        files += [(("edges", kind, n), edge.artifact, edge.sha256) for n, edge in enumerate(edges)]
    for at, file, sha256 in files:
        if file and sha256 and digests.setdefault(file, sha256.lower()) != sha256.lower():
            yield Fault(
                (*at, "sha256"),
                file,
                "one file is pinned with two digests",
                "Correct the digest, or the file name.",
            )
