"""Revisions of an NVUE configuration: changes on their way, and what becomes of the tree."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from frr_rendering import at

Tree = dict[str, Any]


@dataclass
class Revision:
    """Changes that nobody asked to be applied yet, and how their applying went."""

    changes: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)
    state: str = "pending"
    issue: Tree = field(default_factory=dict)

    def shown(self) -> Tree:
        return {"state": self.state, "transition": {"issue": self.issue, "progress": ""}}


def changed(tree: Tree, revision: Revision) -> Tree:
    """The configuration with a revision's changes."""
    after = copy.deepcopy(tree)
    for path, value in revision.changes:
        inner = after
        for word in path[:-1] if value is None else path:
            inner = inner.setdefault(word, {})
        if value is None:
            inner.pop(path[-1], None)
        else:
            _merge(inner, value)
    return after


def invalid(tree: Tree) -> str:
    """Why NVUE would refuse it; "" if it would not."""
    for name, entry in at(tree, "interface").items():
        vrf = at(entry, "ip").get("vrf", "default")
        if vrf not in at(tree, "vrf"):
            return f"interface {name}: vrf {vrf} does not exist"
    long = [v for v in at(tree, "vrf") if len(v) > 15]
    return f"VRF name {long[0]} is too long" if long else ""


def _merge(tree: Tree, more: Tree) -> None:
    for key, value in more.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            inner = tree.get(key)
            if not isinstance(inner, dict):
                inner = tree[key] = {}
            _merge(inner, value)
        else:
            tree[key] = value
