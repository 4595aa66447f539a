"""Read YAML as a tree of text that records the file and line of each value.

Scalars stay text exactly as written: YAML would read the version 2.10 as the number 2.1, and `no`
as false. Anchors, aliases, tags and merge keys are refused: an alias can make a small file grow
without limit (the "billion laughs"), and the content of a pinned file should be visible in its
text. Size, depth and number of values are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import yaml
from pydantic import ValidationError

from provisioner.model.input_error import InputError

# a matrix of ten releases with digests is about 100 KB; parsing 2 MiB takes a few seconds
SIZE_MAX = 2 * 1024 * 1024
DEPTH_MAX = 20  # the deepest legal value lies eight deep
NODES_MAX = 100_000  # values in one file; an honest matrix has a few thousand

# a list of 65,536 hosts with eight ports and ten cards each; one of 4,096 takes some seconds
LIST_SIZE_MAX = 32 * 1024 * 1024
LIST_NODES_MAX = 10_000_000

Tree = dict[str, "Tree"] | list["Tree"] | str | None
Path = tuple[str | int, ...]


@dataclass
class Located:
    """A tree of text, with the file and the line (from 1) of the key of each path."""

    tree: Tree
    places: dict[Path, tuple[str, int]] = field(default_factory=dict)
    borrowed: dict[Path, Path] = field(default_factory=dict)  # path -> path of the text it copies
    overrides: list[Path] = field(default_factory=list)  # keys of overlays that stand in the base

    def find_place(self, path: Path) -> tuple[str, str]:
        """Return (file, "line N, field a.b[0]") of a path, or of its closest parent with a line."""
        for end in range(len(path), -1, -1):
            lender = next((b for a, b in self.borrowed.items() if path[: len(a)] == a), ())
            for written in (path[:end], (*lender, *path[len(lender) : end])):
                if written in self.places:
                    source, line = self.places[written]
                    return source, f"line {line}" + (f", field {format_path(path)}" if path else "")
        return "", f"field {format_path(path)}"

    def find_line(self, path: Path) -> tuple[str, int]:
        """Return (file, line) of a path, or of its closest parent with a line."""
        source, where = self.find_place(path)
        number = where.removeprefix("line ").partition(",")[0]
        return source, int(number) if number.isdecimal() else 0

    def build_error(self, path: Path, problem: str, remedy: str) -> InputError:
        source, where = self.find_place(path)
        return InputError(source, where, problem, remedy)

    def build_model_error(self, error: ValidationError, remedy: str) -> InputError:
        """Return the error for the first fault of a record.

        It omits the value, which may be a secret.
        """
        first = error.errors(include_input=False, include_url=False)[0]
        path: Path = tuple(p for p in first["loc"] if isinstance(p, str | int))
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            problem = "there is no such field"
        return self.build_error(path, problem, remedy)


def format_path(path: Path) -> str:
    """Return a path as text: ("edges", "nic.cx7", 0, "to") becomes "edges.'nic.cx7'[0].to"."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (f"'{part}'" if "." in part else part)
    return text


def load(source: str, text: str, size_max: int = SIZE_MAX, nodes_max: int = NODES_MAX) -> Located:
    """Read one document. Raises InputError with file, line, problem and remedy."""
    if len(text) > size_max:
        raise InputError(
            source, "", f"the file is larger than {size_max} bytes", "Is it the right file?"
        )
    reader = _Reader(source, nodes_max)
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return reader.read_document(iter(events))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"this is not YAML: {error.problem or error.context}"
        raise InputError(source, where, problem, "Correct the syntax.") from None
    except yaml.YAMLError as error:
        problem = f"this is not YAML: {' '.join(str(error).split())[:200]}"
        raise InputError(source, "", problem, "Save it as plain UTF-8 text.") from None


class _Reader:
    """Builds the tree from parser events; the limits are checked before a value is built."""

    def __init__(self, source: str, nodes_max: int) -> None:
        self.source = source
        self.nodes_max = nodes_max
        self.out = Located(None)
        self.count = 0

    def read_document(self, events: Iterator[yaml.Event]) -> Located:
        """Return the only document of a stream."""
        has_document = False
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if has_document:
                    self._refuse(event, "a second document", "Keep one document in each file.")
                has_document = True
                self.out.tree = self._read_value(events, next(events), (), 0)
        if not has_document:  # an empty file: an error about it names the file nevertheless
            self.out.places[()] = (self.source, 1)
        return self.out

    def _read_value(
        self, events: Iterator[yaml.Event], event: yaml.Event, path: Path, depth: int
    ) -> Tree:
        self._check(event, depth)
        self.out.places.setdefault(path, (self.source, _line(event)))
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_mapping(events, path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Tree] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self._read_value(events, event, (*path, len(items)), depth + 1))
            return items
        assert isinstance(event, yaml.ScalarEvent)
        plain = event.implicit[0]  # written without quotes
        return None if plain and event.value in {"", "~", "null"} else str(event.value)

    def _read_mapping(
        self, events: Iterator[yaml.Event], path: Path, depth: int
    ) -> dict[str, Tree]:
        items: dict[str, Tree] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            self._check(event, depth)
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, "a key that is no text", "Write `name: value`.")
            key = str(event.value)
            if key == "<<":
                self._refuse(event, "a merge key (<<)", "Write the values out.")
            if key in items:
                first = self.out.places[(*path, key)][1]
                self._refuse(
                    event, f"the key '{key}' stands here a second time", f"See line {first}."
                )
            self.out.places[(*path, key)] = (self.source, _line(event))
            items[key] = self._read_value(events, next(events), (*path, key), depth + 1)
        return items

    def _check(self, event: yaml.Event, depth: int) -> None:
        self.count += 1
        if self.count > self.nodes_max:
            self._refuse(event, f"more than {self.nodes_max} values", "Is it the right file?")
        if depth > DEPTH_MAX:
            self._refuse(event, f"more than {DEPTH_MAX} levels", "Is it the right file?")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            self._refuse(event, "anchors and aliases are not read here", "Write the value out.")
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            self._refuse(event, f"the tag {tag} is not read here", "Remove it.")

    def _refuse(self, event: yaml.Event, problem: str, remedy: str) -> NoReturn:
        raise InputError(self.source, f"line {_line(event)}", problem, remedy)


def _line(event: yaml.Event) -> int:
    """Return the line of an event, counted from 1."""
    return event.start_mark.line + 1 if event.start_mark else 0
