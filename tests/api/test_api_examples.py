"""Examples of the OpenAPI document: every operation has one, and each has the form it shows.

`RECORD_EXAMPLES=1` records the answers of the simulated site anew; those that it cannot give (a
proof, an erasure) were written by hand and stay.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from api_document import read_document
from jsonschema import Draft202012Validator
from served import Served, run
from test_api_routes import path_of, with_campaign_and_case

from provisioner.api import table
from provisioner.api.openapi import FILE
from provisioner.api.route import Route
from provisioner.api.routes.home import Document, Page

DOCUMENT = read_document()
JSON = "application/json"
ROWS_MAX = 2  # of a list
TEXT_MAX = 1100  # characters of a text: the whole matrix is one
ROUTES = {
    f"{r.verb} {r.path}": r
    for r in table.ALL
    if r.media == JSON and not {Document, Page} & set(r.answers.values())
}


def shorten(value: Any) -> Any:
    """Leave some rows of each list of records."""
    if isinstance(value, dict):
        return {name: shorten(inner) for name, inner in value.items()}
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if isinstance(value, list):
        rows = [shorten(inner) for inner in value]
        return rows[:ROWS_MAX] if any(isinstance(row, dict | list) for row in rows) else rows
    return value


def record(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the stored examples with the site's present answers laid over them."""
    examples = dict(stored)

    async def scenario(served: Served) -> None:
        await with_campaign_and_case(served)
        pin = {"scope": "fleet", "release": "spectrum-x-1.3.0", "reason": "the tested release"}
        assert (await served.ask("operator", "PUT", "/pins", pin))[0] == 200
        retried = await served.ask("operator", "POST", "/nodes/su0-n05/retry")
        assert retried[0] == 202
        examples["OperationView"] = retried[1]
        for route in (r for r in ROUTES.values() if r.verb == "GET" and r.roles):
            status, answer = await served.ask("viewer", "GET", path_of(route))
            if status == 200:
                examples[route.answers[200].__name__] = shorten(answer)

    run(scenario)
    return dict(sorted(examples.items()))


def read_examples() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def write_examples(file: Path, examples: dict[str, Any]) -> None:
    file.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def recorded() -> None:
    if os.environ.get("RECORD_EXAMPLES"):
        write_examples(FILE, record(read_examples()))


def operation_of(route: Route) -> Any:
    return DOCUMENT["paths"]["/v1" + route.path][route.verb.lower()]


def check(schema: Any, example: Any) -> None:
    """The example has the form of its schema; times have theirs."""
    whole = {**schema, "components": DOCUMENT["components"]}
    validator = Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert [e.message[:200] for e in validator.iter_errors(example)] == []


@pytest.mark.parametrize("name", ROUTES)
def test_every_operation_has_an_example_of_its_form(name: str) -> None:
    operation = operation_of(ROUTES[name])
    good = [r for s, r in operation["responses"].items() if s.startswith("2")]
    assert good
    for answer in good:
        content = answer["content"][JSON]
        assert "example" in content, f"{name}: RECORD_EXAMPLES=1 records it, or write it by hand"
        check(content["schema"], content["example"])
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        check(content["schema"], content["example"])


def test_no_example_is_of_a_record_that_no_operation_answers() -> None:
    answers = {model.__name__ for route in ROUTES.values() for model in route.answers.values()}
    assert sorted(set(read_examples()) - answers) == []
