"""Reads what nvbandwidth prints: JSON (`-j`) or its text tables. The same cases come out of both.

`Waived` is no pass; a sum that does not fit its matrix is a damaged output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.json_in_text import document_with
from provisioner.checks.readers.reading import lines_of, mapping, number, sequence, word
from provisioner.model.base import Record

Matrix = tuple[tuple[float | None, ...], ...]  # rows of GB/s; None: the diagonal, "N/A"

SUM_TOLERANCE = 0.01  # of the sum: the cells are rounded to four or six digits
_RUNNING = re.compile(r"^Running ([a-z0-9_]{1,64})\.$")
_SUM = re.compile(r"^SUM ([a-z0-9_]{1,64}) ([0-9.]{1,24})$")


class Case(Record):
    """One test case. An empty matrix: it did not run."""

    status: str  # "Passed", or why not
    matrix: Matrix = ()


def cases_of(text: str) -> Mapping[str, Case]:
    """The test cases by name. Raises `Unreadable`."""
    if "{" in text or "Running " not in text:
        return _from_json(text)
    return _from_text(text)


def _from_json(text: str) -> dict[str, Case]:
    document = document_with(text, "nvbandwidth", what="nvbandwidth")
    body = mapping(document["nvbandwidth"], "nvbandwidth")
    if "error" in body:  # printed in place of the test cases
        raise Unreadable(f"nvbandwidth: {str(body['error'])[:200]}")
    found: dict[str, Case] = {}
    for listed in sequence(body.get("testcases"), "testcases"):
        case = mapping(listed, "testcase")
        name = word(case.get("name"), "name")
        if name in found:
            raise Unreadable(f"nvbandwidth: {name[:64]} is listed twice")
        status = word(case.get("status"), "status")
        rows = [
            [_cell(cell) for cell in sequence(row, "bandwidth_matrix")]
            for row in sequence(case.get("bandwidth_matrix", []), "bandwidth_matrix")
        ]
        if status == "Passed":
            _check_sum(name, rows, case.get("sum"))
        found[name] = Case(status=status, matrix=tuple(map(tuple, rows)))
    return found


def _from_text(text: str) -> dict[str, Case]:
    """`Running X.`, a title, a line of column numbers, rows that begin with theirs, `SUM X n`."""
    found: dict[str, Case] = {}
    running, columns, rows = "", 0, list[list[float | None]]()
    for line in lines_of(text):
        bare = line.strip()
        cells = bare.split()
        if match := _RUNNING.match(bare):
            running, columns, rows = match[1], 0, []
            if running in found:
                raise Unreadable(f"nvbandwidth: {running} is listed twice")
            found[running] = Case(status="no result")
        elif not running:
            continue
        elif match := _SUM.match(bare):
            if match[1] != running:
                raise Unreadable(f"nvbandwidth: the sum of {match[1]} stands under {running}")
            _check_sum(running, rows, match[2])
            found[running] = Case(status="Passed", matrix=tuple(map(tuple, rows)))
            running = ""
        elif not columns and all(c.isdecimal() for c in cells):
            columns = len(cells)
        elif columns and cells[0].isdecimal():
            if len(cells) != columns + 1:
                raise Unreadable(f"nvbandwidth: a row of {running} has not {columns} cells")
            rows.append([_cell(cell) for cell in cells[1:]])
    return found


def _cell(cell: Any) -> float | None:
    if cell == "N/A":
        return None
    value = number(cell, "bandwidth")
    if value < 0:
        raise Unreadable("nvbandwidth: a bandwidth below zero")
    return value


def _check_sum(name: str, rows: Sequence[Sequence[float | None]], told: Any) -> None:
    if not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable(f"nvbandwidth: {name[:64]} has no matrix")
    total = sum(cell for row in rows for cell in row if cell is not None)
    wanted = number(told, f"sum of {name[:64]}")
    if abs(total - wanted) > SUM_TOLERANCE * max(total, wanted):
        raise Unreadable(f"nvbandwidth: {name[:64]} adds up to {total:.6g}, not to {wanted:.6g}")
