"""Kernel lines that are faults of a part, as data (`kernel_faults.csv`), each with its source.

A fault with `ends` is over when a later line ends it for the same `key`: the link of a slot whose
card was reset comes back.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from provisioner.checks.readers.log_lines import parse_log_line
from provisioner.model.health import Severity

WORDS_MAX = 200


@dataclass(frozen=True)
class LineFault:
    """One row: the pattern of a line, its meaning, and the pattern of the line that ends it."""

    pattern: re.Pattern[str]
    ends: re.Pattern[str] | None
    severity: Severity
    meaning: str


@dataclass(frozen=True)
class FaultLines:
    """The lines of one fault at one part. `pci` is "" where the line names none."""

    fault: LineFault
    pci: str
    first: str
    count: int


def find_faults(lines: Sequence[str]) -> Iterator[FaultLines]:
    """Yield the faults that stand at the end of a log, in the order of the rows."""
    texts = [read_words(line) for line in lines]
    for row in FAULTS:
        standing: dict[tuple[str, str], tuple[str, int]] = {}
        for line in texts:
            if (match := row.pattern.search(line)) is not None:
                groups = match.groupdict()
                place = (groups.get("key") or "", groups.get("pci") or "")
                first, count = standing.get(place, (line, 0))
                standing[place] = (first, count + 1)
            elif standing and row.ends is not None and (over := row.ends.search(line)) is not None:
                standing = {p: v for p, v in standing.items() if p[0] != over["key"]}
        for (_, pci), (first, count) in standing.items():
            yield FaultLines(row, pci, parse_log_line(first).words[:WORDS_MAX], count)


def read_words(line: str) -> str:
    """Return what patterns are held against: the line, or the message in an object of journalctl,
    which may give it as a list of bytes.
    """
    return parse_log_line(line).words if line.startswith("{") else line


def is_fault_line(text: str) -> bool:
    """Return whether a line is judged here."""
    return any(row.pattern.search(text) for row in FAULTS)


def _load() -> tuple[LineFault, ...]:
    text = resources.files("provisioner.checks.readers").joinpath("kernel_faults.csv").read_text()
    return tuple(
        LineFault(
            pattern=re.compile(row["pattern"]),
            ends=re.compile(row["ends"]) if row["ends"] else None,
            severity=Severity(row["severity"]),
            meaning=row["meaning"],
        )
        for row in csv.DictReader(text.splitlines())
    )


FAULTS = _load()
