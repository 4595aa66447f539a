"""Records to text and back. Every record is checked when it is read: a damaged row is `DamagedRow`,
no guess.

A device's text may hold characters that a database refuses (NUL in PostgreSQL) or that UTF-8 cannot
express (lone surrogates); `clean` replaces both before they reach a column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.ports.errors import DamagedRow

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: str, where: str) -> Model:
    """Return the record in `body`; `DamagedRow` names `where` ("nodes, n7") if it is not one."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or model.__name__
        raise DamagedRow(where, f"{field}: {problem['msg']}") from None


# Records are frozen and hold only frozen values, so that the same text may give the same object.
# Bounds: 8192 nodes are 256 scalable units of 32 (some 60 MB); an inventory of a full HGX node is
# some 200 KB, so that 512 of them stay below 100 MB.
@lru_cache(maxsize=8192)
def parse_node(body: str) -> Node:
    """Return a node; parsed once for each distinct text."""
    return parse(Node, body, "nodes")


@lru_cache(maxsize=512)
def parse_inventory(body: str) -> Inventory:
    """Return an inventory; parsed once for each distinct text."""
    return parse(Inventory, body, "inventories")


def clean(text: str) -> str:
    """Return the text as every database can store it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def canonical(value: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys in pure ASCII: equal content, equal text, on every machine.

    Records inside are dumped; any other value without a JSON form is a `TypeError`, our bug.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_dump
    )


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the inverse of `canonical`; `DamagedRow` if the text is not a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DamagedRow(where, "it is no JSON object")
    return value


def _dump(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")
