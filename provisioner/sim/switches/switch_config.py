"""A switch's configuration as a tree: merges, revisions, and NVUE's validation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]

VRF_NAME_MAX = 15  # characters (docs/sources/switches.md#vrf)
VRFS_MAX = 255
# Cumulus Linux guide, "Interface Configuration and Management", "Interface Descriptions": at most
# 256 characters, neither apostrophes nor non-ASCII ones
DESCRIPTION_MAX = 256


@dataclass
class Revision:
    """Pending changes: operations in order, each (path, value); None deletes."""

    id: str
    changes: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)
    state: str = "pending"
    issue: Tree = field(default_factory=dict)
    progress: str = ""


def find_problems(tree: Tree, applied: Tree) -> str:
    """NVUE's reason to reject this configuration; "" if it is valid."""
    vrfs = tree.get("vrf")
    interfaces = tree.get("interface")
    if not isinstance(vrfs, dict) or not isinstance(interfaces, dict):
        return "the configuration has no interfaces or no VRFs"
    if len(vrfs) > VRFS_MAX:
        return f"more than {VRFS_MAX} VRFs"
    if long := [v for v in vrfs if len(v) > VRF_NAME_MAX]:
        return f"VRF name {long[0]} is longer than {VRF_NAME_MAX} characters"
    for name, entry in interfaces.items():
        if name not in applied["interface"]:
            return f"interface {name} does not exist"
        address = entry.get("ip", {}) if isinstance(entry, dict) else {}
        if address.get("vrf", "default") not in vrfs:
            return f"interface {name}: vrf {address['vrf']} does not exist"
        text = entry.get("description", "") if isinstance(entry, dict) else ""
        if not isinstance(text, str) or not text.isascii() or "'" in text:
            return f"interface {name}: the description has characters that are not parsed"
        if len(text) > DESCRIPTION_MAX:
            return f"interface {name}: the description is longer than {DESCRIPTION_MAX} characters"
    return ""


def image_version(body: bytes) -> str | None:
    """The version inside a simulated switch image, or None for any other file."""
    try:
        image = json.loads(body)
        contents = image["contents"]
        if image["simulated"] is True and image["target"] == "switch.os" and len(contents) == 1:
            return str(next(iter(contents.values())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None


def merge_at(tree: Tree, path: tuple[str, ...], value: Any) -> None:
    """Merge `value` into the tree at `path`; None deletes the subtree."""
    node = tree
    for key in path[:-1]:
        inner = node.get(key)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = node[key] = {}
        node = inner
    if not path:
        _merge(tree, value if isinstance(value, dict) else {})
    elif value is None:
        node.pop(path[-1], None)
    elif isinstance(value, dict) and isinstance(node.get(path[-1]), dict):
        _merge(node[path[-1]], value)
    else:
        node[path[-1]] = value


def _merge(tree: Tree, change: Tree) -> None:
    for key, value in change.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            inner = tree.get(key)
            if not isinstance(inner, dict):
                inner = tree[key] = {}
            _merge(inner, value)
        else:
            tree[key] = value
