"""Parses the output of nccl-tests: the text tables of all versions, and the JSON of `-J`.

Columns are found by the table's own header: versions before 2.13 have no root and a column "error",
newer ones "#wrong" and further columns. "error" is the largest difference that was found, not a
count: sums of floating point differ by their order, and the tool holds it against its own bound,
whose verdict is "Out of bounds values". Sources: NVIDIA/nccl-tests src/common.cu (at 1ae8cdc,
DeltaMaxValue), src/util.cu.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import (
    find_document,
    find_documents,
    parse_number,
    parse_whole,
    require_list,
    require_object,
    require_text,
    split_lines,
)
from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Parses the output of perftest (ib_write_bw, ib_read_lat ...): its text tables and its JSON.
#
# Bandwidths are returned in Gbit/s, whatever unit was printed: "MB/sec" of perftest is 2^20 bytes a
# second (linux-rdma/perftest src/perftest_parameters.c: MBS is 0x100000). The JSON names no unit:
# it is Gbit/s only if the command had `--report_gbits`.


_UNITS = {"Gb/sec": 1.0, "MB/sec": 2**20 * 8 / 1e9, "MiB/sec": 2**20 * 8 / 1e9}
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


_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)\s*$")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([0-9.e+]{1,24})\s*(OK|FAILED)?\s*$")
_RANK = re.compile(r"^#\s+Rank\s+(\d{1,6})\s.{1,80}? on\s+(\S{1,255})\s+device\s")
_STARTS = re.compile(r"^# Collective test starting: (\S{1,64})\s*$")
_ENDS = re.compile(r"^# Collective test concluded: (\S{1,64})\s*$")
_WRONG = "#wrong"
_DIFFERENCE = "error"  # of versions before 2.13
_RANKS_MAX = 65_536


class Row(Record):
    """One message size: bus bandwidths (GB/s) and wrong values, out of place and in place.

    `wrong` is None where the values of this row were not verified.
    """

    size: int  # bytes
    bus_gb_s: tuple[float, ...]
    wrong: int | None


class NcclRun(Record):
    """One run of nccl-tests, rows by ascending size."""

    ranks: int
    hosts: tuple[str, ...]  # as the ranks name them, sorted
    rows: tuple[Row, ...]
    out_of_bounds: int
    bounds_ok: bool
    average_gb_s: float
    average_failed: bool  # only with NCCL_TESTS_MIN_BW, and then below 0.9 of that

    @property
    def largest(self) -> Row:
        """The row of the largest message, whose bandwidth the floors are for."""
        return self.rows[-1]

    @property
    def wrong(self) -> int:
        """The number of wrong values, by the rows or by the summary."""
        return max(self.out_of_bounds, sum(row.wrong or 0 for row in self.rows))


def read(text: str) -> NcclRun:
    """Return one run. Raises `Unreadable`; also if no row was verified."""
    table = _AVERAGE.search(text) is None and '"average_bus_bandwidth"' in text
    run = _from_json(text) if table else _from_text(text)
    if not any(row.wrong is not None for row in run.rows):
        raise Unreadable("nccl-tests: nothing was verified")
    return run


def _from_text(text: str) -> NcclRun:
    lines = split_lines(text)
    bounds = [m for line in lines if (m := _BOUNDS.match(line))]
    averages = [(n, m) for n, line in enumerate(lines) if (m := _AVERAGE.match(line))]
    if len(bounds) != 1 or len(averages) != 1:
        error = next((line.strip() for line in lines if "error" in line.lower()), "")
        raise Unreadable(f"nccl-tests: not exactly one result in it {error[:160]}".rstrip())
    at, average = averages[0]
    started = [m[1] for line in lines if (m := _STARTS.match(line))]
    ended = [m[1] for line in lines[at + 1 :] if (m := _ENDS.match(line))]
    if not any(line.startswith("#") for line in lines[at + 1 :]) or started != ended:
        raise Unreadable("nccl-tests: it ends early")
    header = next((c for line in lines if (c := line.lstrip("# ").split()) and _is_header(c)), None)
    if header is None:
        raise Unreadable("nccl-tests: no header of a table in it")
    rows = [_parse_row(header, line.split()) for line in lines[:at] if line.split()[0].isdecimal()]
    return _build_run(
        ranks={m[1]: m[2] for line in lines if (m := _RANK.match(line))},
        rows=rows,
        bounds=parse_whole(bounds[0][1], "out of bounds"),
        bounds_ok=bounds[0][2] == "OK",
        average=parse_number(average[1], "bus bandwidth"),
        failed=average[2] == "FAILED",
    )


def _is_header(cells: Sequence[str]) -> bool:
    return cells[0] == "size" and "busbw" in cells and "time" in cells


def _parse_row(header: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) != len(header):
        raise Unreadable(f"nccl-tests: a row of {len(cells)} cells under {len(header)} titles")
    pairs = list(zip(header, cells, strict=True))
    verified = [
        _count_difference(cell) if title == _DIFFERENCE else parse_whole(cell, _WRONG)
        for title, cell in pairs
        if title in (_WRONG, _DIFFERENCE) and cell != "N/A"
    ]
    return Row(
        size=parse_whole(cells[0], "size"),
        bus_gb_s=tuple(
            parse_number(c, "busbw") for title, c in pairs if title == "busbw" and c != "N/A"
        ),
        wrong=sum(verified) if verified else None,
    )


def _count_difference(cell: str) -> int:
    """Return 0 for a largest difference, which the tool judges; 1 for one that is no number.

    The tool's own bound lets "nan" pass: no comparison with it is true.
    """
    if cell.lower().lstrip("+-") in ("nan", "inf"):
        return 1
    if parse_number(cell, _DIFFERENCE) < 0:
        raise Unreadable(f"nccl-tests: a difference of {cell[:24]}")
    return 0


def _from_json(text: str) -> NcclRun:
    document = find_document(text, "average_bus_bandwidth", subject="nccl-tests")
    bounds = require_object(document.get("out_of_bounds"), "out_of_bounds")
    average = require_object(document.get("average_bus_bandwidth"), "average_bus_bandwidth")
    config = require_object(document.get("config"), "config")
    errors = document.get("errors", [])
    if errors:
        raise Unreadable(f"nccl-tests: {str(errors)[:200]}")
    devices = require_list(config.get("devices", []), "devices")
    host_of_rank = {
        str(d.get("rank")): str(d.get("hostname")) for d in map(_require_device, devices)
    }
    # one process drives threads times GPUs; the list of devices covers all processes
    own = parse_number(config.get("nthreads", 0), "nthreads") * parse_number(
        config.get("ngpus", 0), "ngpus"
    )
    ranks = {str(n): "" for n in range(int(min(max(own, 0), _RANKS_MAX)))} | host_of_rank
    return _build_run(
        ranks=ranks,
        rows=[
            _parse_json_row_nccl_output(r) for r in require_list(document.get("results"), "results")
        ],
        bounds=int(parse_number(bounds.get("count"), "out_of_bounds")),
        bounds_ok=_read_word(bounds) == "true",
        average=parse_number(average.get("bandwidth"), "bandwidth"),
        failed=_read_word(average) not in ("true", "unchecked"),
    )


def _read_word(result: Mapping[str, Any]) -> str:
    """Return "true", "false" or "unchecked": the tool prints its booleans as texts."""
    okay = result.get("okay")
    return str(okay).lower() if isinstance(okay, bool) else require_text(okay, "okay")


def _require_device(listed: Any) -> Mapping[str, Any]:
    return require_object(listed, "device")


def _parse_json_row_nccl_output(listed: Any) -> Row:
    result = require_object(listed, "result")
    halves = [require_object(result[k], k) for k in ("out_of_place", "in_place") if k in result]
    verified = [h["nwrong"] for h in halves if h.get("nwrong", "N/A") not in ("N/A", None)]
    return Row(
        size=int(parse_number(result.get("size"), "size")),
        bus_gb_s=tuple(parse_number(h.get("bus_bw"), "bus_bw") for h in halves),
        wrong=sum(int(parse_number(v, "nwrong")) for v in verified) if verified else None,
    )


def _build_run(
    *,
    ranks: Mapping[str, str],
    rows: Sequence[Row],
    bounds: int,
    bounds_ok: bool,
    average: float,
    failed: bool,
) -> NcclRun:
    if not rows or not all(row.bus_gb_s for row in rows):
        raise Unreadable("nccl-tests: no row of its table can be read")
    mean = sum(sum(r.bus_gb_s) / len(r.bus_gb_s) for r in rows) / len(rows)
    # the printed average covers all rows: a difference means that rows are missing or damaged
    if abs(mean - average) > 0.02 * max(mean, average) + 0.02:
        raise Unreadable(
            f"nccl-tests: rows average {mean:.6g} GB/s, the printed average is {average:.6g}"
        )
    return NcclRun(
        ranks=len(ranks),
        hosts=tuple(sorted({host for host in ranks.values() if host})),
        rows=tuple(sorted(rows, key=lambda r: r.size)),
        out_of_bounds=bounds,
        bounds_ok=bounds_ok,
        average_gb_s=average,
        average_failed=failed,
    )
