"""Parses `nvidia-smi -q`: everything that the driver reports of every GPU, by section and key.

Sections and keys are found by their names, because their order and their neighbours differ between
drivers. A key that two drivers name differently is looked up under both names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.readers.smi_sentences import find_sentence
from provisioner.checks.readers.tool_output import (
    END,
    END_WORDS,
    parse_number,
    read_output,
    split_lines,
)
from provisioner.model.health import Evidence

SMI_QUERY = Command(name="smi_query", line=f"nvidia-smi -q && {END}", limit_s=120.0)

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (\d{1,3})$")
_PAIR = re.compile(r"^( *)(\S.{0,120}?)\s*: ?(.{0,4096})$")
_SECTION = re.compile(r"^( *)(\S.{0,120}?)\s*$")
_QUANTITY = re.compile(r"^(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:%|W|C|MHz|MiB|KB/s|us)?$")
# "Unknown Error" is not one of these: a GPU that does not answer gives no facts
NOT_THERE = frozenset({"N/A", "[N/A]", "Not Supported", "[Not Supported]", ""})
DEPTH_MAX = 8
GPUS_MAX = 64  # of one host; the largest have 16


@dataclass(frozen=True)
class GpuFacts:
    """One GPU: "Section/Sub section/Key" -> every value with that path, in order."""

    pci: str
    values: dict[str, list[str]] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """The name of the GPU in findings."""
        return f"GPU {self.pci}"

    def find(self, *paths: str) -> str | None:
        """Return the value at the first of these paths that exists; None if none does.

        Raises `Unreadable` where one key has two values.
        """
        for path in paths:
            values = self.values.get(path)
            if values is not None:
                if len(values) != 1:
                    raise Unreadable(f"nvidia-smi -q: {self.pci} says {path} twice")
                return values[0]
        return None

    def require(self, *paths: str) -> str:
        """Return the value as `find` does. Raises `Unreadable` where it is absent."""
        value = self.find(*paths)
        if value is None:
            raise Unreadable(f"nvidia-smi -q: {self.pci} does not report {paths[0]}")
        return value

    def get_quantity(self, *paths: str) -> float | None:
        """Return a number without its unit; None for "N/A" or an absent key."""
        text = self.find(*paths)
        if text is None or text in NOT_THERE:
            return None
        match = _QUANTITY.match(text)
        if match is None:
            raise Unreadable(f"nvidia-smi -q: {paths[0]} is {text[:40]!r}")
        return parse_number(match[1], paths[0])

    def get_section(self, *names: str) -> dict[str, str]:
        """Return keys and values below the first of these sections that exists; {} if none does."""
        for name in names:
            below = {
                path.removeprefix(f"{name}/"): values[0]
                for path, values in self.values.items()
                if path.startswith(f"{name}/")
            }
            if below:
                return below
        return {}


def read_gpus(evidence: Mapping[str, Evidence], context: CheckContext) -> list[GpuFacts]:
    """Return every GPU of the output. Raises `Unreadable` unless all expected GPUs are there."""
    listed = list(read(read_output(evidence, SMI_QUERY)))
    if len(listed) != context.gpus:
        raise Unreadable(f"nvidia-smi -q: {len(listed)} of {context.gpus} GPUs")
    return listed


def strip_end(text: str) -> str:
    """Return an output without the mark behind its last line."""
    return text.rstrip().removesuffix(END_WORDS)


@lru_cache(maxsize=8)  # six checks read the same output, before and after a load
def read(text: str) -> tuple[GpuFacts, ...]:
    """Return every GPU in an output of `nvidia-smi -q`, complete or limited by `-d`."""
    lines = [line for line in split_lines(text) if find_sentence(line) is None]
    if not any("NVSMI LOG" in line for line in lines[:3]):
        raise Unreadable("nvidia-smi -q: no log of it")
    gpus: list[GpuFacts] = []
    path: list[tuple[int, str]] = []
    attached = None
    for line in lines:
        if match := _GPU.match(line):
            gpus.append(GpuFacts(pci=match[1].lower()[-12:]))
            path = []
        elif not gpus:
            if match := _ATTACHED.match(line):
                attached = int(match[1])
        else:
            _add_line(line, gpus[-1], path)
        if len(gpus) > GPUS_MAX:
            raise Unreadable(f"nvidia-smi -q: more than {GPUS_MAX} GPUs")
    if not gpus or attached != len(gpus) or len({g.pci for g in gpus}) != len(gpus):
        raise Unreadable(f"nvidia-smi -q: {len(gpus)} GPUs, {attached} are attached")
    return tuple(gpus)


def _add_line(line: str, gpu: GpuFacts, path: list[tuple[int, str]]) -> None:
    """Add one line below a GPU: a key with its value, or the head of a section."""
    pair = _PAIR.match(line)
    match = pair or _SECTION.match(line)
    if match is None:
        raise Unreadable(f"nvidia-smi -q: cannot read {line[:60]!r}")
    depth = len(match[1])
    if depth == 0:  # every key of a GPU is indented: this is no key, and nobody's sentence
        raise Unreadable(f"nvidia-smi -q: a line outside of every GPU: {line[:120]!r}")
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
