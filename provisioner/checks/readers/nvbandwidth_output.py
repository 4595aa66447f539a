"""Parses the output of nvbandwidth, as JSON (`-j`) or as text tables, into the same cases.

`Waived` is not a pass; a sum that does not match its matrix means a damaged output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import (
    find_document,
    parse_number,
    require_list,
    require_object,
    require_text,
    split_lines,
)
from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Parses rasdaemon's records: `ras-mc-ctl --summary` and `ras-mc-ctl --errors`.
#
# Both print a section for every kind of event, or "No ... errors." in its place. The section of the
# memory controllers is always there; an output without it is not one of these. A newer rasdaemon
# has more sections: an unknown one is reported with its own text and never ignored.


_NONE = re.compile(r"^No (?P<kind>[A-Za-z][\w /-]{1,60}?) errors\.?$")
_HEAD = re.compile(r"^(?P<kind>[A-Za-z][\w /-]{1,60}?)(?: summary)?:$")
_STATUS = re.compile(r"^ras-mc-ctl: drivers (are|not) loaded\.?$")
# "Corrected on DIMM Label(s): 'A1' location: 0:1:0:-1 errors: 42"
_DIMM = re.compile(
    r"^(?P<grade>[\w ()-]{1,40}?) on DIMM Label\(s\): '(?P<label>.{0,120})' location: \S{1,60}"
    r" errors: (?P<count>\d{1,12})$"
)
# "1 2026-09-30 10:00:00 +0000 1 Uncorrected error(s): memory read error at A1 location: ..."
_RECORD = re.compile(
    r"^\d{1,12} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} (?P<count>\d{1,12})"
    r" (?P<grade>[\w ()-]{1,40}?) error\(s\):? (?P<words>.{0,400})$"
)
_AT = re.compile(r"^.{0,120} at (?P<label>.{1,120}?) location: ")
_COUNTED = re.compile(r"^(?P<count>\d{1,12}) (?P<words>.{1,200}?)$")
_DEVICE = re.compile(r"^(?P<words>.{1,200}) has (?P<count>\d{1,12}) errors$")
_MEMORY = ("memory", "memory controller events")
_PCIE = ("pcie aer", "pcie aer events")
_BAD = re.compile(r"\b(?:uncorrect\w*|fatal|deferred|unrecover\w*)\b", re.IGNORECASE)
_GOOD = re.compile(r"\bcorrected\b|^Info$", re.IGNORECASE)


@dataclass(frozen=True)
class RasEvent:
    """One line of a section. `corrected` is None where the text does not say."""

    kind: str
    words: str
    count: int
    corrected: bool | None

    @property
    def memory(self) -> bool:
        return self.kind.lower() in _MEMORY


def looks_like_ras(text: str) -> bool:
    """Return whether this is an output of `ras-mc-ctl`."""
    begin = text.lstrip()[:200]
    return begin.startswith(("ras-mc-ctl:", "No Memory errors", "Memory controller events"))


def read_ras_events(text: str) -> tuple[bool, list[RasEvent]]:
    """Return whether the EDAC drivers are loaded (true unless it denies it), and every event."""
    loaded = True
    kinds = set()
    events = []
    kind = ""
    for line in (row.strip() for row in split_lines(text)):
        if match := _STATUS.match(line):
            loaded = match[1] == "are"
        elif match := _NONE.match(line) or _HEAD.match(line):
            kind = match["kind"]
            kinds.add(kind.lower())
        elif not kind:
            raise Unreadable(f"ras-mc-ctl: cannot read {line[:60]!r}")
        else:
            events.append(_parse_event(kind, line))
    # every version of rasdaemon begins with these two
    if loaded and not (kinds & set(_MEMORY) and kinds & set(_PCIE)):
        raise Unreadable("ras-mc-ctl: it does not report the memory controllers and PCIe")
    return loaded, events


def _parse_event(kind: str, line: str) -> RasEvent:
    if match := _DIMM.match(line):
        return RasEvent(kind, match["label"], int(match["count"]), _is_corrected(match["grade"]))
    if match := _RECORD.match(line):
        at = _AT.match(match["words"])
        text = at["label"] if at else match["words"]
        return RasEvent(kind, text, int(match["count"]), _is_corrected(match["grade"]))
    if match := _DEVICE.match(line) or _COUNTED.match(line):
        return RasEvent(kind, match["words"], int(match["count"]), _is_corrected(match["words"]))
    return RasEvent(kind, line, 1, _is_corrected(line))


def _is_corrected(text: str) -> bool | None:
    if _BAD.search(text):
        return False
    return True if _GOOD.search(text) else None


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
