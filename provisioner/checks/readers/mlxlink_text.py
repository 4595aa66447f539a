"""Parses mlxlink's text tables: a head with a line of dashes below it, then keys and values.

The keys are those of its JSON. A failed call prints a line of "-E-".
"""

from __future__ import annotations

import re
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import normalize_pci, split_lines

DEVICE = re.compile(r"^device (\S{1,60})$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,8}m")
_HEAD = re.compile(r"^[A-Z][\w /()-]{2,80}$")
_PAIR = re.compile(r"^(\S[^:]{0,80}?)\s*:(?: (.{0,2000}))?$")
_BIN = re.compile(r"^Bin \d{1,3}$")
_REMARK = re.compile(r"^-[WI]- ")  # warnings and remarks
Port = tuple[str, str, dict[str, Any]]  # PCI address or "", failure or "", sections


def parse_ports(text: str) -> list[Port]:
    """Return every port of the text in order. Raises `Unreadable` for a line of unknown form."""
    ports: list[tuple[str, list[str], dict[str, Any]]] = []
    section: dict[str, Any] | None = None
    head = ""
    for line in (_ESCAPE.sub("", row).strip() for row in split_lines(text)):
        if head and set(line) != {"-"}:
            raise Unreadable(f"mlxlink: cannot read {head[:60]!r}")
        if match := DEVICE.match(line):
            ports.append((normalize_pci(match[1]), [], {}))
            section = None
        elif set(line) == {"-"}:
            if not head:
                raise Unreadable("mlxlink: a line of dashes below nothing")
            if not ports or head in ports[-1][2]:
                ports.append(("", [], {}))  # another port, without a line that names it
            section = ports[-1][2].setdefault(head, {})
            head = ""
        elif line.startswith("-E-"):
            ports = ports or [("", [], {})]
            ports[-1][1].append(line)
        elif section is not None and (pair := _PAIR.match(line)):
            _add_pair(section, pair)
        elif _HEAD.match(line):
            head = line
        elif not _REMARK.match(line):
            raise Unreadable(f"mlxlink: cannot read {line[:60]!r}")
    if head:
        raise Unreadable("mlxlink: the output is cut short")
    return [
        (address, errors[0] if errors else "" if sections else "it printed nothing", sections)
        for address, errors, sections in ports
    ]


def _add_pair(section: dict[str, Any], pair: re.Match[str]) -> None:
    key = pair[1]
    value = pair[2] or ""
    if key in section:
        raise Unreadable(f"mlxlink: {key[:40]} is listed twice")
    section[key] = {"values": value.split()} if _BIN.match(key) else value
