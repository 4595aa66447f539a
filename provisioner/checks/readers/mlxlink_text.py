"""Reads mlxlink's tables for people: a head with a line of dashes below it, then keys and values.

The keys are those of its JSON. A call that failed says so in a line of "-E-".
"""

from __future__ import annotations

import re
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import lines_of, pci

DEVICE = re.compile(r"^device (\S{1,60})$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,8}m")
_HEAD = re.compile(r"^[A-Z][\w /()-]{2,80}$")
_PAIR = re.compile(r"^(\S[^:]{0,80}?)\s*:(?: (.{0,2000}))?$")
_BIN = re.compile(r"^Bin \d{1,3}$")
_REMARK = re.compile(r"^-[WI]- ")  # warnings and remarks
Port = tuple[str, str, dict[str, Any]]  # PCI address or "", failure or "", sections


def ports_of(text: str) -> list[Port]:
    """Every port of the text, in its order. Raises `Unreadable` for a line of no known form."""
    found: list[tuple[str, list[str], dict[str, Any]]] = []
    section: dict[str, Any] | None = None
    head = ""
    for line in (_ESCAPE.sub("", row).strip() for row in lines_of(text)):
        if head and set(line) != {"-"}:
            raise Unreadable(f"mlxlink: cannot read {head[:60]!r}")
        if match := DEVICE.match(line):
            found.append((pci(match[1]), [], {}))
            section = None
        elif set(line) == {"-"}:
            if not head:
                raise Unreadable("mlxlink: a line of dashes below nothing")
            if not found or head in found[-1][2]:
                found.append(("", [], {}))  # another port, without a line that names it
            section = found[-1][2].setdefault(head, {})
            head = ""
        elif line.startswith("-E-"):
            found = found or [("", [], {})]
            found[-1][1].append(line)
        elif section is not None and (pair := _PAIR.match(line)):
            _pair(section, pair)
        elif _HEAD.match(line):
            head = line
        elif not _REMARK.match(line):
            raise Unreadable(f"mlxlink: cannot read {line[:60]!r}")
    if head:
        raise Unreadable("mlxlink: the output is cut short")
    return [
        (address, errors[0] if errors else "" if sections else "it printed nothing", sections)
        for address, errors, sections in found
    ]


def _pair(section: dict[str, Any], pair: re.Match[str]) -> None:
    key, value = pair[1], pair[2] or ""
    if key in section:
        raise Unreadable(f"mlxlink: {key[:40]} is listed twice")
    section[key] = {"values": value.split()} if _BIN.match(key) else value
