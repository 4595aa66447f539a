"""Parses `nvidia-smi -q`: everything that the driver reports of every GPU, by section and key.

Sections and keys are found by their names, because their order and their neighbours differ between
drivers. A key that two drivers name differently is looked up under both names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from provisioner.checks.check import CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.smi_sentences import find_sentence
from provisioner.checks.readers.tool_output import (
    END,
    END_WORDS,
    parse_number,
    parse_whole,
    read_output,
    split_lines,
)
from provisioner.model.cohort import Evidence, Finding, Severity
from provisioner.model.names import normalize_pci

# ------------------------------------------------------------------------------
# Parses `nvidia-smi --query-...` tables by the names of their columns, not by their positions.
#
# The names come from a header line if there is one, and otherwise from the query in the command
# line that made the table, so that a table in another order or with more columns is read as well.


Row = Mapping[str, str]

COLUMNS_MAX = 200  # `nvidia-smi --help-query-gpu` lists about 180 names
_QUERY = re.compile(r"--query-[a-z-]+[= ]\s*([A-Za-z0-9_.,]{1,8000})")
_UNIT = re.compile(r"\s*\[[A-Za-z0-9%/]{1,12}\]$")  # "power.draw [W]" in a header
# names of one column in other drivers and in headers -> the name used here
_OTHER_NAMES = {
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "ecc.errors.corrected.volatile.device_memory": "ecc.errors.corrected.volatile.dram",
}
# text in the cells of a GPU that does not answer its driver -> the remedy: the action of Xid 79
# ("has fallen off the bus") in NVIDIA's catalogue; for the third one, its own text
SILENT = {
    "unknown error": Severity.RESTART,
    "gpu is lost": Severity.RESTART,
    "gpu requires reset": Severity.RESET_GPU,
    "err!": Severity.RESTART,
}
# of these, the ones that are about the GPU and not about one value of it
_LOST = frozenset({"gpu is lost", "gpu requires reset"})


def read_table(evidence: Mapping[str, Evidence], command: Command, *needed: str) -> list[Row]:
    """Return rows by column name, each with a value in every `needed` column.

    Raises `Unreadable` for a table without these columns, or a row without all cells.
    """
    listed = split_lines(read_output(evidence, command))
    lines = [line for line in listed if find_sentence(line) is None]
    if not lines:
        raise Unreadable("nvidia-smi: no row")
    names = _parse_header(lines[0])
    if names is not None:
        lines = lines[1:]
    else:
        names = _parse_query(evidence[command.name].source) or _parse_query(command.line)
    missing = [column for column in needed if column not in names]
    if missing:
        raise Unreadable(f"nvidia-smi: no column {missing[0]}")
    if not lines:
        raise Unreadable("nvidia-smi: no row")
    rows: list[Row] = []
    for at, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(names) or not all(cells):
            start = " ".join(line[:120].split())
            raise Unreadable(f"nvidia-smi: line {at} does not have {len(names)} columns: {start}")
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _parse_query(line: str) -> list[str]:
    match = _QUERY.search(line)
    return [_normalize_column(name) for name in match[1].split(",")][:COLUMNS_MAX] if match else []


def _parse_header(line: str) -> list[str] | None:
    """Return the columns of a header line; None if the line is a row."""
    names = [_normalize_column(_UNIT.sub("", cell.strip())) for cell in line.split(",")]
    are_names = all(re.fullmatch(r"[a-z][a-z0-9_.]{0,80}", name) for name in names)
    usual_columns = {"index", "uuid", "gpu_uuid", "name", "serial", "pci.bus_id", "timestamp"}
    is_header = usual_columns & set(names) or any("." in name for name in names)
    return names[:COLUMNS_MAX] if are_names and is_header else None


def _normalize_column(name: str) -> str:
    name = name.strip()
    return _OTHER_NAMES.get(name, name)


def is_lost(cell: str) -> bool:
    """Return whether a value says that the GPU does not answer any more."""
    return cell.strip("[]").lower() in _LOST


def find_unresponsive(row: Row, part: str) -> Finding | None:
    """Return the fault of a GPU that does not answer its driver; None for one that does."""
    for column, cell in row.items():
        if (severity := SILENT.get(cell.strip("[]").lower())) is not None:
            return fault(part, severity, f"the driver cannot read this GPU: {column}", cell)
    return None


def parse_count(row: Row, column: str) -> int:
    """Return a whole number."""
    return parse_whole(row[column], column)


def name_part(row: Row) -> str:
    return f"GPU {parse_count(row, 'index')}"


def require_unique(rows: Sequence[Row], *columns: str) -> None:
    """Raise `Unreadable` if a GPU is listed twice."""
    for column in columns:
        if len({row[column] for row in rows}) != len(rows):
            raise Unreadable("nvidia-smi: one GPU is listed twice")


SMI_QUERY = Command(name="smi_query", line=f"nvidia-smi -q && {END}", limit_s=120.0)

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (\d{1,3})$")
# what stands before the first GPU; any other line there is a sentence of the tool that nobody reads
_ABOVE = re.compile(
    r"^(?:=+NVSMI LOG=+|(?:Timestamp|(?:[A-Z][\w-]*,? ){1,4}[Vv]ersion|Attached GPUs)\s*: .*)\s*$"
)
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
            gpus.append(GpuFacts(pci=normalize_pci(match[1])))
            path = []
        elif not gpus:
            if match := _ATTACHED.match(line):
                attached = int(match[1])
            elif not _ABOVE.match(line):
                raise Unreadable(f"nvidia-smi -q: above every GPU: {line[:120]!r}")
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
