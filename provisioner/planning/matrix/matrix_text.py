"""Read `firmware_matrix.yaml` and its overlays into one `Matrix`.

Pure: the texts are parameters. The first text is the base, and each later one is laid over it
(`overlay`). Every fault is one InputError with file, line, field and remedy; no value is guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pydantic import ValidationError

from provisioner import components
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Activation
from provisioner.model.matrix import UNKNOWN, Matrix
from provisioner.planning.matrix.located_yaml import Located, Path, Tree, format_path, load
from provisioner.planning.matrix.matrix_rules import check, spell

# ------------------------------------------------------------------------------
# Lay a site's matrix file over the shipped one without changing a published value silently.
#
# An overlay may add anything, close an unknown pin, and fill empty fields (file names, digests,
# evidence). A pin with a published version changes only if the overlay has `override: true` and a
# `reason`; the old version's file, digest and evidence are then dropped. A rule is known by its
# name and an edge by its start and end: with `override: true` the overlay's takes the place of the
# earlier one, and an edge needs a `reason` too. No other value of an earlier file may change.


OVERRIDE_KEYS = ("override", "reason")
_OF_A_VERSION = ("version", "also", "artifact", "sha256", "evidence", "sought")


def lay_over(base: Located, over: Located) -> Located:
    """Return one tree from two.

    Raises InputError at the place of a forbidden change in the overlay.
    """
    merged = Located(base.tree, dict(base.places))
    if over.tree is not None:
        merged.tree = _Layer(merged, over).merge_values(base.tree, over.tree, (), ())
    return merged


class _Layer:
    """One pass over the overlay's tree. Paths in `base` and `over` differ only in list indexes."""

    def __init__(self, merged: Located, over: Located) -> None:
        self.merged = merged
        self.over = over

    def merge_values(self, old: Tree, new: Tree, at: Path, there: Path) -> Tree:
        """Return the merged value, with its path `at` in the result and `there` in the overlay."""
        if old is None or old == new:
            return self._take(new, at, there)
        if isinstance(old, dict) and isinstance(new, dict):
            return (
                self._merge_pins(old, new, at, there)
                if is_pin(at)
                else self._merge_dicts(old, new, at, there)
            )
        if isinstance(old, list) and isinstance(new, list):
            return self._merge_lists(old, new, at, there)
        if isinstance(old, str) and isinstance(new, str) and old == "":
            return self._take(new, at, there)
        if "match" in at:
            return self._take(new, at, there)
        raise self.over.build_error(
            there,
            f"this is '{_short(new)}', but an earlier file says '{_short(old)}'",
            "Only a pin's version may change, with `override: true` and a `reason`.",
        )

    def _merge_dicts(
        self, old: dict[str, Tree], new: dict[str, Tree], at: Path, there: Path
    ) -> dict[str, Tree]:
        result = dict(old)
        for key, value in new.items():
            here = (*at, key)
            before = old.get(key) if key in old else self._find_inherited(here)
            if before is not None:
                result[key] = self.merge_values(before, value, here, (*there, key))
            else:
                result[key] = self._take(value, here, (*there, key))
        return result

    def _find_inherited(self, at: Path) -> Tree:
        """Return the pin that a profile inherits by `like`; it counts as published too."""
        if not is_pin(at) or at[0] != "releases":
            return None
        profiles: Tree = self.merged.tree
        for part in at[:3]:
            profiles = profiles.get(str(part)) if isinstance(profiles, dict) else None
        here: Tree = profiles.get(str(at[3])) if isinstance(profiles, dict) else None
        name = here.get("like") if isinstance(here, dict) else None
        source_profile = profiles.get(str(name)) if isinstance(profiles, dict) and name else None
        pins = source_profile.get("pins") if isinstance(source_profile, dict) else None
        return pins.get(str(at[5])) if isinstance(pins, dict) else None

    def _merge_pins(
        self, old: dict[str, Tree], new: dict[str, Tree], at: Path, there: Path
    ) -> Tree:
        fields = {k: v for k, v in new.items() if k not in OVERRIDE_KEYS}
        before = old.get("version")
        after = new.get("version", old.get("version"))
        if before == after:
            return self._merge_dicts(old, fields, at, there)
        closes = before in {None, "", UNKNOWN}
        if not closes and after == UNKNOWN:
            raise self.over.build_error(
                (*there, "version"), "a published version becomes unknown", "Leave it out."
            )
        if not closes and not _is_override(new):
            raise self.over.build_error(
                (*there, "version"),
                f"the published version {before} becomes {after}",
                "If that is meant, add `override: true` and a `reason`.",
            )
        unversioned = {k: v for k, v in old.items() if k not in _OF_A_VERSION}
        if not closes and "evidence" not in fields:
            fields["evidence"] = f"override: {new['reason']}"
        for key in fields:
            self._take(fields[key], (*at, key), (*there, key))
        return {**unversioned, **fields}

    def _merge_lists(self, old: list[Tree], new: list[Tree], at: Path, there: Path) -> list[Tree]:
        is_need = len(at) == 2 and at[0] == "libraries"
        if at[:1] != ("edges",) and at[-1:] != ("requires",) and not is_need:
            if "match" in at:  # the site decides which nodes belong to a profile
                self._take(new, at, there)
                return new
            raise self.over.build_error(there, "a list of an earlier file changes", "Leave it out.")
        result = list(old)
        for index, item in enumerate(new):
            source = (*there, index)
            twin = next((i for i, o in enumerate(old) if _is_twin(at, o, item)), None)
            replaces = isinstance(item, dict) and item.get("override") == "true"
            if replaces and (twin is None or not isinstance(item, dict)):
                raise self.over.build_error(
                    (*source, "override"),
                    "no earlier file has this one",
                    "Remove `override`, or write the name or the versions of the earlier one.",
                )
            if twin is None:
                result.append(self._take(item, (*at, len(result)), source))
            elif replaces:
                result[twin] = self._replace(item, (*at, twin), source)
            elif at[-1:] == ("requires",) and old[twin] != item:
                raise self.over.build_error(
                    (*source, "name"),
                    "an earlier file has another rule of this name",
                    "Add `override: true` to replace it, or give this one a name of its own.",
                )
            else:
                result[twin] = self.merge_values(old[twin], item, (*at, twin), source)
        return result

    def _replace(self, item: Tree, at: Path, there: Path) -> Tree:
        """Return an edge or a rule that takes the place of an earlier one."""
        assert isinstance(item, dict)
        if not item.get("reason"):
            raise self.over.build_error(
                there, "an override without a reason", "Add `reason`: why it differs."
            )
        for path in [p for p in self.merged.places if p[: len(at)] == at]:
            del self.merged.places[path]
        fields = dict(item)
        if at[0] == "edges":
            fields.setdefault("evidence", f"override: {item['reason']}")
        return self._take(fields, at, there)

    def _take(self, value: Tree, at: Path, there: Path) -> Tree:
        """Return the overlay's value unchanged, and record its places."""
        for path, place in self.over.places.items():
            if path[: len(there)] == there:
                self.merged.places[(*at, *path[len(there) :])] = place
        return value


def is_pin(path: Path) -> bool:
    """Return whether a path is releases.<r>.profiles.<p>.pins.<kind> or images.<name>."""
    if path[:1] == ("images",):
        return len(path) == 2
    return len(path) == 6 and (path[0], path[2], path[4]) == ("releases", "profiles", "pins")


def _is_override(pin: dict[str, Tree]) -> bool:
    return pin.get("override") == "true" and bool(pin.get("reason"))


def _is_twin(at: Path, old: Tree, new: Tree) -> bool:
    """Return whether two rules have one name, or two edges are one move in any spelling."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    if at[-1:] == ("requires",):
        return isinstance(new.get("name"), str) and old.get("name") == new.get("name")
    if at[0] == "libraries":  # the highest of several counts: a site adds its own
        return old == new
    kind = str(at[1])
    same_via = _spell_all(kind, old.get("via")) == _spell_all(kind, new.get("via"))
    if not same_via and new.get("override") != "true":
        return False
    return all(
        _spell_all(kind, old.get(key)) == _spell_all(kind, new.get(key)) for key in ("from", "to")
    )


def _spell_all(kind: str, value: Tree) -> object:
    """Return a version, or a list of them in any order, so that spellings compare equal."""
    if isinstance(value, list):
        return frozenset(spell(kind, str(v)) for v in value)
    return spell(kind, value) if isinstance(value, str) else value


def _short(value: Tree) -> str:
    return value if isinstance(value, str) and len(value) < 80 else type(value).__name__


FILES_MAX = 16  # a base, a vendor's, a site's; more is a mistake
PROFILES_MAX = 64  # of one release; every pair of them is compared
PINS_MAX = 200  # of one profile; there are some 60 component kinds
SCHEMA = 1


def parse(texts: Sequence[tuple[str, str]], *, kinds: Collection[str] | None = None) -> Matrix:
    """Return the matrix of (source name, text) pairs; `kinds` are the declared component kinds.

    Raises InputError for the first fault.
    """
    return parse_located(texts, kinds=kinds)[0]


def parse_located(
    texts: Sequence[tuple[str, str]], *, kinds: Collection[str] | None = None
) -> tuple[Matrix, Located]:
    """Return the matrix of `parse` with the text that it was read from, for the lines."""
    if not texts or len(texts) > FILES_MAX:
        raise InputError(
            "--matrix", "", f"{len(texts)} files given", f"Give between 1 and {FILES_MAX}."
        )
    merged: Located | None = None
    overrides: list[Path] = []
    for source, text in texts:
        located = load(source, text)
        if not isinstance(located.tree, dict):
            raise InputError(
                source, "line 1", "this is no mapping", "It starts with `schema: 1`, `releases:`."
            )
        if merged is None:
            overrides = _find_override_keys(located)
        merged = located if merged is None else lay_over(merged, located)
    assert merged is not None
    _expand_likes(merged)
    _drop_override_keys(merged)
    matrix = _validate(merged)
    check(matrix, merged, frozenset(components.ALL if kinds is None else kinds))
    merged.overrides = overrides
    return matrix, merged


def is_base(source: str, text: str) -> bool:
    """Return whether a file is a matrix of its own, and no overlay that wants the shipped one.

    A base states its `schema`, and all of its profiles say which nodes they are for (`match`) or
    which profile they are `like`. Raises InputError if the text is no YAML mapping.
    """
    tree = load(source, text).tree
    if not isinstance(tree, dict):
        raise InputError(
            source, "line 1", "this is no mapping", "It starts with `schema: 1`, `releases:`."
        )
    releases = tree.get("releases")
    if "schema" not in tree or not isinstance(releases, dict) or not releases:
        return False
    for release in releases.values():
        profiles = release.get("profiles") if isinstance(release, dict) else None
        for profile in profiles.values() if isinstance(profiles, dict) else ():
            if not isinstance(profile, dict) or not {"match", "like"} & profile.keys():
                return False
    return True


def _validate(located: Located) -> Matrix:
    try:
        matrix = Matrix.model_validate(located.tree)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = _find_written_path(located.tree, fault["loc"])
        problem, remedy = _explain(fault["type"], fault, path)
        raise located.build_error(path, problem, remedy) from None
    if matrix.schema_version != SCHEMA:
        raise located.build_error(
            ("schema",),
            f"schema {matrix.schema_version} is not known",
            f"This program reads schema {SCHEMA}.",
        )
    return matrix


def _explain(kind: str, fault: Any, path: Path) -> tuple[str, str]:
    """Return (problem, remedy) of a pydantic error, in terms of this file."""
    name = format_path(path[-1:])
    if kind == "extra_forbidden":
        return (
            f"the key {name} is not known",
            "See docs/matrix.md for the keys; check its spelling.",
        )
    if kind == "missing":
        return f"{name} is missing", "Add it; docs/matrix.md has an example."
    if kind in {"tuple_type", "list_type"}:
        return f"{name} is not a list", f"Write `{name}: [...]`."
    if kind in {"dict_type", "model_type", "model_attributes_type"}:
        return f"{name} is not a mapping", "Write `key: value` lines under it."
    if kind == "string_type":
        return f"{name} has no text", "Write a value; an unknown version is `unknown`."
    if kind == "enum":
        names = ", ".join(a.value for a in Activation)
        return f"'{fault['input']}' is no activation", f"It is one of: {names}."
    return f"{name}: {fault['msg'].lower()}", "See docs/matrix.md for what may stand here."


def _find_written_path(tree: Tree, loc: tuple[str | int, ...]) -> Path:
    """Return the part of an error's location that is a path in the tree, plus the faulty name."""
    path: list[str | int] = []
    here: Tree = tree
    for part in loc:
        path.append(part)
        try:
            here = here[part]  # type: ignore[index]  # of a wrong type: TypeError, the end
        except (KeyError, IndexError, TypeError):
            break
    return tuple(path)


def _find_mappings(tree: Tree, path: Path, depth: int) -> list[tuple[Path, dict[str, Tree]]]:
    """Return every mapping `depth` levels below a path. The model reports values of other types."""
    here: Tree = tree
    for part in path:
        here = here.get(str(part)) if isinstance(here, dict) else None
    values: list[tuple[Path, Tree]] = [(path, here)]
    for _ in range(depth):
        values = [((*p, k), v) for p, m in values if isinstance(m, dict) for k, v in m.items()]
    return [(p, m) for p, m in values if isinstance(m, dict)]


def _expand_likes(located: Located) -> None:
    """Copy the pins of the profile named by `like` into a profile, before its own.

    This works one level deep only: a chain of `like` would be hard to read.
    """
    for release_path, _ in _find_mappings(located.tree, ("releases",), 1):
        profiles = dict(_find_mappings(located.tree, (*release_path, "profiles"), 1))
        if len(profiles) > PROFILES_MAX or any(map(_too_many_pins, profiles.values())):
            raise located.build_error(
                (*release_path, "profiles"),
                f"more than {PROFILES_MAX} profiles, or {PINS_MAX} pins in one",
                "Split the release.",
            )
        likes = {path: p.pop("like") for path, p in profiles.items() if "like" in p}
        for path, name in likes.items():
            source_path = (*path[:-1], str(name))
            if source_path not in profiles or source_path in likes:
                raise located.build_error(
                    (*path, "like"),
                    f"there is no profile '{name}' of this release without a `like` of its own",
                    "Name a profile that writes its pins out.",
                )
            own = profiles[path].get("pins")
            theirs = profiles[source_path].get("pins")
            if own is None or isinstance(own, dict):
                profiles[path]["pins"] = {
                    **(theirs if isinstance(theirs, dict) else {}),
                    **(own or {}),
                }
            located.borrowed[path] = source_path


def _too_many_pins(profile: dict[str, Tree]) -> bool:
    pins = profile.get("pins")
    return isinstance(pins, dict) and len(pins) > PINS_MAX


def _list_replaceable(tree: Tree) -> list[tuple[Path, dict[str, Tree], tuple[str, ...]]]:
    """Return every pin, edge and rule with the keys that only an overlay gives it."""
    out: list[tuple[Path, dict[str, Tree], tuple[str, ...]]] = []
    for path, release in _find_mappings(tree, ("releases",), 1):
        for profile_path, _ in _find_mappings(tree, (*path, "profiles"), 1):
            pins = _find_mappings(tree, (*profile_path, "pins"), 1)
            out += [(p, pin, OVERRIDE_KEYS) for p, pin in pins]
        rules = release.get("requires")  # `reason` is a rule's own
        out += [(p, rule, ("override",)) for p, rule in _list_items((*path, "requires"), rules)]
    edges = tree.get("edges") if isinstance(tree, dict) else None
    for kind, listed in edges.items() if isinstance(edges, dict) else ():
        out += [(p, edge, OVERRIDE_KEYS) for p, edge in _list_items(("edges", kind), listed)]
    return out


def _list_items(path: Path, items: Tree) -> list[tuple[Path, dict[str, Tree]]]:
    pairs = enumerate(items) if isinstance(items, list) else ()
    return [((*path, n), item) for n, item in pairs if isinstance(item, dict)]


def _find_override_keys(base: Located) -> list[Path]:
    """Return the keys of a base that have a meaning in overlays only."""
    return [
        (*path, key)
        for path, fields, keys in _list_replaceable(base.tree)
        for key in keys
        if key in fields
    ]


def _drop_override_keys(located: Located) -> None:
    """Remove `override` and `reason`, which have a meaning in overlays only."""
    for path, fields, keys in _list_replaceable(located.tree):
        if path[-2:-1] == ("pins",) and fields.get("version") is None and "version" in fields:
            raise located.build_error(
                (*path, "version"), "the version is empty", "Write it, or `unknown`."
            )
        for key in keys:
            fields.pop(key, None)
