"""Reads what nccl-tests print: the text tables of all versions, and the JSON of `-J`.

Columns are found by the table's own header: older versions have no root, say "error" for "#wrong",
and newer ones add columns. Sources: NVIDIA/nccl-tests src/common.cu, src/util.cu.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import document_with
from provisioner.checks.readers.reading import lines_of, mapping, number, sequence, whole, word
from provisioner.model.base import Record

_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)\s*$")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([0-9.e+]{1,24})\s*(OK|FAILED)?\s*$")
_RANK = re.compile(r"^#\s+Rank\s+(\d{1,6})\s.{1,80}? on\s+(\S{1,255})\s+device\s")
_STARTS = re.compile(r"^# Collective test starting: (\S{1,64})\s*$")
_ENDS = re.compile(r"^# Collective test concluded: (\S{1,64})\s*$")
_WRONG = ("#wrong", "error")
_RANKS_MAX = 65_536


class Row(Record):
    """One size: bus bandwidths in GB/s and wrong values, out of place and in place as printed.

    `wrong` None: the values of this row were not verified.
    """

    size: int  # bytes
    bus_gb_s: tuple[float, ...]
    wrong: int | None


class Nccl(Record):
    """One run, rows by ascending size."""

    ranks: int
    hosts: tuple[str, ...]  # as the ranks name them, sorted
    rows: tuple[Row, ...]
    out_of_bounds: int
    bounds_ok: bool
    average_gb_s: float
    average_failed: bool  # only with NCCL_TESTS_MIN_BW, and then below 0.9 of it

    @property
    def largest(self) -> Row:
        """The row of the largest message, whose bandwidth the floors are for."""
        return self.rows[-1]

    @property
    def wrong(self) -> int:
        """Wrong values, in whichever way they were told."""
        return max(self.out_of_bounds, sum(row.wrong or 0 for row in self.rows))


def read(text: str) -> Nccl:
    """One run. Raises `Unreadable`; also if no row was verified."""
    table = _AVERAGE.search(text) is None and '"average_bus_bandwidth"' in text
    found = _from_json(text) if table else _from_text(text)
    if not any(row.wrong is not None for row in found.rows):
        raise Unreadable("nccl-tests: nothing was verified")
    return found


def _from_text(text: str) -> Nccl:
    lines = lines_of(text)
    bounds = [m for line in lines if (m := _BOUNDS.match(line))]
    averages = [(n, m) for n, line in enumerate(lines) if (m := _AVERAGE.match(line))]
    if len(bounds) != 1 or len(averages) != 1:
        words = next((line.strip() for line in lines if "error" in line.lower()), "")
        raise Unreadable(f"nccl-tests: not exactly one result in it {words[:160]}".rstrip())
    at, average = averages[0]
    started = [m[1] for line in lines if (m := _STARTS.match(line))]
    ended = [m[1] for line in lines[at + 1 :] if (m := _ENDS.match(line))]
    if not any(line.startswith("#") for line in lines[at + 1 :]) or started != ended:
        raise Unreadable("nccl-tests: it ends early")
    header = next((c for line in lines if (c := line.lstrip("# ").split()) and _titles(c)), None)
    if header is None:
        raise Unreadable("nccl-tests: no header of a table in it")
    rows = [_row(header, line.split()) for line in lines[:at] if line.split()[0].isdecimal()]
    return _run(
        ranks={m[1]: m[2] for line in lines if (m := _RANK.match(line))},
        rows=rows,
        bounds=whole(bounds[0][1], "out of bounds"),
        bounds_ok=bounds[0][2] == "OK",
        average=number(average[1], "bus bandwidth"),
        failed=average[2] == "FAILED",
    )


def _titles(cells: Sequence[str]) -> bool:
    return cells[0] == "size" and "busbw" in cells and "time" in cells


def _row(header: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) != len(header):
        raise Unreadable(f"nccl-tests: a row of {len(cells)} cells under {len(header)} titles")
    pairs = list(zip(header, cells, strict=True))
    verified = [c for title, c in pairs if title in _WRONG and c != "N/A"]
    return Row(
        size=whole(cells[0], "size"),
        bus_gb_s=tuple(number(c, "busbw") for title, c in pairs if title == "busbw" and c != "N/A"),
        wrong=sum(_wrong(cell) for cell in verified) if verified else None,
    )


def _wrong(cell: str) -> int:
    """A count, or in old versions the largest error, as 0e+00, of which any is wrong."""
    return int(number(cell, "#wrong") != 0) if "e" in cell.lower() else whole(cell, "#wrong")


def _from_json(text: str) -> Nccl:
    document = document_with(text, "average_bus_bandwidth", what="nccl-tests")
    bounds = mapping(document.get("out_of_bounds"), "out_of_bounds")
    average = mapping(document.get("average_bus_bandwidth"), "average_bus_bandwidth")
    config = mapping(document.get("config"), "config")
    errors = document.get("errors", [])
    if errors:
        raise Unreadable(f"nccl-tests: {str(errors)[:200]}")
    devices = sequence(config.get("devices", []), "devices")
    told = {str(d.get("rank")): str(d.get("hostname")) for d in map(_device, devices)}
    # one process drives threads times GPUs; the list of devices has those of all processes
    own = number(config.get("nthreads", 0), "nthreads") * number(config.get("ngpus", 0), "ngpus")
    ranks = {str(n): "" for n in range(int(min(max(own, 0), _RANKS_MAX)))} | told
    return _run(
        ranks=ranks,
        rows=[_json_row(r) for r in sequence(document.get("results"), "results")],
        bounds=int(number(bounds.get("count"), "out_of_bounds")),
        bounds_ok=word(bounds.get("okay"), "okay") == "true",  # its booleans are texts
        average=number(average.get("bandwidth"), "bandwidth"),
        failed=word(average.get("okay"), "okay") not in ("true", "unchecked"),
    )


def _device(listed: Any) -> Mapping[str, Any]:
    return mapping(listed, "device")


def _json_row(listed: Any) -> Row:
    result = mapping(listed, "result")
    halves = [mapping(result[k], k) for k in ("out_of_place", "in_place") if k in result]
    verified = [h["nwrong"] for h in halves if h.get("nwrong", "N/A") not in ("N/A", None)]
    return Row(
        size=int(number(result.get("size"), "size")),
        bus_gb_s=tuple(number(h.get("bus_bw"), "bus_bw") for h in halves),
        wrong=sum(int(number(v, "nwrong")) for v in verified) if verified else None,
    )


def _run(
    *,
    ranks: Mapping[str, str],
    rows: Sequence[Row],
    bounds: int,
    bounds_ok: bool,
    average: float,
    failed: bool,
) -> Nccl:
    if not rows or not all(row.bus_gb_s for row in rows):
        raise Unreadable("nccl-tests: no row of its table can be read")
    mean = sum(sum(r.bus_gb_s) / len(r.bus_gb_s) for r in rows) / len(rows)
    # the printed average is over all rows: another one means that rows are missing or damaged
    if abs(mean - average) > 0.02 * max(mean, average) + 0.02:
        raise Unreadable(f"nccl-tests: rows average {mean:.6g} GB/s, it says {average:.6g}")
    return Nccl(
        ranks=len(ranks),
        hosts=tuple(sorted({host for host in ranks.values() if host})),
        rows=tuple(sorted(rows, key=lambda r: r.size)),
        out_of_bounds=bounds,
        bounds_ok=bounds_ok,
        average_gb_s=average,
        average_failed=failed,
    )


def by_size(run: Nccl) -> Mapping[int, float]:
    """Size in bytes -> the lowest of its bus bandwidths, in GB/s."""
    return {row.size: min(row.bus_gb_s) for row in run.rows}
