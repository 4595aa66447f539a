"""Find statements of a matrix that contradict each other, or that no node can ever meet. Pure.

The file as such is well formed; but a plan by it would be refused for each node, or the statement
would never do anything. Each fault comes with the path at which it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner import components
from provisioner.model.matrix import Matrix, Profile, Release, Requirement
from provisioner.model.versions import parse_version
from provisioner.planning.matrix.edge_faults import find_edge_faults
from provisioner.planning.matrix.faults import Fault, find_empty_condition
from provisioner.planning.matrix.located_yaml import Path
from provisioner.planning.path import conditions
from provisioner.planning.path.pins import grammar_of, is_pinned

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
