"""Reads what perftest prints (ib_write_bw, ib_read_lat ...): its text tables and its JSON.

Bandwidths come out in Gbit/s whatever was printed: "MB/sec" of perftest is 2^20 bytes a second
(linux-rdma/perftest src/perftest_parameters.c: MBS is 0x100000). The JSON names no unit: it is
Gbit/s only if the command said `--report_gbits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import documents
from provisioner.checks.readers.reading import lines_of, mapping, number, whole
from provisioner.model.base import Record

_UNITS = {
    "Gb/sec": 1.0,
    "MB/sec": 2**20 * 8 / 1e9,
    "MiB/sec": 2**20 * 8 / 1e9,
}
# a port of 400 Gbit/s both ways, and some more: what lies above is not in the unit that was said
GBIT_S_MAX = 1000.0
_UNQUOTED = re.compile(r"(?m)^(\s*)(sl)(\s*:)")  # the QoS variant prints this key bare
_BANDWIDTH = re.compile(r"BW average\[([A-Za-z/]{1,12})\]")
_P99 = "99%percentile[usec]"


class Bandwidth(Record):
    """One row: message size in bytes and the average bandwidth."""

    size: int
    gbit_s: float


class Latency(Record):
    """One row: message size in bytes and the 99th percentile."""

    size: int
    p99_us: float


def bandwidths(text: str, source: str) -> tuple[Bandwidth, ...]:
    """All rows of one or more runs. `source` is the command. Raises `Unreadable`."""
    rows = _json_rows(text, source) if "{" in text else _text_rows(text)
    if not rows:
        words = next((line.strip() for line in lines_of(text) if line.strip()), "")
        raise Unreadable(f"perftest: no result in it: {words[:120]}")
    if any(not 0 <= row.gbit_s <= GBIT_S_MAX for row in rows):
        raise Unreadable(f"perftest: more than {GBIT_S_MAX:.0f} Gbit/s: not in the unit it says")
    return rows


def largest(rows: tuple[Bandwidth, ...]) -> Bandwidth:
    """The slowest row of the largest message: of two sides of a run, or of two runs."""
    size = max(row.size for row in rows)
    return min((row for row in rows if row.size == size), key=lambda row: row.gbit_s)


def latencies(text: str) -> tuple[Latency, ...]:
    """All rows of a latency test. Raises `Unreadable`."""
    rows: list[Latency] = []
    header: list[str] = []
    for cells, line in _tables(text):
        if cells[0] == "#bytes":
            header = line.replace("% percentile", "%percentile").split()
        elif header and cells[0].isdecimal() and _P99 in header:
            if len(cells) != len(header):
                raise Unreadable(f"perftest: a row of {len(cells)} cells under {len(header)}")
            told = dict(zip(header, cells, strict=True))
            p99 = number(told[_P99], "99% percentile")
            rows.append(Latency(size=whole(cells[0], "bytes"), p99_us=p99))
    if not rows:
        raise Unreadable("perftest: no latency with a 99th percentile in it")
    return tuple(rows)


def _tables(text: str) -> list[tuple[list[str], str]]:
    """Lines of tables as cells; an output that stops inside a table is unreadable."""
    lines = [line.strip() for line in lines_of(text)]
    kept = [(line.split(), line) for line in lines]
    last = max((n for n, (cells, _) in enumerate(kept) if cells[0].isdecimal()), default=None)
    # after its last row perftest prints a rule, so that a row cut short is seen
    rules = [len(line) if set(line) == {"-"} else 0 for line in lines]
    if last is not None and max(rules[last + 1 :], default=0) < max(1, *rules):
        raise Unreadable("perftest: it ends inside its table")
    return kept


def _text_rows(text: str) -> tuple[Bandwidth, ...]:
    rows: list[Bandwidth] = []
    factor: float | None = None
    columns = 0
    for cells, line in _tables(text):
        if cells[0] == "#bytes":
            match = _BANDWIDTH.search(line)
            factor = _UNITS.get(match[1]) if match else None
            columns = len(line.replace("BW ", "BW_").split())
        elif columns and cells[0].isdecimal():
            if factor is None or len(cells) != columns:
                raise Unreadable("perftest: a row that does not fit its header")
            average = number(cells[3], "BW average")
            rows.append(Bandwidth(size=whole(cells[0], "bytes"), gbit_s=average * factor))
    return tuple(rows)


def _json_rows(text: str, source: str) -> tuple[Bandwidth, ...]:
    factor = 1.0 if "--report_gbits" in source.split() else _UNITS["MB/sec"]
    return tuple(
        _json_row(row, factor)
        for document in documents(_UNQUOTED.sub(r'\1"\2"\3', text), "perftest")
        if "results" in document
        for row in _results(document)
    )


def _results(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = document["results"]
    listed = found if isinstance(found, list) else [found]
    return [mapping(row, "results") for row in listed]


def _json_row(row: Mapping[str, Any], factor: float) -> Bandwidth:
    size = number(row.get("MsgSize"), "MsgSize")
    average = number(row.get("BW_average"), "BW_average")
    return Bandwidth(size=int(size), gbit_s=average * factor)
