"""What NVUE refuses in a request body, by release: names and values of switches.

source: Cumulus Linux 5.15 user guide, "New and Changed NVUE Commands" (CumulusNetworks/docs,
content/cumulus-linux-515/Whats-New/New-and-Changed-NVUE-Commands.md, read 2026-11-23). NVIDIA
publishes the OpenAPI document of each release on its API site; only pages of it were at hand, so
that these rows are written from the guide's table. Paths that no row names are not validated.
Assumed: a refusal is HTTP 400, and at its first start a release takes over a startup file of the
older dialect in its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Tree = dict[str, Any]
NEW_DIALECT = (5, 15)
ANY = "*"


class Row(NamedTuple):
    """One switch: its path, its name up to 5.14 and its name from 5.15 on."""

    path: tuple[str, ...]
    before: str
    since: str


FAMILY = ("vrf", ANY, "router", "bgp", "address-family", ANY)
ROWS = (
    Row(("router", "bgp"), "enable", "state"),
    Row(("router", "bgp"), "graceful-shutdown", "graceful-shutdown"),
    Row(("router", "adaptive-routing"), "enable", "state"),
    Row(("qos", "roce"), "enable", "state"),
    Row(("evpn",), "enable", "state"),
    Row(("vrf", ANY, "router", "bgp"), "enable", "state"),
    Row(FAMILY, "enable", "state"),
    Row((*FAMILY, "redistribute", ANY), "enable", "state"),
    Row((*FAMILY, "route-import", "from-vrf"), "enable", "state"),
    Row((*FAMILY, "route-export", "to-evpn"), "enable", "state"),
)
BEFORE = ("on", "off")
SINCE = ("enabled", "disabled")


def find_violation(version: str, parts: tuple[str, ...], body: Tree) -> str:
    """Why this release refuses the body of a PATCH at this path; "" if it takes it."""
    new = parse_release(version) >= NEW_DIALECT
    for path, key, value in _walk(parts, body):
        for row in ROWS:
            if not _fits(row.path, path) or key not in (row.before, row.since):
                continue
            name, allowed = (row.since, SINCE) if new else (row.before, BEFORE)
            if key != name:
                return f"{'/'.join(path)}: {key} is not a property"
            if value is not None and value not in allowed:
                return f"{'/'.join((*path, key))}: {value} is not one of {', '.join(allowed)}"
    return ""


def take_over(version: str, tree: Tree) -> Tree:
    """The configuration as this release starts with it."""
    if parse_release(version) < NEW_DIALECT:
        return tree
    return _take_over((), tree)


def _take_over(path: tuple[str, ...], tree: Tree) -> Tree:
    taken: Tree = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            taken[key] = _take_over((*path, key), value)
            continue
        row = next((r for r in ROWS if r.before == key and _fits(r.path, path)), None)
        if row is None or value not in BEFORE:
            taken[key] = value
        else:
            taken[row.since] = SINCE[BEFORE.index(value)]
    return taken


def parse_release(version: str) -> tuple[int, int]:
    """(5, 15) of "5.15.0.0020"."""
    major, minor = [*version.split("."), "0", "0"][:2]
    return int(major), int(minor)


def _fits(row: tuple[str, ...], path: tuple[str, ...]) -> bool:
    pairs = zip(row, path, strict=False)
    return len(row) == len(path) and all(r in (ANY, p) for r, p in pairs)


def _walk(path: tuple[str, ...], body: Tree) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _walk((*path, key), value)
        else:
            yield path, key, value
