"""Parses the output of nvbandwidth, as JSON (`-j`) or as text tables, into the same cases.

`Waived` is not a pass; a sum that does not match its matrix means a damaged output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import find_document
from provisioner.checks.readers.tool_output import (
    parse_number,
    require_list,
    require_object,
    require_text,
    split_lines,
)
from provisioner.model.base import Record

Matrix = tuple[tuple[float | None, ...], ...]  # rows of GB/s; None: the diagonal, "N/A"

SUM_TOLERANCE = 0.01  # of the sum: the cells are rounded to four or six digits
_RUNNING = re.compile(r"^Running ([a-z0-9_]{1,64})\.$")
_SUM = re.compile(r"^SUM ([a-z0-9_]{1,64}) ([0-9.]{1,24})$")


class Case(Record):
    """One test case. An empty matrix means that it did not run."""

    status: str  # "Passed", or the reason why not
    matrix: Matrix = ()


def read_cases(text: str) -> Mapping[str, Case]:
    """Return the test cases by name. Raises `Unreadable`."""
    if "{" in text or "Running " not in text:
        return _from_json(text)
    return _from_text(text)


def _from_json(text: str) -> dict[str, Case]:
    document = find_document(text, "nvbandwidth", subject="nvbandwidth")
    body = require_object(document["nvbandwidth"], "nvbandwidth")
    if "error" in body:  # printed in place of the test cases
        raise Unreadable(f"nvbandwidth: {str(body['error'])[:200]}")
    cases: dict[str, Case] = {}
    for listed in require_list(body.get("testcases"), "testcases"):
        case = require_object(listed, "testcase")
        name = require_text(case.get("name"), "name")
        if name in cases:
            raise Unreadable(f"nvbandwidth: {name[:64]} is listed twice")
        status = require_text(case.get("status"), "status")
        rows = [
            [_parse_cell(cell) for cell in require_list(row, "bandwidth_matrix")]
            for row in require_list(case.get("bandwidth_matrix", []), "bandwidth_matrix")
        ]
        if status == "Passed":
            _check_sum(name, rows, case.get("sum"))
        cases[name] = Case(status=status, matrix=tuple(map(tuple, rows)))
    return cases


def _from_text(text: str) -> dict[str, Case]:
    """Parse `Running X.`, a title, a line of column numbers, numbered rows, and `SUM X n`."""
    cases_of_run: dict[str, Case] = {}
    running = ""
    columns = 0
    rows = list[list[float | None]]()
    for line in split_lines(text):
        bare = line.strip()
        cells = bare.split()
        if match := _RUNNING.match(bare):
            running = match[1]
            columns = 0
            rows = []
            if running in cases_of_run:
                raise Unreadable(f"nvbandwidth: {running} is listed twice")
            cases_of_run[running] = Case(status="no result")
        elif not running:
            continue
        elif match := _SUM.match(bare):
            if match[1] != running:
                raise Unreadable(f"nvbandwidth: the sum of {match[1]} is printed under {running}")
            _check_sum(running, rows, match[2])
            cases_of_run[running] = Case(status="Passed", matrix=tuple(map(tuple, rows)))
            running = ""
        elif not columns and all(c.isdecimal() for c in cells):
            columns = len(cells)
        elif columns and cells[0].isdecimal():
            if len(cells) != columns + 1:
                raise Unreadable(f"nvbandwidth: a row of {running} does not have {columns} cells")
            rows.append([_parse_cell(cell) for cell in cells[1:]])
    return cases_of_run


def _parse_cell(cell: Any) -> float | None:
    if cell == "N/A":
        return None
    value = parse_number(cell, "bandwidth")
    if value < 0:
        raise Unreadable("nvbandwidth: a bandwidth below zero")
    return value


def _check_sum(name: str, rows: Sequence[Sequence[float | None]], printed_sum: Any) -> None:
    if not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable(f"nvbandwidth: {name[:64]} has no matrix")
    total = sum(cell for row in rows for cell in row if cell is not None)
    expected = parse_number(printed_sum, f"sum of {name[:64]}")
    if abs(total - expected) > SUM_TOLERANCE * max(total, expected):
        raise Unreadable(f"nvbandwidth: {name[:64]} adds up to {total:.6g}, not to {expected:.6g}")
