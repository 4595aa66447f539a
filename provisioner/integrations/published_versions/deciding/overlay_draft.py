"""Draft an overlay from imported versions: a difference for a person to review.

The draft fills file names and digests of pins that have the very version, wherever they are. It
closes an unknown pin, or adds one, only in the profiles that the person names, because no imported
file says which nodes it is for. A published version is never replaced: the difference is listed,
and the person writes `override: true` with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import yaml

from provisioner.integrations.published_versions.deciding.statements import (
    Contents,
    Import,
    Statement,
    clean_version,
)
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix, Pin, Profile, Release
from provisioner.model.versions import is_same_version
from provisioner.planning.matrix.located_yaml import Located
from provisioner.planning.matrix.readiness import FILELESS
from provisioner.planning.path.conditions import grammar_of, is_pinned, parse_terms, satisfies_term
from provisioner.planning.path.distances import Ways, normalize_version


class Verdict(StrEnum):
    """The effect of one imported version on one pin."""

    CLOSES = "closes"  # an unknown pin has a version now
    ADDS = "adds"  # the profile had no such pin, or the matrix no such package
    FILE = "file"  # same version; file name, digest or source are filled
    SAME = "same"
    DIFFERS = "differs"  # not written: a published value says otherwise
    CONFLICT = "conflict"  # not written: the imported files contradict each other
    UNCLASSIFIED = "unclassified"  # not written: the name fits no component kind
    UNPLACED = "unplaced"  # not written: no profile was named for it


WRITTEN = frozenset({Verdict.CLOSES, Verdict.ADDS, Verdict.FILE})


class Change(Record):
    """One line of the difference."""

    verdict: Verdict
    kind: str  # component kind, or the name that fits none
    release: str = ""
    profile: str = ""
    before: str = ""
    after: str = ""
    source: str = ""  # the imported file
    row: str = ""  # of a published table, as it was read
    reason: str = ""


class Draft(Record):
    """The difference, and the overlay that makes the written part of it."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    text: str


class Place(Record):
    """The profiles whose pins a person allows to be closed; none without a release.

    `like`: a release that is not there yet is drafted, for the nodes of this one's profiles.
    """

    release: str = ""
    profiles: tuple[str, ...] = ()
    like: str = ""

    def includes(self, release: str, profile: str) -> bool:
        return release == self.release and profile in self.profiles


def draft_overlay(
    matrix: Matrix,
    located: Located,
    imports: Sequence[Import],
    place: Place,
    *,
    evidence: str = "",
    vouched: str = "",
) -> Draft:
    """Return the overlay for imported files. Raises InputError for a profile that is not there.

    `vouched`: the site's word for moves into the place's pins that have no source.
    """
    check_place(matrix, place)
    draft = _Draft(matrix, located, place, evidence)
    if place.like:
        draft.add_release()
    stated = [(each.source, s) for each in imports for s in each.statements]
    for key in dict.fromkeys((s.kind, s.profile) for _, s in stated):
        draft.add_statements([(source, s) for source, s in stated if (s.kind, s.profile) == key])
    for each in imports:
        for contents in each.contents:
            draft.add_contents(each.source, contents)
    if vouched:
        draft.vouch(vouched)
    notes = tuple(f"{each.source}: {note}" for each in imports for note in each.notes)
    return Draft(changes=tuple(draft.changes), notes=notes, text=draft.write(imports, notes))


def check_place(matrix: Matrix, place: Place) -> None:
    """Raise InputError for a release or profile that the matrix does not have."""
    if bool(place.release) != bool(place.profiles):
        problem = "a release and its profiles are named together"
        raise InputError("--release", place.release, problem, "Give --release and --profile.")
    profiles: Collection[str] = ()
    if place.like:
        if place.like not in matrix.releases or place.release in matrix.releases:
            problem = "it is drafted like a release that is there, and is not there itself"
            raise InputError("--like", place.like, problem, "See `provisioner matrix show`.")
        profiles = matrix.releases[place.like].profiles
    elif place.release:
        if place.release not in matrix.releases:
            remedy = "See `provisioner matrix show`; a new one is drafted with --like RELEASE."
            raise InputError("--release", place.release, "there is no such release", remedy)
        profiles = matrix.releases[place.release].profiles
    for name in place.profiles:
        if name not in profiles:
            remedy = f"It is one of: {', '.join(profiles)}."
            raise InputError("--profile", name, f"{place.release} has no such profile", remedy)


def identify_bundle(contents: Mapping[str, Mapping[str, str]], inventory: Inventory) -> str:
    """Return the package whose every part a node runs in every slot, "" if it is none of them.

    `contents`: those of the packages of one kind, by version. No device reports a package by name.
    """
    running: dict[str, set[str]] = {}
    for part in inventory.components:
        running.setdefault(part.kind, set()).add(part.version or "")
    for version, parts in contents.items():
        if all(
            running.get(kind)
            and all(is_same_version(grammar_of(kind), wanted, v) for v in running[kind])
            for kind, wanted in parts.items()
        ):
            return version
    return ""


def state_good_node(
    inventory: Inventory,
    pins: Mapping[str, Pin],
    evidence: str,
    files: Mapping[str, tuple[str, str]],
    bundles: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None,
) -> Import:
    """Return the versions of a node that its site declares good, for the pins that are unknown.

    `files`: (name, SHA-256) of the file that brings a component's version, by kind; of a published
    version too. `bundles`: contents of packages, by which the node's is recognised. A slot without
    a version, and a kind that the node does not show, are notes: they stay unknown. Slots of one
    kind with several versions contradict each other in the draft, and nothing of them is written.
    """
    wanted = {kind for kind, pin in pins.items() if not pin.known}
    statements = []
    notes = []
    for part in inventory.components:
        pin = pins.get(part.kind)
        if pin is not None and pin.known and part.version:
            if not is_pinned(grammar_of(part.kind), part.version, pin):
                where = f"{part.kind}/{part.slot}"
                notes.append(f"{where} runs {part.version}, and {pin.version} is pinned: kept")
            continue
        if part.kind not in wanted:
            continue
        if not part.version:
            notes.append(f"{part.kind}/{part.slot} shows no version")
        elif part.staged is not None:
            notes.append(f"{part.kind}/{part.slot}: {part.staged} waits for a reset; not read")
        else:
            where = f"{part.kind}/{part.slot}"
            version = clean_version(inventory.node, where, part.version)
            name, sha256 = files.get(part.kind, ("", ""))
            statement = Statement(
                part.kind, version, part.kind, file=name, sha256=sha256, evidence=evidence
            )
            statements.append(statement)
    for kind in sorted(wanted & (bundles or {}).keys() - {s.kind for s in statements}):
        if version := identify_bundle((bundles or {})[kind], inventory):
            name, sha256 = files.get(kind, ("", ""))
            statements.append(
                Statement(kind, version, kind, file=name, sha256=sha256, evidence=evidence)
            )
    read = {s.kind for s in statements}
    notes += [f"{kind} stays unknown: the node does not show it" for kind in sorted(wanted - read)]
    for kind, (name, sha256) in files.items():  # of published versions, the file alone
        if kind in pins and pins[kind].known:
            statements.append(Statement(kind, pins[kind].version, kind, file=name, sha256=sha256))
    lacks = {k for k, pin in pins.items() if pin.known and not pin.artifact}
    files_wanted = sorted((read | lacks) - FILELESS - files.keys())
    notes += [f"{kind} has no file yet: --file {kind}=NAME" for kind in files_wanted]
    return Import(
        source=inventory.node,
        format="the inventory of a node that its site declares good",
        statements=tuple(dict.fromkeys(statements)),
        notes=tuple(notes),
    )


def _holds(statement: Statement, bounds: str) -> bool:
    grammar = grammar_of(statement.kind)
    return all(satisfies_term(grammar, statement.version, term) for term in parse_terms(bounds))


EVIDENCE_CHARS_MAX = 300  # as the matrix takes texts


def _show_sides(stated: Sequence[tuple[str, Statement]]) -> str:
    """Return contradicting versions side by side, each with its file and row."""
    sides = {
        s.version: f"{s.version} ({source}{', ' + s.row if s.row else ''})" for source, s in stated
    }
    return f"several versions: {' against '.join(sides.values())}; import the right one alone"


class _Draft:
    def __init__(self, matrix: Matrix, located: Located, place: Place, evidence: str) -> None:
        self.matrix = matrix
        self.located = located
        self.place = place
        self.evidence = evidence
        self.changes: list[Change] = []
        self.tree: dict[str, Any] = {"schema": "1"}

    def add_statements(self, stated: Sequence[tuple[str, Statement]]) -> None:
        """Compare the statements about one component kind with every pin of it."""
        source, first = stated[0]
        if not first.kind:
            for each, statement in stated:
                remedy = f"give it a component kind: --map '{statement.name}=KIND'"
                self._note(Verdict.UNCLASSIFIED, statement, each, remedy)
            return
        grammar = grammar_of(first.kind)
        versions = {s.version for _, s in stated}
        files = {(s.file, s.sha256) for _, s in stated if s.file or s.sha256}
        if any(not is_same_version(grammar, first.version, version) for version in versions):
            self._note(Verdict.CONFLICT, first, source, _show_sides(stated))
            return
        if len(files) > 1:
            names = ", ".join(sorted(file for file, _ in files))
            self._note(Verdict.CONFLICT, first, source, f"several files bring it: {names}")
            return
        name, sha256 = next(iter(files), ("", ""))
        whole = first._replace(file=name, sha256=sha256)
        if not self._place(whole, source):
            reason = "name the nodes that it is for: --release and --profile"
            self._note(Verdict.UNPLACED, whole, source, reason)

    def add_release(self) -> None:
        """Begin the release that is not there yet, for the nodes of the one that it is like."""
        model = self.matrix.releases[self.place.like]
        profiles = {
            name: Profile(match=model.profiles[name].match, pins={}) for name in self.place.profiles
        }
        fresh = Release(profiles=profiles, follows=self.place.like)
        releases = {**self.matrix.releases, self.place.release: fresh}
        self.matrix = self.matrix.model_copy(update={"releases": releases})
        matches = {
            name: {"match": p.match.model_dump(mode="json", exclude_defaults=True), "pins": {}}
            for name, p in profiles.items()
        }
        self.tree["releases"] = {
            self.place.release: {"follows": self.place.like, "profiles": matches}
        }

    def vouch(self, word: str) -> None:
        """Give the moves into the place's pins that have no source the site's own."""
        profiles = self.matrix.releases[self.place.release].profiles
        ways = Ways(self.matrix)
        for kind, edges in self.matrix.edges.items():
            pins = {
                normalize_version(self.matrix, kind, version)
                for name in self.place.profiles
                if kind in profiles[name].pins and profiles[name].pins[kind].known
                for version in (profiles[name].pins[kind].version, *profiles[name].pins[kind].also)
            }
            written = [
                {
                    "from": list(edge.from_versions),
                    "to": edge.to,
                    **({"via": list(edge.via)} if edge.via else {}),
                    "activates_by": edge.activates_by.value,
                    "evidence": word[:EVIDENCE_CHARS_MAX],
                }
                for edge in edges
                if not edge.evidence and pins & ways.list_reachable(kind, edge.to)
            ]
            if written:
                self.tree.setdefault("edges", {})[kind] = written

    def _note(self, verdict: Verdict, statement: Statement, source: str, reason: str) -> None:
        kind = statement.kind or statement.name
        after = statement.version
        self.changes.append(
            Change(
                verdict=verdict,
                kind=kind,
                after=after,
                source=source,
                row=statement.row,
                reason=reason,
            )
        )

    def _place(self, statement: Statement, source: str) -> bool:
        """Write a statement where it belongs; return whether it concerned any pin."""
        concerned = False
        for release, profile, pin in self._list_pins(statement.kind):
            is_meant = self.place.includes(release, profile) and statement.profile in {"", profile}
            if pin is None or not pin.known:
                change = self._close_pin(statement, pin) if is_meant else None
            elif is_same_version(grammar_of(statement.kind), pin.version, statement.version):
                change = self._fill_pin(statement, pin, release, profile)
                concerned = True
            else:
                reason = "published: `override: true` and a reason are a person's decision"
                change = (Verdict.DIFFERS, {}, reason) if is_meant else None
            if change is not None:
                concerned = True
                self._record(statement, source, (release, profile), pin, change)
        return concerned

    def _list_pins(self, kind: str) -> Iterator[tuple[str, str, Pin | None]]:
        for release, content in self.matrix.releases.items():
            for profile, pins in content.profiles.items():
                yield release, profile, pins.pins.get(kind)

    def _close_pin(
        self, statement: Statement, pin: Pin | None
    ) -> tuple[Verdict, dict[str, str], str]:
        fields = {"version": statement.version, **self._list_extras(statement)}
        if pin is not None and pin.optional:
            fields["optional"] = "true"
        if pin is not None and pin.bounds and not _holds(statement, pin.bounds):
            return Verdict.DIFFERS, {}, f"published: it is {pin.bounds} ({pin.evidence})"
        reason = "" if fields.get("evidence") else "without a source: add --evidence"
        return (Verdict.ADDS if pin is None else Verdict.CLOSES), fields, reason

    def _fill_pin(
        self, statement: Statement, pin: Pin, release: str, profile: str
    ) -> tuple[Verdict, dict[str, str], str]:
        extras = self._list_extras(statement)
        for key, name in (("artifact", "file"), ("sha256", "digest")):
            pinned = getattr(pin, key)
            if extras.get(key) and pinned and pinned != extras[key]:
                reason = f"another {name} is pinned: {pinned}"
                return Verdict.DIFFERS, {}, reason
        fields = {key: value for key, value in extras.items() if not getattr(pin, key)}
        path = ("releases", release, "profiles", profile)
        if fields and path in self.located.borrowed and not self._is_own(path, statement.kind):
            return Verdict.SAME, {}, f"follows {self.located.borrowed[path][-1]}"
        return (Verdict.FILE if fields else Verdict.SAME), fields, ""

    def _is_own(self, path: tuple[str | int, ...], kind: str) -> bool:
        """Return whether a profile that is like another one writes this pin itself."""
        return (*path, "pins", kind) in self.located.places

    def _list_extras(self, statement: Statement) -> dict[str, str]:
        evidence = statement.evidence or self.evidence
        row = f"; row: {statement.row}" if evidence and statement.row else ""
        extras = {"evidence": f"{evidence}{row}"[:EVIDENCE_CHARS_MAX]}
        if statement.kind not in FILELESS:
            extras |= {"artifact": statement.file, "sha256": statement.sha256}
        return {key: value for key, value in extras.items() if value}

    def _record(
        self,
        statement: Statement,
        source: str,
        where: tuple[str, str],
        pin: Pin | None,
        change: tuple[Verdict, dict[str, str], str],
    ) -> None:
        verdict, fields, reason = change
        release, profile = where
        if fields:
            pins = self.tree.setdefault("releases", {}).setdefault(release, {})
            pins = pins.setdefault("profiles", {}).setdefault(profile, {}).setdefault("pins", {})
            pins[statement.kind] = fields
        added = ", ".join(f"{key} {value}" for key, value in fields.items() if key != "version")
        self.changes.append(
            Change(
                verdict=verdict,
                kind=statement.kind,
                release=release,
                profile=profile,
                before=pin.version if pin else "",
                after=statement.version,
                source=source,
                row=statement.row,
                reason=reason or added,
            )
        )

    def add_contents(self, source: str, contents: Contents) -> None:
        """Write the parts of a package, by which a node that runs it is recognised."""
        whole = Statement(contents.version, contents.version, contents.kind)
        parts: dict[str, str] = {}
        for part in contents.parts:
            if not part.kind:
                reason = f"its contents are not written: {part.name} fits no component kind"
                self._note(Verdict.UNCLASSIFIED, whole, source, reason)
                return
            if parts.setdefault(part.kind, part.version) != part.version:
                reason = f"its contents are not written: two versions of {part.kind}"
                self._note(Verdict.CONFLICT, whole, source, reason)
                return
        for version, written in self.matrix.bundles.get(contents.kind, {}).items():
            if is_same_version(grammar_of(contents.kind), version, contents.version):
                verdict = Verdict.SAME if written == parts else Verdict.DIFFERS
                self._note(verdict, whole, source, "contents of the package")
                return
        if parts:
            bundles = self.tree.setdefault("bundles", {}).setdefault(contents.kind, {})
            bundles[contents.version] = parts
            self._note(Verdict.ADDS, whole, source, f"contents: {len(parts)} parts")

    def write(self, imports: Sequence[Import], notes: Sequence[str]) -> str:
        """Return the overlay as YAML, with everything that is not in it as comments."""
        lines = [
            "# Drafted by `provisioner matrix refresh` or `fill`; review each line before its use."
        ]
        lines += [f"# from {each.source}: {each.format}" for each in imports]
        for change in self.changes:
            if change.verdict not in WRITTEN | {Verdict.SAME}:
                place = f"{change.release}/{change.profile} " if change.release else ""
                move = f"{change.before} -> {change.after}" if change.before else change.after
                row = f", {change.row}" if change.row else ""
                lines.append(
                    f"# not written, {change.verdict}: {place}{change.kind} {move}"
                    f" ({change.source}{row}): {change.reason}"
                )
        lines += [f"# note: {note}" for note in notes]
        comments = "".join(re.sub(r"[^\x20-\x7e]", "?", line) + "\n" for line in lines)
        return comments + yaml.safe_dump(self.tree, sort_keys=False, width=100)
