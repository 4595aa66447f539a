"""Reads `firmware_matrix.yaml` and its overlays into one `Matrix`, or says what is wrong and where.

Pure: the texts are passed in. The first text is the base, each later one is laid over it
(`overlay`). Every fault is one InputError with file, line, field and remedy; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pydantic import ValidationError

from provisioner import components
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Activation
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.located_yaml import Located, Path, Tree, dotted, load
from provisioner.planning.matrix.matrix_rules import check
from provisioner.planning.matrix.overlay import OVERRIDE_KEYS, lay_over

FILES_MAX = 16  # a base, a vendor's, a site's; more is a mistake
PROFILES_MAX = 64  # of one release; every pair of them is compared
PINS_MAX = 200  # of one profile; there are some 60 component kinds
SCHEMA = 1


def parse(texts: Sequence[tuple[str, str]], *, kinds: Collection[str] | None = None) -> Matrix:
    """The matrix from (source name, text) pairs; `kinds` are the component kinds there are.

    Raises InputError for the first fault found.
    """
    if not texts or len(texts) > FILES_MAX:
        raise InputError(
            "--matrix", "", f"{len(texts)} files given", f"Give between 1 and {FILES_MAX}."
        )
    merged: Located | None = None
    for source, text in texts:
        located = load(source, text)
        if not isinstance(located.tree, dict):
            raise InputError(
                source, "line 1", "this is no mapping", "It starts with `schema: 1`, `releases:`."
            )
        merged = located if merged is None else lay_over(merged, located)
    assert merged is not None
    _expand_likes(merged)
    _drop_override_keys(merged)
    matrix = _validated(merged)
    check(matrix, merged, frozenset(components.ALL if kinds is None else kinds))
    return matrix


def _validated(located: Located) -> Matrix:
    try:
        matrix = Matrix.model_validate(located.tree)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = _written(located.tree, fault["loc"])
        problem, remedy = _explain(fault["type"], fault, path)
        raise located.error(path, problem, remedy) from None
    if matrix.schema_version != SCHEMA:
        raise located.error(
            ("schema",),
            f"schema {matrix.schema_version} is not known",
            f"This program reads schema {SCHEMA}.",
        )
    return matrix


def _explain(kind: str, fault: Any, path: Path) -> tuple[str, str]:
    """(problem, remedy) of a pydantic error, in the words of this file."""
    name = dotted(path[-1:])
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


def _written(tree: Tree, loc: tuple[str | int, ...]) -> Path:
    """The part of an error's place that is a path in the tree, plus the name that is at fault."""
    path: list[str | int] = []
    here: Tree = tree
    for part in loc:
        path.append(part)
        try:
            # a wrong kind of key is one of the answers: TypeError says that the path ends here
            here = here[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            break
    return tuple(path)


def _mappings(tree: Tree, path: Path, depth: int) -> list[tuple[Path, dict[str, Tree]]]:
    """Every mapping `depth` levels under a path, skipping what is none (the model reports it)."""
    here: Tree = tree
    for part in path:
        here = here.get(str(part)) if isinstance(here, dict) else None
    found: list[tuple[Path, Tree]] = [(path, here)]
    for _ in range(depth):
        found = [((*p, k), v) for p, m in found if isinstance(m, dict) for k, v in m.items()]
    return [(p, m) for p, m in found if isinstance(m, dict)]


def _expand_likes(located: Located) -> None:
    """`like: NAME` in a profile: the pins of another profile of that release, then its own.

    One level deep on purpose: a chain of likes is a puzzle for the reader.
    """
    for release_path, _ in _mappings(located.tree, ("releases",), 1):
        profiles = dict(_mappings(located.tree, (*release_path, "profiles"), 1))
        if len(profiles) > PROFILES_MAX or any(map(_too_many_pins, profiles.values())):
            raise located.error(
                (*release_path, "profiles"),
                f"more than {PROFILES_MAX} profiles, or {PINS_MAX} pins in one",
                "Split the release.",
            )
        likes = {path: p.pop("like") for path, p in profiles.items() if "like" in p}
        for path, name in likes.items():
            other = (*path[:-1], str(name))
            if other not in profiles or other in likes:
                raise located.error(
                    (*path, "like"),
                    f"there is no profile '{name}' of this release without a `like` of its own",
                    "Name a profile that writes its pins out.",
                )
            own = profiles[path].get("pins")
            theirs = profiles[other].get("pins")
            if own is None or isinstance(own, dict):
                profiles[path]["pins"] = {
                    **(theirs if isinstance(theirs, dict) else {}),
                    **(own or {}),
                }
            located.borrowed[path] = other


def _too_many_pins(profile: dict[str, Tree]) -> bool:
    pins = profile.get("pins")
    return isinstance(pins, dict) and len(pins) > PINS_MAX


def _drop_override_keys(located: Located) -> None:
    """`override` and `reason` mean something in an overlay only; elsewhere they change nothing."""
    for path, _ in _mappings(located.tree, ("releases",), 1):
        for profile_path, _ in _mappings(located.tree, (*path, "profiles"), 1):
            for pin_path, pin in _mappings(located.tree, (*profile_path, "pins"), 1):
                if pin.get("version") is None and "version" in pin:
                    raise located.error(
                        (*pin_path, "version"), "the version is empty", "Write it, or `unknown`."
                    )
                for key in OVERRIDE_KEYS:
                    pin.pop(key, None)
