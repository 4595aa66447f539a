"""Reads `mlxlink --json` of every RDMA port: one document a card, below a line with its address.

Rule: `status.code` first. A call that failed may still carry a whole output, which is old.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.readers.mlxlink_text import DEVICE, ports_of
from provisioner.checks.readers.reading import END, documents_of, mapping, number, pci, text_of
from provisioner.model.health import Evidence

# one call gives all three: a call costs 0.8 s, most of it for reaching the firmware (options: MFT's
# documentation of mlxlink; published collectors of several operators spell them so)
MLXLINK = Command(
    name="mlxlink",
    line="for d in /sys/class/infiniband/*/device; do p=$(basename $(readlink $d));"
    " echo device $p; mlxlink -d $p -m -c --rx_fec_histogram --show_histogram --json; done;"
    f" {END}",
    limit_s=180.0,
)

NOT_THERE = frozenset({"N/A", "", "-", "Unknown", "[N/A]"})
NOTHING_SEEN = "15E-255"  # a bit error rate of no error at all
_RANGE = re.compile(r"^(.{1,200}?)\s*\[(-?[0-9.]{1,12})\s*\.\.\s*(-?[0-9.]{1,12})\]$")
LANES_MAX = 16


@dataclass(frozen=True)
class PortFacts:
    """What mlxlink says of one port. `sections`: section -> key -> value, as in its JSON."""

    part: str
    pci: str  # "" where only the document is there
    failure: str  # of the call; "": it worked
    sections: Mapping[str, Any]

    def section(self, name: str) -> Mapping[str, Any]:
        """One section; {} if it is not there."""
        return mapping(self.sections.get(name, {}), name)

    def values(self, section: str, key: str) -> list[str] | None:
        """Every value of a key, one a lane or one in all; None if it is not there or N/A.

        Lanes come as {"values": [...]} or as words with commas, with " [low..high]" behind them.
        """
        value = self.section(section).get(key)
        if isinstance(value, dict):
            listed = value.get("values")
            if not isinstance(listed, list) or not all(isinstance(v, str | int) for v in listed):
                raise Unreadable(f"mlxlink: {key} is no list of values")
            found = [str(v).strip() for v in listed]
        elif isinstance(value, str | int) and not isinstance(value, bool):
            bare = _RANGE.match(str(value))
            found = [v.strip() for v in (bare[1] if bare else str(value)).split(",")]
        elif value is None:
            return None
        else:
            raise Unreadable(f"mlxlink: {key} is no value")
        if len(found) > 64:
            raise Unreadable(f"mlxlink: {key} has too many values")
        return None if all(v in NOT_THERE for v in found) else found

    def word(self, section: str, key: str) -> str | None:
        """The one value of a key; None if it is not there or N/A. Commas are part of it."""
        value = self.section(section).get(key)
        if value is None or isinstance(value, dict | list | bool):
            return None
        text = str(value).strip()
        return None if text in NOT_THERE else text

    def figure(self, section: str, key: str) -> float | None:
        """A number; None if it is not there or N/A. "15E-255" is zero: no error was seen."""
        text = self.word(section, key)
        if text is None:
            return None
        return 0.0 if text.upper() == NOTHING_SEEN else number(text, key)

    def bracket(self, section: str, key: str) -> tuple[list[float], float, float] | None:
        """Values with the module's own range: "3.5,3.2 [-9.9..6.9]"; None if none is given."""
        text = self.word(section, key)
        match = _RANGE.match(text) if text is not None else None
        if match is None:
            return None
        low, high = number(match[2], key), number(match[3], key)
        cells = [cell.strip() for cell in match[1].split(",")][:LANES_MAX]
        return [number(cell, key) for cell in cells if cell not in NOT_THERE], low, high


def ports(evidence: Mapping[str, Evidence], context: CheckContext) -> list[PortFacts]:
    """Every port that must tell: those of rails, or of a single document.

    Raises `Unreadable` if fewer answer than there are rails. Cards of the north-south side are
    left out where they do not open for the host (a DPU in restricted mode).
    """
    # its exit code is that of the last card
    found = read(text_of(evidence, MLXLINK, any_exit=True))
    kept = [p for p in found if not (p.failure and p.pci in context.dpu_pci)]
    rails = [p for p in kept if p.pci not in context.dpu_pci]
    if not kept or len(rails) < context.rails:
        raise Unreadable(f"mlxlink: {len(rails)} of {context.rails} ports of rails")
    return kept


@lru_cache(maxsize=8)  # three checks read the same output, before and after a load
def read(text: str) -> tuple[PortFacts, ...]:
    """Every document with the address above it."""
    if "{" not in text:
        told = enumerate(ports_of(text))
        return _each_once([PortFacts(f"port {a or at}", a, f, s) for at, (a, f, s) in told])
    found: list[PortFacts] = []
    for at, (above, document) in enumerate(documents_of(text, "mlxlink")):
        match = DEVICE.match(above)
        address = pci(match[1]) if match else ""
        whole_one = mapping(document, "mlxlink")
        status = mapping(whole_one.get("status"), "status")
        code = status.get("code")
        if not isinstance(code, int) or isinstance(code, bool):
            raise Unreadable("mlxlink: a document without a status code")
        result = mapping(whole_one.get("result", {}), "result")
        sections = mapping(result.get("output") or {}, "output")
        words = str(status.get("message") or f"status {code}")
        part = f"port {address or at}"
        found.append(PortFacts(part, address, words if code != 0 else "", sections))
    announced = {pci(m[1]) for line in text.split("\n") if (m := DEVICE.match(line.strip()))}
    if announced - {port.pci for port in found}:
        raise Unreadable("mlxlink: a port gave no document")
    return _each_once(found)


def _each_once(found: Sequence[PortFacts]) -> tuple[PortFacts, ...]:
    if not found or len({p.part for p in found}) != len(found):
        raise Unreadable("mlxlink: no document in it, or one port twice")
    return tuple(found)
