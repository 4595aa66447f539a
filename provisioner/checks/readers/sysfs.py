"""Reads files of /sys and /proc as `grep -H .` prints them, or as a JSON object of path -> content.

A file of several lines has one line of output for each. What a check needs and does not find is
unreadable; files beside that are read and left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import json_of, lines_of, mapping, whole, word

Files = Mapping[str, list[str]]  # path -> its lines

# a PCI address is the only directory name with colons in it
_NAME = r"(?:(?:pci)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?(?=/)|[^/:\s]+)"
_LINE = re.compile(rf"^((?:/{_NAME})+):(.*)$")
LINE_MAX = 8192  # characters of one line; the longest file read here is a counter


def files_of(text: str) -> Files:
    """Path -> lines. Raises `Unreadable` for anything else than files below /sys and /proc."""
    if text.lstrip().startswith("{"):
        return _of_json(text)
    files: dict[str, list[str]] = {}
    for line in lines_of(text):
        if line.startswith("grep: "):
            continue  # a file that gives nothing; who needs it will not find it
        match = _LINE.match(line) if len(line) <= LINE_MAX else None
        if match is None or not match[1].startswith(("/sys/", "/proc/")):
            raise Unreadable(f"sysfs: cannot read {line[:80]!r}")
        files.setdefault(match[1], []).append(match[2].strip())
    if not files:
        raise Unreadable("sysfs: no file in it")
    return files


def _of_json(text: str) -> Files:
    listed = mapping(json_of(text, "sysfs"), "sysfs")
    files = {
        path: [line.strip() for line in word(content, path[:80]).split("\n") if line.strip()]
        for path, content in listed.items()
        if path.startswith(("/sys/", "/proc/"))
    }
    if not files:
        raise Unreadable("sysfs: no file in it")
    return files


def matching(files: Files, pattern: re.Pattern[str]) -> dict[tuple[str, ...], str]:
    """Groups of the pattern -> the one line of each file whose path it matches whole."""
    found: dict[tuple[str, ...], str] = {}
    for path, lines in files.items():
        if match := pattern.fullmatch(path):
            if len(lines) != 1 or match.groups() in found:
                raise Unreadable(f"sysfs: {path[-80:]} has {len(lines)} lines, or is there twice")
            found[match.groups()] = lines[0]
    return found


def one(files: Files, path: str) -> str:
    """The one line of a file."""
    lines = files.get(path)
    if lines is None or len(lines) != 1:
        raise Unreadable(f"sysfs: no {path[-80:]}")
    return lines[0]


def grouped(found: Mapping[tuple[str, ...], str]) -> dict[str, dict[str, str]]:
    """First group -> last group -> line: the files of each device."""
    devices: dict[str, dict[str, str]] = {}
    for groups, line in found.items():
        devices.setdefault(groups[0], {})[groups[-1]] = line
    return devices


def counts(facts: Mapping[str, str]) -> dict[str, int]:
    """Every file of a device as a whole number."""
    return {name: whole(line, name) for name, line in facts.items()}
