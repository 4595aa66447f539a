"""Parses files of /sys and /proc as `grep -H .` prints them, or as a JSON object path -> content.

A file of several lines has one line of output for each. A file that a check needs and does not get
is unreadable; additional files are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import (
    parse_json,
    parse_whole,
    require_object,
    require_text,
    split_lines,
)

# ------------------------------------------------------------------------------
# Names of network interfaces that carry their card's PCI address (systemd.net-naming-scheme(7)):
# `enp60s0np0` is bus 60 (decimal), device 0; `P` precedes the PCI domain.


_INTERFACE = re.compile(r"\b(?:en|ib)(?:P(\d{1,5}))?p(\d{1,3})s(\d{1,2})(?:[fnd]\w{1,12})?\b")
BUS_MAX = 255


def pci_of_interface(text: str) -> str:
    """Return "0000:3c:00" of the first such name in a text; "" without one."""
    if (match := _INTERFACE.search(text)) is None:
        return ""
    domain, bus, device = (int(number or 0) for number in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}" if bus <= BUS_MAX else ""


# ------------------------------------------------------------------------------
# Find the index of a port's RoCE v2 GID, in a shell and in the line that the shell prints.
#
# The index depends on the order in which addresses came to the interface: on mlx5 the first IPv4
# address has 3, an address that is set anew or an interface with IPv6 alone has another one. So it
# is read from sysfs and never assumed. An InfiniBand port needs none. source: Linux
# Documentation/ABI/stable/sysfs-class-infiniband, gid_attrs/types and gids.


NO_GID = "none"
INFINIBAND = "InfiniBand"
# $p: a folder such as /sys/class/infiniband/mlx5_0. $g: the index, "none" or "InfiniBand"; an IPv4
# address (in its IPv6 form) comes before a global IPv6 address, and link-local ones do not count
FIND_GID = (
    f"g={NO_GID}; if grep -qs {INFINIBAND} $p/ports/1/link_layer; then g={INFINIBAND};"
    " else for q in $(grep -ls 'RoCE v2' $p/ports/1/gid_attrs/types/* | sort -V);"
    " do q=${q##*/}; case $(cat $p/ports/1/gids/$q) in"
    " 0000:0000:0000:0000:0000:ffff:*) g=$q; break;; fe80:*) ;;"
    f' *) [ "$g" = {NO_GID} ] && g=$q;; esac; done; fi;'
)
_SHOWN = re.compile(rf"{NO_GID}|{INFINIBAND}|\d{{1,3}}")


def read_gid(shown: str) -> int | None:
    """Return the index that `FIND_GID` found; None: an InfiniBand port, which needs none.

    Raises ValueError where the port has no RoCE v2 GID, or the text is something else.
    """
    if not _SHOWN.fullmatch(shown) or shown == NO_GID:
        raise ValueError(f"no RoCE v2 GID: {shown[:16]!r}")
    return None if shown == INFINIBAND else int(shown)


Files = Mapping[str, list[str]]  # path -> its lines

# a PCI address is the only directory name with colons in it
_NAME = r"(?:(?:pci)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?(?=/)|[^/:\s]+)"
_LINE = re.compile(rf"^((?:/{_NAME})+):(.*)$")
LINE_MAX = 8192  # characters of one line; the longest file read here is a counter


def parse_files(text: str) -> Files:
    """Return path -> lines. Raises `Unreadable` for anything but files below /sys and /proc."""
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    files: dict[str, list[str]] = {}
    for line in split_lines(text):
        if line.startswith("grep: "):
            continue  # a file that gives nothing is reported by the check that needs it
        match = _LINE.match(line) if len(line) <= LINE_MAX else None
        if match is None or not match[1].startswith(("/sys/", "/proc/")):
            raise Unreadable(f"sysfs: cannot read {line[:80]!r}")
        files.setdefault(match[1], []).append(match[2].strip())
    if not files:
        raise Unreadable("sysfs: no file in it")
    return files


def _parse_json(text: str) -> Files:
    listed = require_object(parse_json(text, "sysfs"), "sysfs")
    files = {
        path: [
            line.strip() for line in require_text(content, path[:80]).split("\n") if line.strip()
        ]
        for path, content in listed.items()
        if path.startswith(("/sys/", "/proc/"))
    }
    if not files:
        raise Unreadable("sysfs: no file in it")
    return files


def match_files(files: Files, pattern: re.Pattern[str]) -> dict[tuple[str, ...], str]:
    """Return groups of the pattern -> the one line of each file whose whole path it matches."""
    matches: dict[tuple[str, ...], str] = {}
    for path, lines in files.items():
        if match := pattern.fullmatch(path):
            if len(lines) != 1 or match.groups() in matches:
                raise Unreadable(f"sysfs: {path[-80:]} has {len(lines)} lines, or is there twice")
            matches[match.groups()] = lines[0]
    return matches


def read_single_line(files: Files, path: str) -> str:
    lines = files.get(path)
    if lines is None or len(lines) != 1:
        raise Unreadable(f"sysfs: no {path[-80:]}")
    return lines[0]


def group_by_device(matches: Mapping[tuple[str, ...], str]) -> dict[str, dict[str, str]]:
    """Return first group -> last group -> line: the files of each device."""
    devices: dict[str, dict[str, str]] = {}
    for groups, line in matches.items():
        devices.setdefault(groups[0], {})[groups[-1]] = line
    return devices


def parse_counts(files: Mapping[str, str]) -> dict[str, int]:
    """Return every file of a device as a whole number."""
    return {name: parse_whole(line, name) for name, line in files.items()}
