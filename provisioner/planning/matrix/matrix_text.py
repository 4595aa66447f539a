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
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.located_yaml import Located, Path, Tree, format_path, load
from provisioner.planning.matrix.matrix_rules import check
from provisioner.planning.matrix.overlay import OVERRIDE_KEYS, lay_over

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
            # TypeError is expected for a key of the wrong type: the path ends here
            here = here[part]  # type: ignore[index]
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
