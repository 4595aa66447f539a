"""The OpenAPI document explains itself: every field has a meaning, every enumeration a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api_document import read_document

from provisioner.api.openapi import list_fields, read_meanings

DOCUMENT = read_document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_every_field_and_every_parameter_has_a_meaning():
    without = [f"{r}.{f}" for r, f, s in list_fields(SCHEMAS) if not s.get("description")]
    without += [
        f"{route['operationId']} {parameter['name']}"
        for path in DOCUMENT["paths"].values()
        for route in path.values()
        for parameter in route["parameters"]
        if not parameter.get("description")
    ]
    assert without == []


def test_every_meaning_is_used_and_is_a_sentence():
    meanings = read_meanings()
    used = {
        name
        for record, field, schema in list_fields(SCHEMAS)
        for name in [f"{record}.{field}" if f"{record}.{field}" in meanings else field]
        if meanings.get(name) == schema["description"]
    }
    assert sorted(set(meanings) - used) == []
    assert [n for n, text in meanings.items() if not (text[0].isupper() and text[-1] == ".")] == []


def list_enumerations(value: Any, where: str) -> Iterator[str]:
    """Yield the places of enumerations of several words within a value."""
    if isinstance(value, dict):
        if len(value.get("enum", ())) > 1:
            yield where
        for name, inner in value.items():
            yield from list_enumerations(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from list_enumerations(inner, where)


def test_every_enumeration_of_an_answer_is_a_schema_of_its_own():
    within = [
        place
        for name, schema in SCHEMAS.items()
        for place in list_enumerations(schema.get("properties", {}), name)
    ]
    assert within == []


def test_states_are_enumerations():
    for record, field in (
        ("NodeView", "state"), ("NodeView", "placement"), ("OperationView", "state"),
        ("CampaignLine", "state"), ("CaseLine", "stage"), ("Action", "status"),
        ("KeyView", "standing"), ("AgentView", "state"), ("Health", "level"),
    ):  # fmt: skip
        name = SCHEMAS[record]["properties"][field]["$ref"].rpartition("/")[2]
        assert len(SCHEMAS[name]["enum"]) > 2, (record, field)


def list_references(value: Any) -> Iterator[str]:
    """Yield the references within a value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from list_references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from list_references(inner)


def test_every_reference_leads_to_a_schema_of_the_document():
    """A generator leaves out an operation with a reference that leads nowhere."""
    places = {f"#/components/schemas/{name}" for name in SCHEMAS}

    assert set(list_references(DOCUMENT)) - places == set()
