"""Reads `nvidia-smi -q`: everything that the driver knows of every GPU, by section and key.

Sections and keys are found by their names, because their order and their neighbours differ between
drivers; a key that two drivers name differently is asked for under both names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.readers.reading import END, lines_of, number, text_of
from provisioner.model.health import Evidence

SMI_QUERY = Command(name="smi_query", line=f"nvidia-smi -q && {END}", limit_s=120.0)

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (\d{1,3})$")
_PAIR = re.compile(r"^( *)(\S.{0,120}?)\s*: ?(.{0,4096})$")
_SECTION = re.compile(r"^( *)(\S.{0,120}?)\s*$")
_QUANTITY = re.compile(r"^(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:%|W|C|MHz|MiB|KB/s|us)?$")
# "Unknown Error" is none of these: a GPU that does not answer tells nothing
NOT_THERE = frozenset({"N/A", "[N/A]", "Not Supported", "[Not Supported]", ""})
DEPTH_MAX = 8
GPUS_MAX = 64  # of one host; the largest have 16


@dataclass(frozen=True)
class GpuFacts:
    """One GPU: "Section/Sub section/Key" -> every value that stands there, in order."""

    pci: str
    values: dict[str, list[str]] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """How findings name it."""
        return f"GPU {self.pci}"

    def find(self, *paths: str) -> str | None:
        """The value at the first of these paths that is there; None if none is.

        Raises `Unreadable` where one key has two values.
        """
        for path in paths:
            found = self.values.get(path)
            if found is not None:
                if len(found) != 1:
                    raise Unreadable(f"nvidia-smi -q: {self.pci} says {path} twice")
                return found[0]
        return None

    def word(self, *paths: str) -> str:
        """As `find`; a value that is not there is unreadable."""
        found = self.find(*paths)
        if found is None:
            raise Unreadable(f"nvidia-smi -q: {self.pci} does not say {paths[0]}")
        return found

    def quantity(self, *paths: str) -> float | None:
        """A number without its unit; None for "N/A" or a key that is not there."""
        found = self.find(*paths)
        if found is None or found in NOT_THERE:
            return None
        match = _QUANTITY.match(found)
        if match is None:
            raise Unreadable(f"nvidia-smi -q: {paths[0]} is {found[:40]!r}")
        return number(match[1], paths[0])

    def section(self, *names: str) -> dict[str, str]:
        """Keys and values below the first of these sections that is there; {} if none is."""
        for name in names:
            below = {
                path.removeprefix(f"{name}/"): values[0]
                for path, values in self.values.items()
                if path.startswith(f"{name}/")
            }
            if below:
                return below
        return {}


def gpus(evidence: Mapping[str, Evidence], context: CheckContext) -> list[GpuFacts]:
    """Every GPU of the output. Raises `Unreadable` unless all are there that must be."""
    found = list(read(text_of(evidence, SMI_QUERY)))
    if len(found) != context.gpus:
        raise Unreadable(f"nvidia-smi -q: {len(found)} of {context.gpus} GPUs")
    return found


@lru_cache(maxsize=8)  # six checks read the same output, before and after a load
def read(text: str) -> tuple[GpuFacts, ...]:
    """Every GPU that a text of `nvidia-smi -q` tells of, whole or with `-d` of some sections."""
    lines = lines_of(text)
    if not any("NVSMI LOG" in line for line in lines[:3]):
        raise Unreadable("nvidia-smi -q: no log of it")
    found: list[GpuFacts] = []
    path: list[tuple[int, str]] = []
    attached = None
    for line in lines:
        if match := _GPU.match(line):
            found.append(GpuFacts(pci=match[1].lower()[-12:]))
            path = []
        elif not found:
            if match := _ATTACHED.match(line):
                attached = int(match[1])
        else:
            _line(line, found[-1], path)
        if len(found) > GPUS_MAX:
            raise Unreadable(f"nvidia-smi -q: more than {GPUS_MAX} GPUs")
    if not found or attached != len(found) or len({g.pci for g in found}) != len(found):
        raise Unreadable(f"nvidia-smi -q: {len(found)} GPUs, {attached} are attached")
    return tuple(found)


def _line(line: str, gpu: GpuFacts, path: list[tuple[int, str]]) -> None:
    """One line below a GPU: a key with its value, or the head of a section."""
    pair = _PAIR.match(line)
    match = pair or _SECTION.match(line)
    if match is None:
        raise Unreadable(f"nvidia-smi -q: cannot read {line[:60]!r}")
    depth = len(match[1])
    while path and path[-1][0] >= depth:
        path.pop()
    names = [name for _, name in path] + [match[2]]
    if len(names) > DEPTH_MAX:
        raise Unreadable("nvidia-smi -q: too deep")
    if pair is None:
        path.append((depth, match[2]))
    else:
        gpu.values.setdefault("/".join(names), []).append(match[3].strip())
        # "Process ID : 7" has lines of its own below it
        path.append((depth, match[2]))
