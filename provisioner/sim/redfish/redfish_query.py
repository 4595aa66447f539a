"""Query parameters: $expand, $select, $top and $skip (DSP0266 clause 7.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provisioner.sim.redfish.redfish_answers import Answer, Json, make_error
from provisioner.sim.redfish.redfish_tree import Tree
from provisioner.sim.redfish.shape import Shape


class QueryFault(Exception):
    """A query that cannot be answered; carries the error answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def cut_page(value: Json, path: str, query: Mapping[str, str], page_max: int) -> Json:
    """One page of a collection with its nextLink."""
    members = value["Members"]
    skip = _number(query, "$skip", query.get("$skiptoken", "0"))
    top = _number(query, "$top", str(len(members)))
    size = min(top, page_max) if page_max else top
    if not skip and size >= len(members):
        return value
    part = {**value, "Members": members[skip : skip + size]}
    if skip + size < min(len(members), skip + top):
        part["Members@odata.nextLink"] = f"{path}?$skip={skip + size}"
    return part


def _number(query: Mapping[str, str], name: str, default: str) -> int:
    text = query.get(name, default)
    if not text.isdigit():
        if text.lstrip("-").isdigit():
            raise QueryFault(make_error(400, "QueryParameterOutOfRange", text, name, ">= 0"))
        raise QueryFault(make_error(400, "QueryParameterValueTypeError", text, name))
    return int(text)


def expand_links(value: Json, option: str, tree: Tree, shape: Shape) -> Json:
    """The resource with its links expanded, up to the service's limit."""
    match = re.fullmatch(r"([.~*])(?:\(\$levels=(\d+)\))?", option)
    if not match:
        raise QueryFault(make_error(400, "QueryParameterValueTypeError", option, "$expand"))
    levels = min(int(match.group(2) or 1), shape.expand_levels)
    kind = match.group(1)
    return {
        key: part if _skipped(kind, key) else _whole(part, levels, kind, tree, shape)
        for key, part in value.items()
    }


def _skipped(kind: str, key: str) -> bool:
    return (kind == "." and key == "Links") or (kind == "~" and key != "Links")


def _whole(value: Any, levels: int, kind: str, tree: Tree, shape: Shape) -> Any:
    """`value` with its references resolved; `kind` selects them."""
    if isinstance(value, list):
        return [_whole(v, levels, kind, tree, shape) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"@odata.id"}:
        return {
            k: v if kind == "." and k == "Links" else _whole(v, levels, kind, tree, shape)
            for k, v in value.items()
        }
    resource = tree.find(value["@odata.id"]) if levels > 0 else None
    linked = resource.read() if resource and resource.read else None
    if linked is None:
        return value
    linked = {k: v for k, v in linked.items() if k not in shape.expand_drops}
    if levels == 1:
        return linked
    return {
        k: v if _skipped(kind, k) else _whole(v, levels - 1, kind, tree, shape)
        for k, v in linked.items()
    }


def select(value: Json, names: str) -> Json:
    """The named properties, and the annotations that every resource needs."""
    selected = {name.strip().partition("/")[0] for name in names.split(",")}
    return {k: v for k, v in value.items() if k in selected or k.startswith("@odata")}
