"""The two dialects of NVUE: up to Cumulus Linux 5.14, and from 5.15 on.

Bodies are written in the older dialect and spelled for the release that runs just before they are
sent; documents are read into the older one, so that an upgrade over the border changes no digest.
source: Cumulus Linux 5.15 user guide, "New and Changed NVUE Commands", table of changed values
(CumulusNetworks/docs, content/cumulus-linux-515/Whats-New/New-and-Changed-NVUE-Commands.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

FIRST_WITH_STATE = (5, 15)
DEPTH_MAX = 16  # levels of a document that are respelled; the longest row has nine
Path = tuple[str, ...]
_FAMILY = ("vrf", "*", "router", "bgp", "address-family", "*")
# switches of the older dialect; `enable` becomes `state`, other names stay
SWITCHES: tuple[Path, ...] = (
    ("router", "bgp", "enable"),
    ("router", "bgp", "graceful-shutdown"),
    ("router", "bgp", "wait-for-install"),
    ("router", "adaptive-routing", "enable"),
    ("router", "adaptive-routing", "link-utilization-threshold"),
    ("interface", "*", "router", "adaptive-routing", "enable"),
    ("qos", "roce", "enable"),
    ("evpn", "enable"),
    ("evpn", "multihoming", "enable"),
    ("nve", "vxlan", "mac-learning"),
    ("nve", "vxlan", "arp-nd-suppress"),
    ("vrf", "*", "router", "bgp", "enable"),
    (*_FAMILY, "enable"),
    (*_FAMILY, "redistribute", "*", "enable"),
    (*_FAMILY, "route-import", "from-vrf", "enable"),
    (*_FAMILY, "route-export", "to-evpn", "enable"),
    ("vrf", "*", "evpn", "prefix-routes-only"),
)
_NEWER = {"on": "enabled", "off": "disabled"}
_OLDER = {new: old for old, new in _NEWER.items()}


def encode_body(body: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, Any]:
    """Return a body of the older dialect as the release takes it."""
    if release[:2] < FIRST_WITH_STATE:
        return dict(body)
    return _spell(body, (), _encode_switch)


def encode_switch(leaf: Mapping[str, str], release: tuple[int, ...]) -> dict[str, str]:
    """Return the leaf of one switch of the older dialect as the release takes it."""
    if release[:2] < FIRST_WITH_STATE:
        return dict(leaf)
    return {"state" if k == "enable" else k: _NEWER[v] for k, v in leaf.items()}


def read_release(version: str) -> tuple[int, ...]:
    """Return (5, 15) of "5.15.0.0020"; () of a version that is none: the older dialect."""
    numbers = re.match(r"(\d{1,3})\.(\d{1,3})", version)
    return () if numbers is None else (int(numbers[1]), int(numbers[2]))


def decode_document(document: Any, path: Path) -> Any:
    """Return what a switch answered at `path` in the older dialect, whichever it speaks."""
    return _spell(document, path, _decode_switch) if isinstance(document, Mapping) else document


def _encode_switch(path: Path, value: Any) -> tuple[str, Any]:
    name = "state" if path[-1] == "enable" else path[-1]
    known = isinstance(value, str) and _is_switch(path)
    return (name, _NEWER.get(value, value)) if known else (path[-1], value)


def _decode_switch(path: Path, value: Any) -> tuple[str, Any]:
    older = (*path[:-1], "enable") if path[-1] == "state" else path
    known = isinstance(value, str) and _is_switch(older)
    return (older[-1], _OLDER.get(value, value)) if known else (path[-1], value)


def _is_switch(path: Path) -> bool:
    return any(
        len(row) == len(path) and all(r in ("*", p) for r, p in zip(row, path, strict=True))
        for row in SWITCHES
    )


def _spell(
    tree: Mapping[str, Any], path: Path, change: Callable[[Path, Any], tuple[str, Any]]
) -> dict[str, Any]:
    if len(path) >= DEPTH_MAX:
        return dict(tree)
    spelled: dict[str, Any] = {}
    for key, value in tree.items():
        below = (*path, key)
        if isinstance(value, Mapping):
            spelled[key] = _spell(value, below, change)
        else:
            name, new = change(below, value)
            spelled[name] = new
    return spelled
