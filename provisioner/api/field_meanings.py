"""Meanings of the OpenAPI document's fields: those that no record describes are in `fields.md`.

Most fields of the document belong to records of the domain, which have comments for those who read
the code. People who build on the API read the document: there each field has a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

_ROW = re.compile(r"- `([\w.-]+)`: (.+)")


@cache
def read_meanings() -> Mapping[str, str]:
    """Return the meaning of each field by `field` or `Record.field`."""
    text = resources.files("provisioner.api").joinpath("fields.md").read_text(encoding="utf-8")
    rows = [row for line in text.splitlines() if (row := _ROW.fullmatch(line)) is not None]
    return {row[1]: row[2] for row in rows}


def add_meanings(schemas: Mapping[str, Any]) -> None:
    """Write the meaning of each field that has none into its schema."""
    meanings = read_meanings()
    for record, field, schema in list_fields(schemas):
        text = meanings.get(f"{record}.{field}") or meanings.get(field)
        if text is not None:
            schema.setdefault("description", text)


def list_fields(schemas: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (record, field, schema) of every field."""
    for record, schema in schemas.items():
        for field, inner in schema.get("properties", {}).items():
            yield record, field, inner
