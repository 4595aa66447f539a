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
    """Return the one line of a file."""
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


def parse_counts(facts: Mapping[str, str]) -> dict[str, int]:
    """Return every file of a device as a whole number."""
    return {name: parse_whole(line, name) for name, line in facts.items()}
