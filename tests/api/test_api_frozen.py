"""/v1 is frozen: no client of the recorded document finds anything gone or closed.

`RECORD_OPENAPI=1` records additions, which are promised from then on; it refuses a document that
breaks the recorded one.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_document import read_document
from compatibility import list_breaks, reduce

FILE = Path(__file__).parent / "openapi-v1.json"
NOW = reduce(read_document())
Change = Callable[[dict[str, Any]], Any]


def test_nothing_of_the_frozen_api_is_gone_or_closed():
    frozen = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else NOW
    breaks = list_breaks(frozen, NOW)
    assert breaks == [], "docs/api.md, Compatibility: add beside it, deprecate, remove in /v2"
    if os.environ.get("RECORD_OPENAPI"):
        FILE.write_text(json.dumps(NOW, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def operation(document: dict[str, Any], path: str = "/v1/pins", verb: str = "put") -> Any:
    return document["paths"][path][verb]


def schema(document: dict[str, Any], name: str) -> Any:
    return document["components"]["schemas"][name]


def put(value: dict[str, Any], name: str, new: Any) -> None:
    value[name] = new


BREAKING: dict[str, tuple[Change, str]] = {
    "a path": (lambda d: d["paths"].pop("/v1/pins"), "GET /v1/pins: it is gone"),
    "a verb": (lambda d: d["paths"]["/v1/pins"].pop("put"), "PUT /v1/pins: it is gone"),
    "an event": (lambda d: d["webhooks"].pop("case_opened"), "event case_opened: it is gone"),
    "an operation's name": (lambda d: put(operation(d), "operationId", "pin"), "operationId"),
    "a role": (lambda d: operation(d, verb="get")["x-roles"].remove("viewer"), "role viewer"),
    "a parameter": (
        lambda d: operation(d, "/v1/nodes", "get")["parameters"].pop(0),
        "the parameter limit is gone",
    ),
    "a parameter's limit": (
        lambda d: put(operation(d, "/v1/nodes", "get")["parameters"][0]["schema"], "maximum", 9),
        "maximum is 9",
    ),
    "a required parameter": (
        lambda d: operation(d)["parameters"].append(
            {"name": "x", "in": "query", "required": True, "schema": {"type": "string"}}
        ),
        "the new parameter x is required",
    ),
    "a media type": (
        lambda d: operation(d)["requestBody"]["content"].pop("application/json"),
        "it takes no body as application/json",
    ),
    "an answer": (lambda d: operation(d)["responses"].pop("202"), "no longer answers 202"),
    "a field of an answer": (
        lambda d: schema(d, "NodeView")["properties"].pop("tenant"),
        "items[].tenant: it is gone",
    ),
    "a field of a body": (
        lambda d: schema(d, "NewPin")["properties"].pop("reason"),
        "body.reason: it is gone",
    ),
    "a required field of a body": (
        lambda d: schema(d, "NewPin")["required"].append("until"),
        "body.until: it is required",
    ),
    "a field that may be missing": (
        lambda d: schema(d, "NodeView")["required"].remove("state"),
        "items[].state: it may be missing",
    ),
    "a value of an enumeration": (
        lambda d: schema(d, "State")["enum"].remove("released"),
        "the value 'released' is gone",
    ),
    "another type in an answer": (
        lambda d: put(schema(d, "NodeView")["properties"], "attempts", {"type": "string"}),
        "items[].attempts: its type was integer, and is string",
    ),
    "null in an answer": (
        lambda d: put(
            schema(d, "NodeView")["properties"],
            "note",
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        "items[].note: may be null now",
    ),
    "a body without null": (
        lambda d: put(schema(d, "Wanted")["properties"], "nodes", {"type": "integer"}),
        "body.nodes: takes no null now",
    ),
    "a longer least": (
        lambda d: put(schema(d, "NewPin")["properties"]["reason"], "minLength", 5),
        "body.reason: minLength is 5",
    ),
    "a pattern": (
        lambda d: put(schema(d, "NewPin")["properties"]["reason"], "pattern", "^a"),
        "body.reason: pattern is ^a",
    ),
    "a field of an event": (
        lambda d: schema(d, "CaseDeferred")["properties"].pop("until"),
        "event case_deferred",
    ),
}
HARMLESS: dict[str, Change] = {
    "a path": lambda d: put(d["paths"], "/v1/more", copy.deepcopy(d["paths"]["/v1/pins"])),
    "a field of an answer": lambda d: put(
        schema(d, "NodeView")["properties"], "more", {"type": "string"}
    ),
    "an optional field of a body": lambda d: put(
        schema(d, "NewPin")["properties"], "more", {"type": "string"}
    ),
    "a value of an enumeration": lambda d: schema(d, "State")["enum"].append("resting"),
    "a wider body": lambda d: put(schema(d, "NewPin")["properties"]["reason"], "maxLength", 999),
    "a role": lambda d: operation(d)["x-roles"].append("approver"),
    "a required field of an answer": lambda d: schema(d, "OperationView")["required"].append("x"),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_break_is_found(name: str) -> None:
    change, words = BREAKING[name]
    changed = copy.deepcopy(NOW)
    change(changed)
    breaks = list_breaks(NOW, changed)
    assert any(words in line for line in breaks), breaks


@pytest.mark.parametrize("name", HARMLESS)
def test_an_addition_breaks_nothing(name: str) -> None:
    changed = copy.deepcopy(NOW)
    HARMLESS[name](changed)
    assert list_breaks(NOW, changed) == []
