"""The command of each route, and the description that the command line loads.

The command line is a client: it reads the routes from a file that is generated from the table here
(route_commands.csv), so that it starts without loading a server. With RECORD_GOLDEN=1
`python -m pytest tests/cli/test_surface.py`, which holds the two equal, writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from provisioner.api.openapi import WORDS
from provisioner.api.route import Dry, Route
from provisioner.model.shipped_tables import read_table

# ------------------------------------------------------------------------------
# Words of the command line that the routes do not have: options, and names for examples.


# fields whose text is in a file, and the options that name it
FILES = {
    "thresholds": "--thresholds",
    "ca": "--ca-file",
    "expected": "--file",
    "secret": "--secret-file",
    "user_data": "--user-data-file",
}
# options that are repeated have the name of one of their values
SINGULAR = {
    "kinds": "--kind",
    "nodes": "--node",
    "cards": "--card",
    "tags": "--tag",
    "networks": "--range",
    "racks": "--rack",
    "logins": "--login",
    "releases": "--release",
    "tenants": "--for-tenant",
}
_WORDS = read_table("provisioner.api", "path_words.csv")
EXAMPLES = {row["word"]: row["example"] for row in _WORDS if row["example"]}


SCALARS: Mapping[type, str] = {str: "text", int: "integer", float: "number", bool: "flag"}
PAGED = ("limit", "cursor", "where")  # every list command has its own options for these


@dataclass(frozen=True)
class Command:
    """A route as a command. `words`: fields of the body that follow the path's as arguments."""

    name: str  # "node reclaim"
    words: tuple[str, ...] = ()
    destructive: bool = False  # it shows its effects, and asks
    # the arguments after the name; "": built from the path and the route's example
    example: str = ""


_ROWS = read_table("provisioner.api", "route_commands.csv")


def _load() -> Mapping[str, Command]:
    return {
        row["operation"]: Command(
            row["command"], tuple(row["words"].split()), row["destructive"] == "yes", row["example"]
        )
        for row in _ROWS
        if row["command"]
    }


COMMANDS = _load()
# pages and pictures for a browser, its cookie, answers that a local command shows better (`image
# upload` reads a file), and one of several ways: `tenant apply` merges, `node tag` replaces, `pin
# set` names what it pins
WITHOUT_COMMAND = frozenset(row["operation"] for row in _ROWS if not row["command"])


def describe(routes: Sequence[Route]) -> dict[str, dict[str, Any]]:
    """Return the description of each command for the command line, as JSON's values."""
    described = {}
    for route in routes:
        if route.name not in WITHOUT_COMMAND:
            command = COMMANDS[route.name]
            described[command.name] = _describe(route, command)
    return described


def _describe(route: Route, command: Command) -> dict[str, Any]:
    answer = next(iter(route.answers.values()))
    items = answer.model_fields.get("items")
    query = {n: f for n, f in route.query.model_fields.items() if route.query is not Dry}
    fields = route.query.model_fields
    description: dict[str, Any] = {
        "name": route.name,
        "verb": route.verb,
        "path": route.path,
        "summary": route.summary,
        "roles": sorted(r.value for r in route.roles),
        "words": [(w, WORDS[w], True) for w in re.findall(r"\{(\w+)\}", route.path)],
        "query": [_option(n, f) for n, f in query.items() if n not in PAGED],
        "example": f"{command.name} {command.example or _example(route)}".strip(),
    }
    body = {} if route.body is None else dict(route.body.model_fields)
    named = {**query, **body}
    description["words"] += [
        (n, named[n].description or "", named[n].is_required()) for n in command.words
    ]
    if route.body is not None:
        description["body"] = [_option(n, f) for n, f in body.items()]
    if items is not None and route.verb == "GET":
        description["list"] = _row_fields(items)
        description["paged"] = "cursor" in fields
        description["filters"] = "where" in fields
        description["limits"] = "limit" in fields
    for name, holds in (
        ("changes", route.changes),
        ("recorded", route.recorded),
        ("destructive", command.destructive),
        ("entity", route.entity and route.changes),
    ):
        if holds:
            description[name] = True
    if route.media != "application/json":
        description["media"] = route.media
    return description


def _example(route: Route) -> str:
    return " ".join(EXAMPLES[w] for w in re.findall(r"\{(\w+)\}", route.path))


def _row_fields(items: FieldInfo) -> list[str]:
    """Return the names of a list's columns, in the order of the record."""
    (row, *_) = get_args(items.annotation)
    return list(row.model_fields) if isinstance(row, type) and issubclass(row, BaseModel) else []


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    kind, many, choices = _kind(field.annotation)
    option: dict[str, Any] = {"name": name, "kind": kind, "help": field.description or ""}
    if many:
        option["many"] = True
        if name in SINGULAR:
            option["flag"] = SINGULAR[name]
    if choices:
        option["choices"] = choices
    if field.is_required():
        option["required"] = True
    if name in FILES:
        option |= {"kind": "file", "flag": FILES[name]}
    if choices == ["true", "false"]:
        option["kind"] = "flag"
        del option["choices"]
    if name in ("until", "begins_at", "ends_at"):
        option["kind"] = "time"
    return option


def _kind(annotation: Any) -> tuple[str, bool, list[str]]:
    """Return the type of a value on the command line, whether it repeats, and the choices."""
    origin = get_origin(annotation)
    parts = [a for a in get_args(annotation) if a is not NoneType]
    if origin is Annotated or (origin in (Union, UnionType) and len(parts) == 1):
        return _kind(parts[0])
    if origin in (tuple, list) and _kind(parts[0])[0] == "text":
        return "text", True, []
    if origin is Literal:
        return "text", False, [str(word) for word in get_args(annotation) if word]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "text", False, [word.value for word in annotation]
    return SCALARS.get(annotation, "document"), False, []
