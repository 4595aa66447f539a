"""Rules of a matrix beyond its shape: names must exist, and edges must lead somewhere.

Each rule raises one InputError at the place of the fault. A shortcoming that only restricts the use
of the matrix (a missing digest, an edge without evidence) is no error here: `review` lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise

from provisioner import components
from provisioner.model.host_packages import OFED_MIGRATION
from provisioner.model.inventory import DeviceKind
from provisioner.model.machine.settings import NVME_FIRMWARE, have_same_model, split_version
from provisioner.model.matrix import (
    MATCH_KINDS,
    UNKNOWN,
    Edge,
    Match,
    Matrix,
    Pin,
    Profile,
    Release,
)
from provisioner.model.versions import parse_version
from provisioner.planning.certification import host_settings
from provisioner.planning.machine_settings import pinned_sets
from provisioner.planning.matrix.located_yaml import Located, Path
from provisioner.planning.path.conditions import grammar_of, matches_token, parse_terms
from provisioner.planning.path.distances import find_cycle
from provisioner.planning.path.hops import ANY, ASKS_LEAVE, IMAGE

# ------------------------------------------------------------------------------
# Rules for pins and edges of drives: a version names a model, and an edge stays with one model.


_FORM = "Write MODEL@FIRMWARE as the drive prints both, such as 'MTFDKCC1T9TGP-1BK1DABYY@E3MQ005'."


def find_pin_fault(kind: str, pin: Pin) -> tuple[str, str, str] | None:
    """Return (field, problem, remedy) of a pin of drives, or None."""
    if kind != NVME_FIRMWARE or not pin.known:
        return None
    for field, version in (("version", pin.version), *(("also", v) for v in pin.also)):
        if not split_version(version)[0]:
            return field, f"'{version[:60]}' names no model and firmware", _FORM
    return None


def find_edge_fault(kind: str, edge: Edge) -> tuple[str, str, str] | None:
    """Return (field, problem, remedy) of an edge of drives, or None."""
    if kind != NVME_FIRMWARE:
        return None
    return next(_find_edge_faults(edge), None)


def _find_edge_faults(edge: Edge) -> Iterator[tuple[str, str, str]]:
    if not split_version(edge.to)[0]:
        yield "to", f"'{edge.to[:60]}' names no model and firmware", _FORM
    for field, versions in (("from", edge.from_versions), ("via", edge.via)):
        for version in versions:
            if version == ANY:
                remedy = "List the versions that it starts from, of this model."
                yield field, "'*' would write one model's firmware to every drive", remedy
            elif not have_same_model(version, edge.to):
                remedy = "Write one edge for each model."
                yield field, f"'{version[:60]}' is no version of the model of '{edge.to}'", remedy


# ------------------------------------------------------------------------------
# Rules of a matrix about one thing written twice: versions are compared by their grammar.
#
# "2.0" and "2.0.0" are one version to a device, and so one edge written with both is one edge, and
# a way back written with the other one is a circle. Raises InputError at the place of the fault.


def check_spellings(matrix: Matrix, located: Located) -> None:
    """Refuse edges and bundle versions that are the same in two spellings, and circles of them."""
    for kind, edges in matrix.edges.items():
        for index, edge in enumerate(edges):
            _check_stops(("edges", kind, index), kind, edge, located)
        _check_edges(kind, edges, located)
        _check_circles(kind, edges, located)
    for kind, versions in matrix.bundles.items():
        written: dict[object, str] = {}
        for version in versions:
            first = written.setdefault(spell(kind, version), version)
            if first != version:
                raise located.build_error(
                    ("bundles", kind, version),
                    f"{version} and {first} are one version",
                    "Keep one of the two.",
                )


def spell(kind: str, version: str) -> object:
    if version == ANY:
        return ANY
    grammar = grammar_of(kind)
    key = None if grammar == "opaque" else parse_version(grammar, version)
    return version.strip() if key is None else key


def _check_stops(path: Path, kind: str, edge: Edge, located: Located) -> None:
    starts = [spell(kind, v) for v in edge.from_versions]
    stops = [spell(kind, v) for v in (*edge.via, edge.to)]
    if len(set(starts)) < len(starts):
        raise located.build_error(
            (*path, "from"), "it lists one version twice", "List each version once."
        )
    if stops[-1] in starts:
        raise located.build_error(
            (*path, "to"),
            f"the edge leads from {edge.to} to itself in another spelling",
            "Correct one of them.",
        )
    if len(set(stops)) < len(stops) or set(stops) & set(starts):
        raise located.build_error(
            (*path, "via"), "the way passes one version twice", "List each stop once."
        )


def _check_edges(kind: str, edges: tuple[Edge, ...], located: Located) -> None:
    moves: dict[tuple[object, object], int] = {}
    for index, edge in enumerate(edges):
        for start in edge.from_versions:
            key = (spell(kind, start), spell(kind, edge.to))
            if (first := moves.setdefault(key, index)) != index:
                raise located.build_error(
                    ("edges", kind, index),
                    f"the move {start} → {edge.to} is already number {first + 1} here",
                    "Keep one of the two; an overlay replaces an edge with `override: true` "
                    "and a `reason`.",
                )


def _check_circles(kind: str, edges: tuple[Edge, ...], located: Located) -> None:
    names: dict[object, str] = {}
    upgrades: dict[str, list[str]] = {}
    for edge in edges:
        for start in edge.from_versions if not edge.downgrade else ():
            stops = [names.setdefault(spell(kind, v), v) for v in (start, *edge.via, edge.to)]
            for start_version, target_version in pairwise(stops):
                upgrades.setdefault(start_version, []).append(target_version)
    if circle := find_cycle(upgrades):
        raise located.build_error(
            ("edges", kind),
            f"upgrades run in a circle: {' → '.join(circle)}",
            "Mark the way back with `downgrade: true`, or remove it.",
        )


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
DEVICES_MAX = 1_000  # parts of one kind in a node; an HGX host has some 30 memory modules
METHODS = tuple(
    sorted(
        {kind.method for kind in components.ALL.values()}
        | ASKS_LEAVE
        | {IMAGE, OFED_MIGRATION, "none"}
    )
)
TEXT_MAX = 300  # longer than any version, file name or address that is real
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_VERSION = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")  # printable, no blanks at either end


def check(matrix: Matrix, located: Located, kinds: frozenset[str]) -> None:
    """Apply every rule. Raises InputError for the first violation."""
    rules = _Rules(matrix, located, kinds)
    rules.check_machine_sets()
    rules.check_releases()
    rules.check_edges()
    rules.check_bundles()
    rules.check_sought()
    rules.check_security()
    rules.check_libraries()


class _Rules:
    def __init__(self, matrix: Matrix, located: Located, kinds: frozenset[str]) -> None:
        self.matrix = matrix
        self.located = located
        self.kinds = kinds

    def check_releases(self) -> None:
        """Check names, pins, conditions, the order of releases, and that no profiles overlap."""
        if not self.matrix.releases:
            raise self.located.build_error(
                ("releases",), "there is no release", "Write at least one."
            )
        for name, release in self.matrix.releases.items():
            path: Path = ("releases", name)
            self._check_name(path, name)
            for profile_name, profile in release.profiles.items():
                self._check_profile((*path, "profiles", profile_name), profile_name, profile)
            self._check_disjoint((*path, "profiles"), release.profiles)
            self._check_rules((*path, "requires"), release)
            older = release.supersedes
            if older and older not in self.matrix.releases:
                raise self.located.build_error(
                    (*path, "supersedes"), f"there is no release '{older}'", "Check its spelling."
                )
            self._check_standing(path, release)
        chain = {
            n: [older for older in (r.supersedes, r.follows) if older]
            for n, r in self.matrix.releases.items()
        }
        if circle := find_cycle(chain):
            raise self.located.build_error(
                ("releases", circle[0], "supersedes"),
                f"releases supersede one another in a circle: {' → '.join(circle)}",
                "Break the circle.",
            )

    def _check_standing(self, path: Path, release: Release) -> None:
        if release.follows and release.follows not in self.matrix.releases:
            raise self.located.build_error(
                (*path, "follows"),
                f"there is no release '{release.follows}'",
                "Check its spelling.",
            )
        pinned = {kind for p in release.profiles.values() for kind in p.pins}
        for index, kind in enumerate(release.leaves):
            self._check_kind((*path, "leaves", index), kind)
            if kind in pinned:
                raise self.located.build_error(
                    (*path, "leaves", index),
                    f"{kind} is left to the site, and a profile of this release pins it",
                    "Keep one of the two.",
                )
        for field in ("says", "evidence"):
            self._check_text((*path, "support", field), getattr(release.support, field))
        for kind, text in release.sought.items():
            self._check_kind((*path, "sought", kind), kind)
            self._check_text((*path, "sought", kind), text)
        for number, issue in release.issues.items():
            at = (*path, "issues", number)
            self._check_name(at, number)
            for field in ("says", "evidence", "accepted"):
                self._check_text((*at, field), getattr(issue, field))
            for index, kind in enumerate(issue.kinds):
                self._check_kind((*at, "kinds", index), kind)

    def check_security(self) -> None:
        """Check the names, kinds and conditions of security notices."""
        for name, notice in self.matrix.security.items():
            at: Path = ("security", name)
            self._check_name(at, name)
            for field in ("says", "fixed", "evidence", "accepted"):
                self._check_text((*at, field), getattr(notice, field))
            for kind, why in notice.undecided.items():
                self._check_kind((*at, "undecided", kind), kind)
                self._check_text((*at, "undecided", kind), why)
            for kind, conditions in notice.affected.items():
                for text in conditions:
                    self._check_conditions((*at, "affected"), {kind: text})

    def check_libraries(self) -> None:
        """Check models, versions and texts of the needs of tenants' libraries."""
        for library, needs in self.matrix.libraries.items():
            for index, need in enumerate(needs):
                at: Path = ("libraries", library, index)
                self._check_version((*at, "version"), need.version, known=True)
                for field in ("says", "evidence"):
                    self._check_text((*at, field), getattr(need, field))
                for model in need.gpu_models:
                    self._check_text((*at, "gpu_models"), model)

    def check_edges(self) -> None:
        """Check that each edge leads to another version once, and that upgrades make no cycle."""
        for kind, edges in self.matrix.edges.items():
            self._check_kind(("edges", kind), kind)
            for index, edge in enumerate(edges):
                self._check_edge(("edges", kind, index), kind, edge)
        check_spellings(self.matrix, self.located)

    def check_bundles(self) -> None:
        """Check the kinds of bundles and their contents, NIC settings, and images."""
        for kind, versions in self.matrix.bundles.items():
            self._check_kind(("bundles", kind), kind)
            for version, contents in versions.items():
                path: Path = ("bundles", kind, version)
                if not contents:
                    raise self.located.build_error(path, "a bundle without contents", "List them.")
                self._check_version(path, version, known=True)
                for part, part_version in contents.items():
                    self._check_kind((*path, part), part)
                    if part == kind:
                        raise self.located.build_error(
                            (*path, part), "a bundle that contains itself", "List its parts."
                        )
                    self._check_version((*path, part), part_version, known=True)
        for name in self.matrix.nic_profiles:
            self._check_name(("nic_profiles", name), name)
        for name, settings in self.matrix.nic_runtime.items():
            self._check_name(("nic_runtime", name), name)
            for place, value in settings.items():
                if (wrong := host_settings.find_fault(place, value)) is not None:
                    raise self.located.build_error(
                        ("nic_runtime", name, place), wrong, "Correct it."
                    )
        for name, values in self.matrix.host_settings.items():
            self._check_name(("host_settings", name), name)
            for setting, value in values.items():
                if (wrong := host_settings.find_setting_fault(setting, value)) is not None:
                    raise self.located.build_error(
                        ("host_settings", name, setting), wrong, "Correct it."
                    )
        for name, image in self.matrix.images.items():
            self._check_name(("images", name), name)
            self._check_version(("images", name, "version"), image.version)
            self._check_file(("images", name), image.artifact, image.sha256, image.evidence)
            self._check_text(("images", name, "sought"), image.sought)

    def check_sought(self) -> None:
        """Check the kinds and texts of where published versions were looked for."""
        for kind, text in self.matrix.sought.items():
            self._check_kind(("sought", kind), kind)
            self._check_text(("sought", kind), text)

    def check_machine_sets(self) -> None:
        """Check that each set of BIOS or BMC settings is of one kind, in values that exist."""
        for name, values in self.matrix.machine_settings.items():
            self._check_machine_set(("machine_settings", name), name, values)

    def _check_machine_set(self, path: Path, name: str, settings: Mapping[str, str]) -> None:
        self._check_name(path, name)
        if not settings:
            raise self.located.build_error(path, "a set without settings", "List them.")
        for setting, value in settings.items():
            if (fault := pinned_sets.find_setting_fault(setting, value)) is not None:
                raise self.located.build_error((*path, setting), *fault)
        if (contradiction := pinned_sets.find_contradiction(settings)) is not None:
            raise self.located.build_error(path, contradiction, "Correct the set.")
        first = pinned_sets.find_set_kind(settings)
        if (stranger := pinned_sets.find_stranger(first, settings)) is not None:
            raise self.located.build_error(
                (*path, stranger),
                f"settings of BIOS and BMC in one set: this one is no setting of {first}",
                "Make two sets: the BIOS's take effect at a boot, the BMC's at once.",
            )

    def _check_machine_pin(self, path: Path, kind: str, version: str) -> None:
        settings = self.matrix.machine_settings.get(version)
        if settings is None:
            raise self.located.build_error(
                path, f"there are no settings '{version}'", "Add them under machine_settings."
            )
        if (stranger := pinned_sets.find_stranger(kind, settings)) is not None:
            raise self.located.build_error(
                path,
                f"the set '{version}' has {stranger}, which {kind} does not hold",
                f"Pin it under {pinned_sets.find_kind(stranger)}.",
            )
        if (wrong := pinned_sets.find_wrong_mode(kind, settings)) is not None:
            unblock = "Name the card by its new mode (DPU_n, NIC_n) in the expected-hardware list."
            raise self.located.build_error(path, wrong, unblock)

    def _check_rules(self, path: Path, release: Release) -> None:
        numbers: dict[str, int] = {}
        for index, rule in enumerate(release.requires):
            at = (*path, index)
            for field, text in (("name", rule.name), ("reason", rule.reason)):
                if not text.strip() or len(text) > TEXT_MAX or not text.isprintable():
                    raise self.located.build_error(
                        (*at, field), f"a rule needs a {field}", "Write one, in a line."
                    )
            if (first := numbers.setdefault(rule.name.strip().casefold(), index)) != index:
                raise self.located.build_error(
                    (*at, "name"),
                    f"rule number {first + 1} here has the name '{rule.name}' too",
                    "Give each rule a name of its own; an overlay replaces a rule with "
                    "`override: true`.",
                )
            for field, conditions in (("when", rule.when), ("needs", rule.needs)):
                if not conditions:
                    raise self.located.build_error((*at, field), "no condition", "Write one.")
                self._check_conditions((*at, field), conditions)

    def _check_devices(self, path: Path, devices: Mapping[str, int]) -> None:
        known = [kind.value for kind in DeviceKind]
        for name, number in devices.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                raise self.located.build_error(
                    (*path, name),
                    f"there is no kind of part '{name[:60]}'",
                    (f"Is it '{near[0]}'? " if near else "") + f"It is one of: {', '.join(known)}.",
                )
            if not 0 <= number <= DEVICES_MAX:
                raise self.located.build_error(
                    (*path, name), f"{number} is no number of parts", "Write a count from 0 on."
                )

    def _check_profile(self, path: Path, name: str, profile: Profile) -> None:
        self._check_name(path, name)
        if profile.match.kind not in MATCH_KINDS:
            raise self.located.build_error(
                (*path, "match", "kind"), "no such kind", f"Write one of: {', '.join(MATCH_KINDS)}."
            )
        self._check_devices((*path, "match", "devices"), profile.match.devices)
        for kind, pin in profile.pins.items():
            at = (*path, "pins", kind)
            self._check_kind(at, kind)
            self._check_version((*at, "version"), pin.version)
            for alternative in pin.also:
                self._check_version((*at, "also"), alternative, known=True)
            self._check_file(at, pin.artifact, pin.sha256, pin.evidence)
            self._check_text((*at, "sought"), pin.sought)
            self._check_known_about(at, kind, pin)
            if (wrong := find_pin_fault(kind, pin)) is not None:
                raise self.located.build_error((*at, wrong[0]), *wrong[1:])
            if pin.known and kind == "nic.config" and pin.version not in self.matrix.nic_profiles:
                raise self.located.build_error(
                    (*at, "version"),
                    f"there is no NV-config profile '{pin.version}'",
                    "Add it under nic_profiles.",
                )
            if (
                pin.known
                and kind in host_settings.KINDS
                and pin.version not in self.matrix.host_settings
            ):
                raise self.located.build_error(
                    (*at, "version"),
                    f"there are no host settings '{pin.version}'",
                    "Add them under host_settings.",
                )

            if pin.known and kind in pinned_sets.KINDS:
                for name in (pin.version, *pin.also):
                    self._check_machine_pin((*at, "version"), kind, name)

    def _check_known_about(self, at: Path, kind: str, pin: Pin) -> None:
        if pin.bounds:
            self._check_conditions((*at, "bounds"), {kind: pin.bounds})
        for name in pin.security:
            if name not in self.matrix.security:
                raise self.located.build_error(
                    (*at, "security"), f"there is no notice '{name[:60]}'", "Add it under security."
                )

    def _check_disjoint(self, path: Path, profiles: Mapping[str, Profile]) -> None:
        names = list(profiles)
        for index, first in enumerate(names):
            for second in names[index + 1 :]:
                if may_overlap(profiles[first].match, profiles[second].match):
                    raise self.located.build_error(
                        (*path, second, "match"),
                        f"the profiles '{first}' and '{second}' match the same nodes",
                        "Tell them apart by models, gpu_models, cards or a device count.",
                    )

    def _check_edge(self, path: Path, kind: str, edge: Edge) -> None:
        for field, versions in (
            ("from", edge.from_versions),
            ("to", (edge.to,)),
            ("via", edge.via),
        ):
            for version in versions:
                if field != "from" or version != ANY:
                    self._check_version((*path, field), version, known=True)
        if not edge.from_versions:
            raise self.located.build_error(
                (*path, "from"), "the edge starts nowhere", "List the versions it starts from."
            )
        if (wrong := find_edge_fault(kind, edge)) is not None:
            raise self.located.build_error((*path, wrong[0]), *wrong[1:])
        for part, version in edge.carries.items():
            self._check_kind((*path, "carries", part), part)
            self._check_version((*path, "carries", part), version, known=True)
            if part == kind:
                raise self.located.build_error(
                    (*path, "carries", part), "it brings itself", "`to` says its version."
                )
        if edge.method and edge.method not in METHODS:
            near = get_close_matches(edge.method, METHODS, 1)
            raise self.located.build_error(
                (*path, "method"),
                f"there is no method '{edge.method[:60]}'",
                (f"Is it '{near[0]}'? " if near else "") + f"It is one of: {', '.join(METHODS)}.",
            )
        self._check_conditions((*path, "requires"), edge.requires)
        self._check_file(path, edge.artifact, edge.sha256, edge.evidence)
        self._check_text((*path, "sought"), edge.sought)
        if edge.duration_s < 0 or edge.duration_s > 86400:
            raise self.located.build_error(
                (*path, "duration_s"), "no duration in seconds", "Between 0 and 86400."
            )

    def _check_conditions(self, path: Path, conditions: Mapping[str, str]) -> None:
        for kind, condition in conditions.items():
            self._check_kind((*path, kind), kind)
            try:
                if len(condition) > TEXT_MAX:
                    raise ValueError("it is too long")
                parsed = parse_terms(condition)
            except ValueError as error:
                raise self.located.build_error(
                    (*path, kind),
                    f"this is no condition: {error}",
                    "Write ==, !=, >=, <=, > or < and a version, or = and a component kind.",
                ) from None
            for operator, operand in parsed:
                if operator == "=":
                    self._check_kind((*path, kind), operand)
                else:
                    self._check_version((*path, kind), operand, known=True)

    def _check_file(self, path: Path, artifact: str, sha256: str, evidence: str) -> None:
        if sha256 and not _SHA256.fullmatch(sha256):
            raise self.located.build_error(
                (*path, "sha256"), "this is no SHA-256", "It is 64 hexadecimal digits."
            )
        if artifact and ("/" in artifact or "\\" in artifact or artifact.startswith(".")):
            raise self.located.build_error(
                (*path, "artifact"), "this is no file name", "Give the name without folders."
            )
        for field, text in (("artifact", artifact), ("evidence", evidence)):
            self._check_text((*path, field), text)

    def _check_text(self, path: Path, text: str) -> None:
        if len(text) > TEXT_MAX or not text.isprintable():
            raise self.located.build_error(
                path, "too long or unprintable", f"At most {TEXT_MAX} characters."
            )

    def _check_kind(self, path: Path, kind: str) -> None:
        if kind not in self.kinds:
            raise self.located.build_error(
                path,
                f"there is no component kind '{kind[:60]}'",
                f"It is one of: {', '.join(sorted(self.kinds))}.",
            )

    def _check_version(self, path: Path, version: str, *, known: bool = False) -> None:
        if not _VERSION.fullmatch(version) or len(version) > TEXT_MAX:
            raise self.located.build_error(
                path, "this is no version", "Write it as published, or `unknown`."
            )
        if "*" in version or "?" in version:
            raise self.located.build_error(
                path, f"'{version[:60]}' is a pattern", 'Only `from: ["*"]` stands for any version.'
            )
        if known and version == UNKNOWN:
            raise self.located.build_error(
                path, "an unknown version leads nowhere", "Leave it out."
            )

    def _check_name(self, path: Path, name: str) -> None:
        if not NAME.fullmatch(name):
            raise self.located.build_error(
                path, "this is no name", "Use letters, digits, '.', '_', '+' and '-'."
            )


def may_overlap(first: Match, second: Match) -> bool:
    if first.kind != second.kind:
        return False
    if first.cards and second.cards and first.cards != second.cards:
        return False
    if any(second.devices.get(kind, count) != count for kind, count in first.devices.items()):
        return False
    if first.models and second.models and not _share_name(first.models, second.models):
        return False
    first_gpus = first.gpu_models
    second_gpus = second.gpu_models
    return (
        not first_gpus
        or not second_gpus
        or any(_may_be_same_gpu(a, b) for a in first_gpus for b in second_gpus)
    )


def _may_be_same_gpu(a: str, b: str) -> bool:
    """Return whether two globs match one GPU model; "*H200*" and "*GH200*" do not."""
    return matches_token(a, b.strip("*")) or matches_token(b, a.strip("*"))


def _share_name(mine: Iterable[str], theirs: Iterable[str]) -> bool:
    """Return whether two lists of globs share a name; "*H100*" and "*H200*" do not."""
    first_names = {glob.casefold().strip("*") for glob in mine}
    second_names = {glob.casefold().strip("*") for glob in theirs}
    return any(a in b or b in a for a in first_names for b in second_names)
