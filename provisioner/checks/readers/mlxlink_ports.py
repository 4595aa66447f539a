"""Parses `mlxlink --json` of every RDMA port: one document per card, below a line with its address.

`status.code` decides first: a call that failed may still carry a whole output, which is old.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.readers.tool_output import (
    END,
    parse_documents,
    parse_number,
    read_output,
    require_object,
    split_lines,
)
from provisioner.model.cohort import Evidence
from provisioner.model.names import normalize_pci

# ------------------------------------------------------------------------------
# Parses mlxlink's text tables: a head with a line of dashes below it, then keys and values.
#
# The keys are those of its JSON. A failed call prints a line of "-E-".


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


# one call gives all three outputs: a call takes 0.8 s, mostly to reach the firmware (options: MFT's
# documentation of mlxlink; published collectors of several operators use the same spelling)
MLXLINK = Command(
    name="mlxlink",
    line="for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d));"
    " echo device $p; mlxlink -d $p -m -c --rx_fec_histogram --show_histogram --json; done;"
    f" {END}",
    limit_s=180.0,
)

NOT_THERE = frozenset({"N/A", "", "-", "Unknown", "[N/A]"})
NOTHING_SEEN = "15E-255"  # mlxlink's bit error rate for "no error"
_RANGE = re.compile(r"^(.{1,200}?)\s*\[(-?[0-9.]{1,12})\s*\.\.\s*(-?[0-9.]{1,12})\]$")
LANES_MAX = 16


@dataclass(frozen=True)
class PortFacts:
    """mlxlink's facts of one port. `sections`: section -> key -> value, as in its JSON."""

    part: str
    pci: str  # "" where the output does not give it
    failure: str  # of the call; "" if it succeeded
    sections: Mapping[str, Any]

    def get_section(self, name: str) -> Mapping[str, Any]:
        """Return one section; {} if it is absent."""
        return require_object(self.sections.get(name, {}), name)

    def get_values(self, section: str, key: str) -> list[str] | None:
        """Return every value of a key, one per lane or one in all; None if it is absent or N/A.

        Lanes come as {"values": [...]} or as text with commas, with " [low..high]" behind them.
        """
        value = self.get_section(section).get(key)
        if isinstance(value, dict):
            listed = value.get("values")
            if not isinstance(listed, list) or not all(isinstance(v, str | int) for v in listed):
                raise Unreadable(f"mlxlink: {key} is no list of values")
            values = [str(v).strip() for v in listed]
        elif isinstance(value, str | int) and not isinstance(value, bool):
            bare = _RANGE.match(str(value))
            values = [v.strip() for v in (bare[1] if bare else str(value)).split(",")]
        elif value is None:
            return None
        else:
            raise Unreadable(f"mlxlink: {key} is no value")
        if len(values) > 64:
            raise Unreadable(f"mlxlink: {key} has too many values")
        return None if all(v in NOT_THERE for v in values) else values

    def get_text(self, section: str, key: str) -> str | None:
        """Return the one value of a key, commas included; None if it is absent or N/A."""
        value = self.get_section(section).get(key)
        if value is None or isinstance(value, dict | list | bool):
            return None
        text = str(value).strip()
        return None if text in NOT_THERE else text

    def get_number(self, section: str, key: str) -> float | None:
        """Return a number; None if it is absent or N/A. "15E-255" is zero: no error occurred."""
        text = self.get_text(section, key)
        if text is None:
            return None
        return 0.0 if text.upper() == NOTHING_SEEN else parse_number(text, key)

    def get_range(self, section: str, key: str) -> tuple[list[float], float, float] | None:
        """Return values with the module's own range: "3.5,3.2 [-9.9..6.9]"; None without it."""
        text = self.get_text(section, key)
        match = _RANGE.match(text) if text is not None else None
        if match is None:
            return None
        low = parse_number(match[2], key)
        high = parse_number(match[3], key)
        cells = [cell.strip() for cell in match[1].split(",")][:LANES_MAX]
        return [parse_number(cell, key) for cell in cells if cell not in NOT_THERE], low, high


def read_ports(evidence: Mapping[str, Evidence], context: CheckContext) -> list[PortFacts]:
    """Return every port that must answer: those of rails, or that of a single document.

    Raises `Unreadable` if fewer ports answer than there are rails. Cards of the north-south side
    are left out where they do not open for the host (a DPU in restricted mode).
    """
    # the exit code is that of the last card only
    listed = read(read_output(evidence, MLXLINK, any_exit=True))
    readable = [p for p in listed if not (p.failure and p.pci in context.dpu_pci)]
    rails = [p for p in readable if p.pci not in context.dpu_pci]
    if not readable or len(rails) < context.rails:
        raise Unreadable(f"mlxlink: {len(rails)} of {context.rails} ports of rails")
    return readable


@lru_cache(maxsize=8)  # three checks read the same output, before and after a load
def read(text: str) -> tuple[PortFacts, ...]:
    if "{" not in text:
        tables = enumerate(parse_ports(text))
        return _require_distinct(
            [PortFacts(f"port {a or at}", a, f, s) for at, (a, f, s) in tables]
        )
    ports: list[PortFacts] = []
    for at, (above, document) in enumerate(parse_documents(text, "mlxlink")):
        match = DEVICE.match(above)
        address = normalize_pci(match[1]) if match else ""
        whole_one = require_object(document, "mlxlink")
        status = require_object(whole_one.get("status"), "status")
        code = status.get("code")
        if not isinstance(code, int) or isinstance(code, bool):
            raise Unreadable("mlxlink: a document without a status code")
        result = require_object(whole_one.get("result", {}), "result")
        sections = require_object(result.get("output") or {}, "output")
        message = str(status.get("message") or f"status {code}")
        part = f"port {address or at}"
        ports.append(PortFacts(part, address, message if code != 0 else "", sections))
    announced = {
        normalize_pci(m[1]) for line in text.split("\n") if (m := DEVICE.match(line.strip()))
    }
    if announced - {port.pci for port in ports}:
        raise Unreadable("mlxlink: a port gave no document")
    return _require_distinct(ports)


def _require_distinct(ports: Sequence[PortFacts]) -> tuple[PortFacts, ...]:
    if not ports or len({p.part for p in ports}) != len(ports):
        raise Unreadable("mlxlink: no document in it, or one port twice")
    return tuple(ports)
