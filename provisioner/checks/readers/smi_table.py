"""Parses `nvidia-smi --query-...` tables by the names of their columns, not by their positions.

The names come from a header line if there is one, and otherwise from the query in the command line
that made the table, so that a table in another order or with more columns is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provisioner.checks.check import Command, Unreadable, fault
from provisioner.checks.readers.smi_sentences import find_sentence
from provisioner.checks.readers.tool_output import (
    parse_whole,
    read_output,
    split_lines,
)
from provisioner.model.health import Evidence, Finding, Severity

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
    """Return the columns that a command line queries."""
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
    """Return the name of a row's GPU in findings."""
    return f"GPU {parse_count(row, 'index')}"


def require_unique(rows: Sequence[Row], *columns: str) -> None:
    """Raise `Unreadable` if a GPU is listed twice."""
    for column in columns:
        if len({row[column] for row in rows}) != len(rows):
            raise Unreadable("nvidia-smi: one GPU is listed twice")
