"""Reads `nvidia-smi --query-...` tables by the names of their columns, not by their places.

The names come from a header line if there is one, else from the query in the command line that made
the table, so that a table of another order or with more columns is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provisioner.checks.check import Command, Unreadable, fault
from provisioner.checks.readers.reading import lines_of, number, text_of, whole
from provisioner.model.health import Evidence, Finding, Severity

Row = Mapping[str, str]

COLUMNS_MAX = 200  # `nvidia-smi --help-query-gpu` lists about 180 names
_QUERY = re.compile(r"--query-[a-z-]+[= ]\s*([A-Za-z0-9_.,]{1,8000})")
_UNIT = re.compile(r"\s*\[[A-Za-z0-9%/]{1,12}\]$")  # "power.draw [W]" in a header
_QUANTITY = re.compile(r"^(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:%|W|C|MHz|MiB|KiB|GB/s)?$")
# names of one column in other drivers and in headers
_OTHER_NAMES = {
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "ecc.errors.corrected.volatile.device_memory": "ecc.errors.corrected.volatile.dram",
}
# what stands in the cells of a GPU that does not answer its driver -> what helps: the action of
# Xid 79 ("has fallen off the bus") in NVIDIA's catalogue, and what the third one itself says
_SILENT = {
    "unknown error": Severity.RESTART,
    "gpu is lost": Severity.RESTART,
    "gpu requires reset": Severity.RESET_GPU,
    "err!": Severity.RESTART,
}


def table(evidence: Mapping[str, Evidence], command: Command, *needed: str) -> list[Row]:
    """Rows by column name, each with a value in every `needed` column.

    Raises `Unreadable` for a table that has not these columns, or a row that has not all cells.
    """
    lines = lines_of(text_of(evidence, command))
    if not lines:
        raise Unreadable("nvidia-smi: no row")
    names = _header(lines[0])
    if names is not None:
        lines = lines[1:]
    else:
        names = _asked(evidence[command.name].source) or _asked(command.line)
    missing = [column for column in needed if column not in names]
    if missing:
        raise Unreadable(f"nvidia-smi: no column {missing[0]}")
    if not lines:
        raise Unreadable("nvidia-smi: no row")
    rows: list[Row] = []
    for at, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(names) or not all(cells):
            told = " ".join(line[:120].split())
            raise Unreadable(f"nvidia-smi: line {at} has not {len(names)} columns: {told}")
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _asked(line: str) -> list[str]:
    """The columns that a command line asks for."""
    match = _QUERY.search(line)
    return [_plain(name) for name in match[1].split(",")][:COLUMNS_MAX] if match else []


def _header(line: str) -> list[str] | None:
    """The columns of a header line; None if it is a row."""
    names = [_plain(_UNIT.sub("", cell.strip())) for cell in line.split(",")]
    words = all(re.fullmatch(r"[a-z][a-z0-9_.]{0,80}", name) for name in names)
    known = {"index", "uuid", "gpu_uuid", "name", "serial", "pci.bus_id", "timestamp"}
    told = known & set(names) or any("." in name for name in names)
    return names[:COLUMNS_MAX] if words and told else None


def _plain(name: str) -> str:
    name = name.strip()
    return _OTHER_NAMES.get(name, name)


def silent(row: Row, part: str) -> Finding | None:
    """The fault of a GPU that does not answer its driver; None for one that does."""
    for column, cell in row.items():
        if (severity := _SILENT.get(cell.strip("[]").lower())) is not None:
            return fault(part, severity, f"the driver cannot read this GPU: {column}", cell)
    return None


def quantity(row: Row, column: str) -> float:
    """A number with or without its unit ("70.00 W"); what is not available is unreadable."""
    match = _QUANTITY.match(row[column])
    if match is None:
        raise Unreadable(f"{column}: {row[column][:40]!r} is not a number")
    return number(match[1], column)


def count(row: Row, column: str) -> int:
    """A whole number."""
    return whole(row[column], column)


def part_of(row: Row) -> str:
    """How findings name the GPU of a row."""
    return f"GPU {count(row, 'index')}"


def once(rows: Sequence[Row], *columns: str) -> None:
    """No GPU is listed twice; raises `Unreadable`."""
    for column in columns:
        if len({row[column] for row in rows}) != len(rows):
            raise Unreadable("nvidia-smi: one GPU is listed twice")
