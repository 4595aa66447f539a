"""The part of NetBox' OpenAPI document that we use: bodies that we send, parameters of queries.

Of NetBox 4.7.3. `make test-netbox` compares it; with NETBOX_RECORD=1 it is written anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "openapi.json"
PATHS = {
    "/api/dcim/sites/": (),
    "/api/dcim/manufacturers/": (),
    "/api/dcim/device-types/": (),
    "/api/dcim/device-roles/": (),
    "/api/dcim/racks/": ("site",),
    "/api/dcim/devices/": ("site", "name", "id"),
    "/api/dcim/interfaces/": ("device_id",),
    "/api/dcim/modules/": ("device_id",),
    "/api/dcim/cables/": ("device_id", "device"),
    "/api/ipam/ip-addresses/": ("device_id", "address"),
    "/api/extras/tags/": ("slug",),
}
WORDS = {"description", "title", "x-spec-enum-id", "example"}  # for people


def subset(document: dict[str, Any]) -> dict[str, Any]:
    """{"paths": {path: {"get": names, "post": schema, "patch": schema}}, "components": schemas}."""
    found: dict[str, Any] = {"paths": {}, "components": {}}
    for path, used in PATHS.items():
        there = document["paths"][path]
        known = {p["name"] for p in there["get"]["parameters"]}
        entry: dict[str, Any] = {"get": sorted({*used, "limit", "offset"} & known)}
        for method in ("post", "patch"):
            body = there[method]["requestBody"]["content"]["application/json"]["schema"]
            entry[method] = _plain(body)
            _follow(body, document["components"]["schemas"], found["components"])
        found["paths"][path] = entry
    return found


def _follow(schema: Any, all_: dict[str, Any], found: dict[str, Any]) -> None:
    """Every component that a schema leads to."""
    if isinstance(schema, list):
        for part in schema:
            _follow(part, all_, found)
    if not isinstance(schema, dict):
        return
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name and name not in found:
        found[name] = _plain(all_[name])
        _follow(all_[name], all_, found)
    for part in schema.values():
        _follow(part, all_, found)


def _plain(schema: Any) -> Any:
    """Without words for people, and with OpenAPI 3.0's `nullable` as JSON Schema has it."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # a property may be called "description": only texts are words for people
    kept = {k: _plain(v) for k, v in schema.items() if k not in WORDS or not isinstance(v, str)}
    if kept.pop("nullable", False):
        return {"anyOf": [kept, {"type": "null"}]}
    return kept
