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
    # source: NVUE reference, "Adaptive Routing" (docs.nvidia.com, read 2026-11-28)
    Row(("interface", ANY, "router", "adaptive-routing"), "enable", "state"),
    Row(("qos", "roce"), "enable", "state"),
    Row(("evpn",), "enable", "state"),
    Row(("evpn", "multihoming"), "enable", "state"),
    Row(("interface", ANY, "evpn", "multihoming", "segment"), "enable", "state"),
    Row(("interface", ANY, "bond", "mlag"), "enable", "state"),
    Row(("vrf", ANY, "router", "bgp"), "enable", "state"),
    Row(FAMILY, "enable", "state"),
    Row((*FAMILY, "redistribute", ANY), "enable", "state"),
    Row((*FAMILY, "route-import", "from-vrf"), "enable", "state"),
    Row((*FAMILY, "route-export", "to-evpn"), "enable", "state"),
)


class Command(NamedTuple):
    """An object that only some releases have: from `since` on, and before `until`."""

    path: tuple[str, ...]
    since: tuple[int, int]
    until: tuple[int, int]


# source: NVUE reference, "Syslog" and "TACACS" (release of each command), and the table of "NTP" of
# the guide named above (CumulusNetworks/docs, content/nvue-reference/Set-and-Unset-Commands)
FIRST = (5, 0)
LAST = (99, 0)
COMMANDS = (
    Command(("service", "ntp"), FIRST, NEW_DIALECT),
    Command(("system", "ntp"), NEW_DIALECT, LAST),
    Command(("service", "syslog"), FIRST, (5, 13)),
    Command(("system", "syslog"), (5, 13), LAST),
    Command(("system", "aaa", "tacacs", "enable"), FIRST, (5, 12)),
    Command(("system", "aaa", "tacacs", "server", ANY, "host"), FIRST, (5, 12)),
    Command(("system", "aaa", "tacacs", "server", ANY, "priority"), (5, 12), LAST),
)
BEFORE = ("on", "off")
SINCE = ("enabled", "disabled")


def find_violation(version: str, parts: tuple[str, ...], body: Tree) -> str:
    """Why this release refuses the body of a PATCH at this path; "" if it takes it."""
    release = parse_release(version)
    new = release >= NEW_DIALECT
    for command in COMMANDS:
        if not command.since <= release < command.until and _names(command.path, parts, body):
            return f"{'/'.join(command.path)} is no object of this release"
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
    tree = _move_servers(parse_release(version), tree)
    if parse_release(version) < NEW_DIALECT:
        return tree
    return _take_over((), tree)


def _move_servers(release: tuple[int, int], tree: Tree) -> Tree:
    """Put the servers of services where this release has them."""
    service = dict(tree.get("service", {}))
    system = dict(tree.get("system", {}))
    for name, since in (("ntp", NEW_DIALECT), ("syslog", (5, 13))):
        if name in service and release >= since:
            servers: Tree = {}
            for entry in service.pop(name).values():
                servers |= entry.get("server", {})
            system[name] = {"server": servers}
    moved = {k: v for k, v in (("service", service), ("system", system)) if v or k in tree}
    return {**tree, **moved}


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


def hide_secrets(document: Any) -> Any:
    """The document as NVUE shows it: an asterisk in place of each secret (reference, "TACACS")."""
    if not isinstance(document, dict):
        return document
    return {k: "*" if k == "secret" else hide_secrets(v) for k, v in document.items()}


def _names(path: tuple[str, ...], parts: tuple[str, ...], body: Any) -> bool:
    """Whether a body at `parts` says anything at `path`; to unset what is not there is nothing."""
    if path[: len(parts)] != parts[: len(path)] and parts:
        return False
    trees = [body]
    for step in path[len(parts) :]:
        inner = [tree for tree in trees if isinstance(tree, dict)]
        trees = [v for tree in inner for k, v in tree.items() if step in (ANY, k)]
    return any(tree is not None for tree in trees)


def _fits(row: tuple[str, ...], path: tuple[str, ...]) -> bool:
    pairs = zip(row, path, strict=False)
    return len(row) == len(path) and all(r in (ANY, p) for r, p in pairs)


def _walk(path: tuple[str, ...], body: Tree) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _walk((*path, key), value)
        else:
            yield path, key, value
