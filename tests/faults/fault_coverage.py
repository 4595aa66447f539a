"""Plays every Redfish fault in every act and writes the table; `make soak NAME=fault-coverage`.

    python tests/faults/fault_coverage.py [--check] [--only FAULT]

A cell is the outcome of the act's turns as in the catalogue's test. A dash means that the act sent
no request that the fault breaks: then its outcome has to be the one without a fault. The last line
is JSON. With `--check` the page is compared, not written.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "simulation")]

import virtual_time  # noqa: E402
from test_catalogue import CASES, play_fault  # noqa: E402

from provisioner.integrations.sim.site.control import ALL  # noqa: E402

TABLE = Path(__file__).with_name("fault_coverage.md")  # docs/generated has it as a page
ACTS = ("update", "boot", "power", "media", "password", "card")
NOT_MET = "–"


class Cell(NamedTuple):
    """The end of one fault in one act; `left`: what the simulator's log says is wrong after it."""

    outcome: str
    left: str = ""

    @classmethod
    def of(cls, outcomes: str, left: str = "") -> Cell:
        """Return the cell of the outcomes of some turns."""
        turns = outcomes.split()
        lasting = len(set(turns)) == 1 < len(turns)
        return cls(f"{turns[0]} (lasts)" if lasting else ", ".join(turns), left)


def play_cell(name: str, act: str) -> Cell:
    """Play one act while one fault lasts."""
    with tempfile.TemporaryDirectory() as folder:
        drill, outcomes, left = virtual_time.run(play_fault(Path(folder), name, act))
    rules = drill.site.faults.rules
    if ALL[name].rules and not any(rule.done for rule in rules):
        return Cell(NOT_MET if outcomes == "done" else f"not met: {outcomes}", left)
    return Cell.of(outcomes, left)


def draw_table(cells: dict[tuple[str, str], Cell]) -> str:
    """Return the rows of all faults, and below what is left behind by which."""
    lines = [f"| # | preset | {' | '.join(ACTS)} |", "|" + "---|" * (len(ACTS) + 2)]
    for name in CASES:
        row = [cells[name, act].outcome for act in ACTS]
        lines.append(f"| {ALL[name].catalogue} | `{name}` | {' | '.join(row)} |")
    left = [f"- `{n}`, {act}: {c.left}" for (n, act), c in cells.items() if c.left]
    return "\n".join([*lines, "", "Left behind afterwards, by the simulator's log:", "", *left])


def main() -> int:
    """0: written, or equal to the table that is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", help="one fault: print its cells")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = [options.only] if options.only else list(CASES)
    cells = {(name, act): play_cell(name, act) for name in names for act in ACTS}
    if options.only:
        sys.stdout.write("".join(f"{act}: {cell}\n" for (_, act), cell in cells.items()))
        return 0
    table = draw_table(cells)
    same = table == TABLE.read_text().strip()
    if not options.check:
        TABLE.write_text(table + "\n")
    met = sum(cell.outcome != NOT_MET for cell in cells.values())
    report = {"faults": len(names), "acts": len(ACTS), "cells": len(cells), "met": met}
    left = sum(bool(cell.left) for cell in cells.values())
    sys.stdout.write(json.dumps(report | {"left_behind": left, "as_in_the_table": same}) + "\n")
    return 0 if same or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
