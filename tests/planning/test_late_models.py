"""Records are built at their first use: each of them can be, and none takes megabytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import provisioner.cli.serve.serve  # noqa: F401 (every record that a daemon has)
from provisioner.model.base import Record

# pydantic's engine of regular expressions (Rust's) unfolds these: `[\\w]{1,120}` takes 7 MB
DEAR = re.compile(r"(\\[wsdSWD]|\[\^[^]]*\]|\[[^]]*\\[wsdSWD][^]]*\])\{\d+,(\d+)\}")
REPEATED_MAX = 64


def list_records(kind: type[Record] = Record) -> Iterator[type[Record]]:
    for one in kind.__subclasses__():
        yield one
        yield from list_records(one)


def list_patterns(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for value in schema.values():
            yield from list_patterns(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from list_patterns(value)


def is_dear(pattern: str) -> bool:
    return any(int(found[2]) > REPEATED_MAX for found in DEAR.finditer(pattern))


def test_every_record_can_be_built_and_no_pattern_is_unfolded_to_megabytes() -> None:
    dear = []
    for record in set(list_records()):
        record.model_rebuild()
        core: Any = record.__pydantic_core_schema__
        dear += [(record.__name__, text) for text in list_patterns(core) if is_dear(text)]

    assert dear == []


@pytest.mark.parametrize(
    ("pattern", "dear"),
    [
        (r"^[\w.+-]{1,120}$", True),
        (r"^([^@\s]{1,64}@[^@\s]{1,253})?$", True),
        (r"^(https://\S{1,500})?$", True),
        (r"^[A-Za-z0-9_-]{1,253}$", False),
        (r"^[\w.+-]+$", False),
        (r"^[^\s,;=@]{1,64}$", False),
    ],
)
def test_what_makes_a_pattern_dear(pattern: str, dear: bool) -> None:
    assert is_dear(pattern) is dear
