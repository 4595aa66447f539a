"""Mutates the critical functions and reports which changes no test notices (`make soak
NAME=mutants`).

The last line is JSON: {"mutants": n, "killed": k, "survivors": [...], ...}. Mutants that are listed
as equivalent count among `mutants` and not among `killed`. The exit status is 1 where less than
95 % were killed, or where one that is listed as equivalent was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from judging_mutants import KILLED, OUT_OF_TIME, Choice
from mutant_table import EQUIVALENT, TABLE, Row

ROOT = Path(__file__).parents[2]
JUDGING = Path(__file__).with_name("judging_mutants.py")
GOAL = 0.95


def judge_row(row: Row, choice: Choice | None = None) -> Iterator[tuple[str, str]]:
    """Each mutant of a row with its result. Raises RuntimeError if the row cannot be judged."""
    given = json.dumps({**asdict(row), "choice": asdict(choice or Choice())})
    with (
        TemporaryFile("w+") as trouble,
        subprocess.Popen(
            [sys.executable, str(JUDGING), given],
            stdout=subprocess.PIPE,
            stderr=trouble,
            text=True,
            cwd=ROOT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            name, result = json.loads(line)
            yield name, result
        if process.wait():
            trouble.seek(0)
            raise RuntimeError(f"{row.name} cannot be judged:\n{trouble.read()[-4000:]}")


def judge_results(results: dict[str, str], equivalent: Collection[str]) -> dict[str, Any]:
    """The figures of a run, as its last line has them."""
    killed = [name for name, result in results.items() if result in (KILLED, OUT_OF_TIME)]
    alive = set(results) - set(killed)
    return {
        "mutants": len(results),
        "killed": len(killed),
        "survivors": sorted(alive - set(equivalent)),
        "equivalent": len(alive & set(equivalent)),
        "out_of_time": sum(result == OUT_OF_TIME for result in results.values()),
        "not_equivalent": sorted(set(equivalent) & set(killed)),
    }


def read_survivors(output: Path) -> list[str]:
    """Return the survivors in the last line of a run's output."""
    survivors: list[str] = json.loads(output.read_text().splitlines()[-1])["survivors"]
    return survivors


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the rows of the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", default="", help="only rows whose name has this in it")
    parser.add_argument("--only", default="", help="only mutants whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="rows that are judged at a time")
    parser.add_argument("--every", type=int, default=1, help="a sample: every n-th mutant of a row")
    parser.add_argument("--again", type=Path, help="only survivors that the output of a run lists")
    options = parser.parse_args(arguments)
    choice = Choice(options.only, options.again and read_survivors(options.again), options.every)
    results: dict[str, str] = {}

    def judge(row: Row) -> None:
        began, number = time.monotonic(), 0
        for name, result in judge_row(row, choice):
            results[name] = result
            number += 1
            if result not in (KILLED, OUT_OF_TIME):
                mark = "equivalent" if name in EQUIVALENT else result
                say(f"{mark}: {name}")
        say(f"== {row.name}: {number} in {time.monotonic() - began:.0f} s")

    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(judge, row) for row in TABLE if options.row in row.name]:
            done.result()
    told = judge_results(results, EQUIVALENT)
    say(json.dumps(told))
    good = told["killed"] >= GOAL * told["mutants"] and not told["not_equivalent"]
    return 0 if results and good else 1


if __name__ == "__main__":
    sys.exit(main())
