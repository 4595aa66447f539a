"""Parses the output of perftest (ib_write_bw, ib_read_lat ...): its text tables and its JSON.

Bandwidths are returned in Gbit/s, whatever unit was printed: "MB/sec" of perftest is 2^20 bytes a
second (linux-rdma/perftest src/perftest_parameters.c: MBS is 0x100000). The JSON names no unit: it
is Gbit/s only if the command had `--report_gbits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import find_documents
from provisioner.checks.readers.tool_output import (
    parse_number,
    parse_whole,
    require_object,
    split_lines,
)
from provisioner.model.base import Record

_UNITS = {
    "Gb/sec": 1.0,
    "MB/sec": 2**20 * 8 / 1e9,
    "MiB/sec": 2**20 * 8 / 1e9,
}
# 400 Gbit/s in both directions, with a margin: a higher value is not in the unit that is named
GBIT_S_MAX = 1000.0
_UNQUOTED = re.compile(r"(?m)^(\s*)(sl)(\s*:)")  # the QoS variant prints this key bare
_BANDWIDTH = re.compile(r"BW average\[([A-Za-z/]{1,12})\]")
_P99 = "99%percentile[usec]"


class Bandwidth(Record):
    """One row: the message size in bytes and the average bandwidth."""

    size: int
    gbit_s: float


class Latency(Record):
    """One row: the message size in bytes and the 99th percentile."""

    size: int
    p99_us: float


def read_bandwidths(text: str, source: str) -> tuple[Bandwidth, ...]:
    """Return all rows of one or more runs; `source` is the command. Raises `Unreadable`."""
    rows = _parse_json_rows(text, source) if "{" in text else _parse_text_rows(text)
    if not rows:
        first_line = next((line.strip() for line in split_lines(text) if line.strip()), "")
        raise Unreadable(f"perftest: no result in it: {first_line[:120]}")
    if any(not 0 <= row.gbit_s <= GBIT_S_MAX for row in rows):
        raise Unreadable(
            f"perftest: more than {GBIT_S_MAX:.0f} Gbit/s: not in the unit that it names"
        )
    return rows


def select_largest_message(rows: tuple[Bandwidth, ...]) -> Bandwidth:
    """Return the slowest row of the largest message, of two sides of a run or of two runs."""
    size = max(row.size for row in rows)
    return min((row for row in rows if row.size == size), key=lambda row: row.gbit_s)


def read_latencies(text: str) -> tuple[Latency, ...]:
    """Return all rows of a latency test. Raises `Unreadable`."""
    rows: list[Latency] = []
    header: list[str] = []
    for cells, line in _split_tables(text):
        if cells[0] == "#bytes":
            header = line.replace("% percentile", "%percentile").split()
        elif header and cells[0].isdecimal() and _P99 in header:
            if len(cells) != len(header):
                raise Unreadable(f"perftest: a row of {len(cells)} cells under {len(header)}")
            cell_of = dict(zip(header, cells, strict=True))
            p99 = parse_number(cell_of[_P99], "99% percentile")
            rows.append(Latency(size=parse_whole(cells[0], "bytes"), p99_us=p99))
    if not rows:
        raise Unreadable("perftest: no latency with a 99th percentile in it")
    return tuple(rows)


def _split_tables(text: str) -> list[tuple[list[str], str]]:
    """Split the lines of tables into cells; an output that ends inside a table is unreadable."""
    lines = [line.strip() for line in split_lines(text)]
    rows = [(line.split(), line) for line in lines]
    last = max((n for n, (cells, _) in enumerate(rows) if cells[0].isdecimal()), default=None)
    # perftest prints a rule after its last row, which shows that no row is cut short
    rules = [len(line) if set(line) == {"-"} else 0 for line in lines]
    if last is not None and max(rules[last + 1 :], default=0) < max(1, *rules):
        raise Unreadable("perftest: it ends inside its table")
    return rows


def _parse_text_rows(text: str) -> tuple[Bandwidth, ...]:
    rows: list[Bandwidth] = []
    factor: float | None = None
    columns = 0
    for cells, line in _split_tables(text):
        if cells[0] == "#bytes":
            match = _BANDWIDTH.search(line)
            factor = _UNITS.get(match[1]) if match else None
            columns = len(line.replace("BW ", "BW_").split())
        elif columns and cells[0].isdecimal():
            if factor is None or len(cells) != columns:
                raise Unreadable("perftest: a row that does not fit its header")
            average = parse_number(cells[3], "BW average")
            rows.append(Bandwidth(size=parse_whole(cells[0], "bytes"), gbit_s=average * factor))
    return tuple(rows)


def _parse_json_rows(text: str, source: str) -> tuple[Bandwidth, ...]:
    factor = 1.0 if "--report_gbits" in source.split() else _UNITS["MB/sec"]
    return tuple(
        _parse_json_row(row, factor)
        for document in find_documents(_UNQUOTED.sub(r'\1"\2"\3', text), "perftest")
        if "results" in document
        for row in _read_results(document)
    )


def _read_results(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    results = document["results"]
    listed = results if isinstance(results, list) else [results]
    return [require_object(row, "results") for row in listed]


def _parse_json_row(row: Mapping[str, Any], factor: float) -> Bandwidth:
    size = parse_number(row.get("MsgSize"), "MsgSize")
    average = parse_number(row.get("BW_average"), "BW_average")
    return Bandwidth(size=int(size), gbit_s=average * factor)
